"""The pure function at the heart: a source text and options in, a new text and findings out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

import libcst as cst

from cuda2npu.facts import FileFacts
from cuda2npu.file_rules import UNREADABLE
from cuda2npu.imports import Insertion, plan
from cuda2npu.knowledge import Knowledge
from cuda2npu.model import Edit, Finding, FixLevel, Options, Result, SourceError, Target
from cuda2npu.packs import rule_word_pattern, rule_words, selected_rules, trigger_pattern
from cuda2npu.parsing import parse, too_deep, undisturbed, verify
from cuda2npu.ported import Cover, Ported
from cuda2npu.rule import Fix, Report, Rule
from cuda2npu.rule import Outcome as RuleOutcome
from cuda2npu.scopes import Scope
from cuda2npu.shim import leads_to_cuda, shim_of
from cuda2npu.site import UnitSite
from cuda2npu.source import Encoding, Source, decode
from cuda2npu.statements import Unit
from cuda2npu.suppress import Suppressions, comments_of_python
from cuda2npu.trees import Editor, spans
from cuda2npu.unused import Change, without_unused

SHIM_CODES = "NPU02"
"""Rules about run-time patches of torch.cuda: the only ones asked in a file that is one."""
PACKAGE_CODES = "NPU6"
"""Rules about other packages: the only ones asked in a branch that runs another runtime."""


def rewrite_bytes(
    data: bytes, options: Options, *, path: str, knowledge: Knowledge | None = None
) -> tuple[bytes, Result]:
    """Rewrite a file's bytes. Unchanged input comes back as the same object.

    Raises SourceError when the bytes cannot be decoded or parsed.
    """
    if trigger_pattern(options).search(data) is None:
        return data, Result(path, "", changed=False)
    text, encoding = decode(data)
    result = rewrite_source(text, options, path=path, knowledge=knowledge)
    return (_encode(encoding, result.text) if result.changed else data), result


def _encode(encoding: Encoding, text: str) -> bytes:
    try:
        return encoding.encode(text)
    except UnicodeEncodeError as error:  # pragma: no cover - edits are ASCII
        raise SourceError(f"the rewritten text does not fit {encoding.name}: {error}") from None


def rewrite_source(
    text: str, options: Options, *, path: str = "<stdin>", knowledge: Knowledge | None = None
) -> Result:
    """Rewrite a Python source, with what is known of the other files of its project.

    A leading byte order mark is kept. Raises SourceError when the text does not parse; the
    message names the line and what to do.
    """
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    source = Source(text[len(mark) :])
    hits = [match.start() for match in rule_word_pattern(options).finditer(source.utf8)]
    known = knowledge or Knowledge()
    if not hits and not leads_to_cuda(known):
        return Result(path, text, changed=False)
    with undisturbed():
        try:
            facts = FileFacts(path, parse(source.text), source, hits, known)
            return _rewrite(facts, options, mark)
        except RecursionError:
            raise too_deep(source.line_of(hits[0] if hits else 0)) from None


def _rewrite(facts: FileFacts, options: Options, mark: str) -> Result:
    path, source = facts.path, facts.source
    unchanged = Result(path, mark + source.text, changed=False)
    if facts.is_foreign:
        return unchanged
    suppressions = Suppressions(comments_of_python(source.text))
    if suppressions.skip_file:
        return unchanged
    run = _Run(facts, options, suppressions)
    ported = Ported(source.text)
    if ported.uses_transfer or ported.is_shim:
        run.only = SHIM_CODES
    for unit in facts.statements.units:
        cover = ported.covers(unit)
        if cover is not Cover.HAND:
            run.do(unit, cover)
    if options.target is Target.SHIM:
        run.add_shim(ported)
    new = run.assemble()
    findings, notes = tuple(sorted(run.findings)), tuple(suppressions.notes)
    return Result(path, mark + new, new != source.text, findings, notes, tuple(run.edits))


@dataclass(slots=True)
class _Run:
    """The work on one file: findings and new texts of its units."""

    facts: FileFacts
    options: Options
    suppressions: Suppressions
    findings: list[Finding] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    insertions: list[Insertion] = field(default_factory=list)
    needs: set[str] = field(default_factory=set)
    edits: list[Edit] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=list)
    """The scopes that hold edits."""
    only: str = ""
    """A prefix of the codes that may speak in this file, besides rules that are off by default."""

    def do(self, unit: Unit, cover: Cover | None) -> None:
        text = self.facts.source.slice(unit.start, unit.end)
        asked = self._asked(text, PACKAGE_CODES if cover is Cover.RUNTIME else self.only)
        if not asked:
            return
        try:
            self._ask(unit, text, asked, cover)
        except (cst.ParserSyntaxError, RecursionError):
            self.findings.append(self._unreadable(unit))

    def _asked(self, text: str, only: str) -> _Asked:
        words = frozenset(filter(text.__contains__, rule_words(self.options)))
        return _dispatch(words, self.options, only)

    def _ask(self, unit: Unit, text: str, asked: _Asked, cover: Cover | None) -> None:
        module = cst.parse_module(unit.prefix + text + unit.suffix)
        site = UnitSite(unit, module, self.facts, self.options)
        if proposals := list(_ask(module, site, asked)):
            settled = _Settled(unit, text, site, self.options)
            inside = list(filter(settled.is_inside, proposals))
            if cover is not Cover.DOUBT or not any(map(self._is_left, inside)):
                self._settle(settled, inside)

    def _is_left(self, proposal: _Proposal) -> bool:
        """Whether the proposal is an edit that a run with these options would have made."""
        level, _ = proposal.rule.finds(proposal.outcome, self.options)
        return level is not FixLevel.UNSAFE and self.options.applies(level)

    def _settle(
        self,
        settled: _Settled,
        proposals: list[_Proposal],
        refused: frozenset[_Proposal] = frozenset(),
    ) -> None:
        taken = []
        for proposal in proposals:
            finding = settled.finding(proposal, self.facts)
            if not self.suppressions.covers(finding):
                taken.append(finding if proposal in refused else settled.take(proposal, finding))
        lost = settled.lost()
        if lost:  # what they edit is gone with what another rule replaced: findings for a person
            losers = {
                p for p in proposals if isinstance(p.outcome, Fix) and lost & {*p.outcome.edits}
            }
            settled.edits.clear()
            settled.needs.clear()
            self._settle(settled, proposals, refused | losers)
            return
        if settled.edits:
            new = settled.new_text(self.facts.source)
            late = {f.code for f in taken if not f.applied and self.options.applies(f.fix)}
            if late:
                new, done = self._again(settled.unit, new, late)
                taken = [_in_the_end(f, done) if f.code in late else f for f in taken]
            self.changes.append(Change(settled.unit.start, settled.unit.end, settled.text, new))
        if settled.needs:
            self.needs |= settled.needs
            self.scopes.append(settled.unit.scope)
        self.findings += taken

    def _again(self, unit: Unit, text: str, codes: set[str]) -> tuple[str, set[str]]:
        """The new text with the edits of rules that another rule's edit got in the way of.

        They are asked about what it wrote, as a second run would. Returns the codes of those
        that edited something, too.
        """
        first, last = map(self.facts.source.line_of, (unit.start, unit.end))
        if not codes or any(first <= line <= last for line in self.suppressions.lines):
            return text, set()
        try:
            module = cst.parse_module(unit.prefix + text + unit.suffix)
        except cst.ParserSyntaxError:  # one statement became several lines
            return text, set()
        site = UnitSite(unit, module, self.facts, self.options)
        settled = _Settled(unit, text, site, self.options)
        asked = self._asked(text, self.only)
        done = set()
        for proposal in filter(settled.is_inside, _ask(module, site, asked)):
            code = proposal.rule.code
            finding = settled.finding(proposal, self.facts)
            if code in codes and settled.take(proposal, finding).applied:
                done.add(code)
        if not done or settled.lost():
            return text, set()
        self.needs |= settled.needs
        if settled.needs:
            self.scopes.append(unit.scope)
        new, more = self._again(unit, settled.new_text(self.facts.source), codes - done)
        return new, done | more

    def _unreadable(self, unit: Unit) -> Finding:
        line, column = self.facts.source.position(unit.start)
        end_line, end_column = self.facts.source.position(unit.end)
        place = (self.facts.path, line, column, end_line, end_column)
        rule = UNREADABLE
        return Finding(*place, rule.code, rule.name, rule.why, rule.fix, rule.quiet)

    def add_shim(self, ported: Ported) -> None:
        shim = shim_of(self.facts, ported, self.options)
        if isinstance(shim, str):
            self.suppressions.notes.append(shim)
        elif shim is not None and not self.suppressions.covers(shim.finding):
            self.findings.append(shim.finding)
            self.insertions += filter(None, [shim.insertion])

    def assemble(self) -> str:
        """The file's text with every change in its place, and the imports it needs."""
        source = self.facts.source
        changes = without_unused(self.facts, self.changes)
        proved = set(map(id, self.changes))
        for change in changes:
            if change.new and id(change) not in proved:
                verify(change.new)
        pieces = [_whole_line(source, change) for change in changes]
        pieces += [
            (insertion.offset, insertion.offset, insertion.text)
            for insertion in (
                *self.insertions,
                *plan(self.facts, self.needs, self.scopes, self._names_torch_npu()),
            )
        ]
        pieces.sort()
        self.edits = [source.edit(*piece) for piece in pieces]
        new_text = source.with_pieces(pieces)
        if not all(change.new for change in changes):
            verify(new_text)  # a block may have lost its only statement
        return new_text

    def _names_torch_npu(self) -> bool:
        """Whether an expression of the new text names the module, so that it is no unused name."""
        return any(
            "torch_npu." in change.new and not change.new.startswith(("import ", "from "))
            for change in self.changes
        )


