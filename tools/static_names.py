"""What a Python package binds, read from its source with ``ast`` and never imported.

A binding is kept as a reference until somebody asks what it stands for, so the import cycles
of a package cost nothing. Every branch of ``if`` and ``try`` counts as taken.
"""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Binding:
    """What a name stands for: a definition of ``home``, or a reference to ``target``."""

    home: str
    node: ast.AST | None = None
    target: str | None = None
    instance: bool = False


@dataclass
class Module:
    """One module of the package."""

    name: str
    is_package: bool
    tree: ast.Module
    names: dict[str, Binding] = field(default_factory=dict)
    exported: list[str] | None = None
    members: dict[str, list[str]] = field(default_factory=dict)
    """Attributes set from outside on a class of this module: ``mstx.annotate = annotate``."""
    stars: list[str] = field(default_factory=list)


def dotted(node: ast.AST) -> str | None:
    """``a.b.c`` for a chain of attributes on a name, None for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    parts.append(node.id)
    return ".".join(reversed(parts))


def strings(node: ast.AST | None) -> list[str]:
    """The string constants of a list, tuple or set display."""
    if not isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return []
    return [
        item.value
        for item in node.elts
        if isinstance(item, ast.Constant) and isinstance(item.value, str)
    ]


def flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a body runs, those of all branches included."""
    for statement in body:
        yield statement
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for name in ("body", "orelse", "finalbody"):
            yield from flat(getattr(statement, name, []))
        for handler in getattr(statement, "handlers", []):
            yield from flat(handler.body)