def _in_the_end(finding: Finding, done: set[str]) -> Finding:
    """A finding whose edit came second: made after all, or gone with what was edited."""
    if finding.applied or finding.code in done:
        return replace(finding, applied=True)
    return replace(finding, fix=FixLevel.NONE)


def _whole_line(source: Source, change: Change) -> tuple[int, int, str]:
    """The change as a piece of the file; a statement that goes takes its line along."""
    if change.new or not source.stands_alone(change.start, change.end):
        return change.start, change.end, change.new or "pass"
    start = change.start - len(source.indent(change.start))
    return start, source.line_end(change.end), ""


@dataclass(frozen=True, slots=True, eq=False)
class _Proposal:
    rule: Rule
    node: cst.CSTNode
    outcome: Fix | Report
    needs: frozenset[str]


_Asked = dict[type[cst.CSTNode], tuple[Rule, ...]]


@lru_cache(maxsize=4096)
def _dispatch(words: frozenset[str], options: Options, only: str) -> _Asked:
    """The rules to ask about each node class, for a unit with these words."""
    asked: dict[type[cst.CSTNode], tuple[Rule, ...]] = {}
    for rule in selected_rules(options):
        may_speak = not rule.default or rule.code.startswith(only)
        if may_speak and not words.isdisjoint(rule.words):
            for kind in rule.on:
                asked[kind] = (*asked.get(kind, ()), rule)
    return asked


def _ask(module: cst.Module, site: UnitSite, asked: _Asked) -> Iterator[_Proposal]:
    for node in site.tree:
        for rule in asked.get(type(node), ()):
            site.needs = set()
            outcome: RuleOutcome = rule.function(node, site)
            if outcome is not None:
                yield _Proposal(rule, node, outcome, frozenset(site.needs))


class _Settled:
    """The findings of one unit turned into edits, as far as the options apply them."""

    def __init__(self, unit: Unit, text: str, site: UnitSite, options: Options) -> None:
        self.unit = unit
        self.text = text
        self.site = site
        self.options = options
        self.edits: dict[cst.CSTNode, object] = {}
        self.needs: set[str] = set()
        self.code, self.spans = spans(site.module)

    def is_inside(self, proposal: _Proposal) -> bool:
        """Whether the proposal is about the unit itself, not about a subject put before it."""
        outcome, prefix = proposal.outcome, len(self.unit.prefix)
        edited = outcome.edits if isinstance(outcome, Fix) else ()
        nodes = [outcome.at or proposal.node, *edited]
        return not prefix or all(self.spans[id(node)][1] > prefix for node in nodes)

    def finding(self, proposal: _Proposal, facts: FileFacts) -> Finding:
        rule, outcome = proposal.rule, proposal.outcome
        level, message = rule.finds(outcome, self.options)
        start, end = self.spans[id(outcome.at or proposal.node)]
        line, column = facts.source.position(self._offset(start))
        end_line, end_column = facts.source.position(self._offset(end))
        quiet = rule.quiet if outcome.quiet is None else outcome.quiet
        place = (facts.path, line, column, end_line, end_column)
        kernels = outcome.kernels if isinstance(outcome, Report) else ()
        return Finding(*place, rule.code, rule.name, message, level, quiet, kernels=kernels)

    def _offset(self, characters: int) -> int:
        """The file's byte offset of a character offset in the parsed unit."""
        inside = min(max(characters - len(self.unit.prefix), 0), len(self.text))
        return self.unit.start + len(self.text[:inside].encode("utf-8", "surrogatepass"))

    def take(self, proposal: _Proposal, finding: Finding) -> Finding:
        """Take the proposal's edits over, if they apply and no other rule was first."""
        outcome = proposal.outcome
        if not isinstance(outcome, Fix) or not self.options.applies(finding.fix):
            return finding
        if any(node in self.edits for node in outcome.edits):
            return finding
        self.edits.update(outcome.edits)
        self.needs.update(outcome.imports, proposal.needs)
        return replace(finding, applied=True)

    def lost(self) -> set[cst.CSTNode]:
        """Nodes whose edit has no place, because an edit around them replaces them."""
        if len(self.edits) < 2:
            return set()
        editor = Editor(self.edits)  # type: ignore[arg-type]
        editor.edit(self.site.module)
        return self.edits.keys() - editor.applied

    def new_text(self, source: Source) -> str:
        """The unit's new text, proved to parse where the old one stood.

        A unit is a whole statement or the whole header of one, so that a text that parses as
        such by itself, up to its very end, also parses in the file.
        """
        module, unit = self.site.module, self.unit
        if self.code != unit.prefix + self.text + unit.suffix:
            raise SourceError(f"internal error: statement at byte {unit.start} does not round-trip")
        edited = Editor(self.edits).edit(module)  # type: ignore[arg-type]
        code = edited.code
        if unit.prefix or unit.suffix:
            verify(code)
            if not (code.startswith(unit.prefix) and code.endswith(unit.suffix)):
                raise SourceError(f"internal error: an edit left its place at byte {unit.start}")
            return code[len(unit.prefix) : len(code) - len(unit.suffix)]
        if not code:
            return code
        last = verify(code + "; pass").body[-1]
        if not isinstance(last, ast.Pass):
            raise SourceError(f"internal error: byte {unit.start} became a block of statements")
        return self._one_per_line(edited, code, source)

    def _one_per_line(self, edited: cst.Module, code: str, source: Source) -> str:
        """Statements that took the place of one go on lines of their own, where they can."""
        line = edited.body[0]
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) == 1:
            return code
        statements = [edited.code_for_node(s.with_changes(semicolon=_NONE)) for s in line.body]
        alone = source.stands_alone(self.unit.start, self.unit.end)
        return (source.newline + source.indent(self.unit.start) if alone else "; ").join(statements)


_NONE = cst.MaybeSentinel.DEFAULT