class Package:
    """The modules of one wheel."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        """``sources`` maps paths such as ``torch_npu/npu/__init__.py`` to their text."""
        self.modules: dict[str, Module] = {}
        for path in sorted(sources):
            is_package = path.endswith("/__init__.py")
            stem = path.removesuffix("/__init__.py") if is_package else path.removesuffix(".py")
            name = stem.replace("/", ".")
            self.modules[name] = Module(name, is_package, ast.parse(sources[path]))
        for module in self.modules.values():
            for statement in flat(module.tree.body):
                self._bind(module, statement)
        for module in self.modules.values():
            self._expand_stars(module, set())

    @classmethod
    def from_wheel(cls, wheel: zipfile.ZipFile, root: str) -> Package:
        """The package ``root`` of a wheel."""
        paths = [name for name in wheel.namelist() if name.startswith(root + "/")]
        return cls(
            {path: wheel.read(path).decode("utf-8-sig") for path in paths if path.endswith(".py")}
        )

    def _bind(self, module: Module, statement: ast.stmt) -> None:
        names = module.names
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names[statement.name] = Binding(module.name, statement)
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                head = alias.name.split(".")[0]
                names[alias.asname or head] = Binding(
                    module.name, target=alias.name if alias.asname else head
                )
        elif isinstance(statement, ast.ImportFrom):
            self._bind_from(module, statement)
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                self._assign(module, target, statement.value)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            self._assign(module, statement.target, statement.value)
        elif isinstance(statement, ast.AugAssign):
            if dotted(statement.target) == "__all__":
                module.exported = [*(module.exported or []), *strings(statement.value)]
        elif isinstance(statement, ast.Delete):
            for gone in statement.targets:
                names.pop(dotted(gone) or "", None)

    def _bind_from(self, module: Module, statement: ast.ImportFrom) -> None:
        source = statement.module or ""
        if statement.level:
            drop = statement.level - (1 if module.is_package else 0)
            base = module.name.split(".")
            base = base[: len(base) - drop]
            source = ".".join([*base, *([source] if source else [])])
        for alias in statement.names:
            if alias.name == "*":
                module.stars.append(source)
            else:
                module.names[alias.asname or alias.name] = Binding(
                    module.name, target=f"{source}.{alias.name}"
                )

    def _assign(self, module: Module, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for item in target.elts:
                self._assign(module, item, ast.Constant(None))
            return
        name = dotted(target)
        if name is None:
            return
        if name == "__all__":
            module.exported = strings(value)
        elif "." in name:
            owner, attribute = name.rsplit(".", 1)
            module.members.setdefault(owner, []).append(attribute)
        elif isinstance(value, ast.Call) and dotted(value.func):
            module.names[name] = Binding(
                module.name, value, target=dotted(value.func), instance=True
            )
        else:
            module.names[name] = Binding(module.name, value, target=dotted(value))

    def _expand_stars(self, module: Module, seen: set[str]) -> None:
        if module.name in seen:
            return
        seen.add(module.name)
        while module.stars:
            source = self.modules.get(module.stars.pop(0))
            if source is None:
                continue
            self._expand_stars(source, seen)
            public = [name for name in source.names if not name.startswith("_")]
            for name in public if source.exported is None else source.exported:
                module.names.setdefault(name, Binding(module.name, target=f"{source.name}.{name}"))

    def resolve(self, module: Module, name: str, depth: int = 0) -> Binding | None:
        """The definition behind a (dotted) name as seen in a module; None when it is foreign.

        A module of the package is a binding whose node is its ``ast.Module``.
        """
        head, _, rest = name.partition(".")
        found = module.names.get(head)
        submodule = self.modules.get(f"{module.name}.{head}")
        if found is None and submodule is not None:
            return self._descend(Binding(submodule.name, submodule.tree), rest, depth)
        if found is None or depth > 12:
            return None
        if found.target is None or found.instance:
            return None if rest else found
        reached = self.lookup(found.target, depth + 1)
        if reached is None and found.target.split(".")[0] != head:
            reached = self.resolve(module, found.target, depth + 1)
        return self._descend(reached, rest, depth)

    def _descend(self, found: Binding | None, rest: str, depth: int) -> Binding | None:
        if not rest or found is None:
            return found
        inner = self.modules.get(found.home) if isinstance(found.node, ast.Module) else None
        return self.resolve(inner, rest, depth + 1) if inner else None

    def lookup(self, name: str, depth: int = 0) -> Binding | None:
        """The definition behind a name written from the root of the package.

        As in an ``import`` statement, a submodule wins over an attribute that hides it.
        """
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            module = self.modules.get(".".join(parts[:length]))
            if module is not None and length == len(parts):
                return Binding(module.name, module.tree)
            if module is not None:
                return self.resolve(module, ".".join(parts[length:]), depth)
        return None

    def class_of(self, binding: Binding | None) -> Binding | None:
        """The class that a binding is, or of which it is an instance."""
        if binding is None or isinstance(binding.node, ast.ClassDef):
            return binding
        if binding.instance and binding.target:
            found = self.resolve(self.modules[binding.home], binding.target)
            return found if found and isinstance(found.node, ast.ClassDef) else None
        return None

    def bases(self, binding: Binding) -> Iterator[Binding | str]:
        """The bases of a class: those of this package as bindings, foreign ones by name."""
        module = self.modules[binding.home]
        for base in getattr(binding.node, "bases", []):
            name = dotted(base)
            if name is None:
                continue
            found = self.resolve(module, name)
            yield found if found and isinstance(found.node, ast.ClassDef) else name


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef, bound: bool) -> list[str]:
    """Parameter names in order; ``*``, ``*args`` and ``**kwargs`` keep their stars.

    ``bound`` drops the first one (``self`` or ``cls``).
    """
    given = function.args
    names = [item.arg for item in (*given.posonlyargs, *given.args)]
    if bound:
        names = names[1:]
    if given.vararg:
        names.append("*" + given.vararg.arg)
    elif given.kwonlyargs:
        names.append("*")
    names += [item.arg for item in given.kwonlyargs]
    if given.kwarg:
        names.append("**" + given.kwarg.arg)
    return names


def attribute_names(class_node: ast.ClassDef) -> list[str]:
    """What a class body binds, and the names that its ``__getattr__``/``__setattr__`` know."""
    names: list[str] = []
    for statement in flat(class_node.body):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.append(statement.name)
            if statement.name in {"__getattr__", "__setattr__"}:
                names += _compared(statement)
        elif isinstance(statement, ast.Assign):
            names += [t.id for t in statement.targets if isinstance(t, ast.Name)]
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            names.append(statement.target.id)
    return names


def _compared(function: ast.AST) -> list[str]:
    """``"x"`` of each ``name == "x"``."""
    return [
        node.comparators[0].value
        for node in ast.walk(function)
        if isinstance(node, ast.Compare)
        and dotted(node.left) == "name"
        and isinstance(node.ops[0], ast.Eq)
        and isinstance(node.comparators[0], ast.Constant)
        and isinstance(node.comparators[0].value, str)
    ]
