"""What rules about configuration files ask: what reads a value, and what stands beside it."""

from __future__ import annotations

from pathlib import PurePath

from cuda2npu.knowledge import FOREIGN
from cuda2npu.rule import Fix, FixLevel, Report
from cuda2npu.tokens import ConfigKey, ConfigValue, DocumentSite
from cuda2npu_codemods.words import names_backend, names_device

DEEPSPEED_KEYS = {
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "zero_optimization",
    "zero_allow_untested_optimizer",
}
"""Keys at the root of a DeepSpeed configuration, which no other file has."""


def root_keys(site: DocumentSite) -> set[str]:
    """The keys at the root of a document."""
    return {
        token.key for token in site.tokens if isinstance(token, ConfigKey) and len(token.path) == 1
    }


def listed_beside(token: ConfigValue, site: DocumentSite) -> set[str]:
    """The values of the list that a value stands in."""
    if not token.path or isinstance(token.path[-1], str):
        return set()
    return {
        other.value
        for other in site.tokens
        if isinstance(other, ConfigValue) and other.path[:-1] == token.path[:-1]
    }


def moved(token: ConfigValue, site: DocumentSite, new: str, kind: str) -> Fix | Report:
    """The edit of a value that torch takes for a device or backend, as sure as it is.

    It is safe when the project's code is known to read the key for that and for nothing else,
    and the key says by its name what it is, or the code names the file: a ``target`` in another
    file is somebody else's, and so is what an editor keeps in a hidden folder.
    """
    feeds = site.project.feeds(token.key)
    if FOREIGN in feeds:
        readers = (
            ", ".join(site.project.readers.get(token.key, ())) or "something that is not torch"
        )
        return Report(
            f"{token.value} is read by {readers}, too: see what each reader makes of {new}"
        )
    hidden = PurePath(site.path).parent.name.startswith(".")
    speaks = not hidden and (names_device(token.key) or names_backend(token.key))
    if feeds == {kind} and (speaks or site.project.names_file(site.path)):
        why = f"the project's code hands {token.key} to torch as a {kind}, and the NPU's is {new}"
        return replaced(token, new, why)
    return replaced(token, new)


def replaced(token: ConfigValue, new: str, proven: str = "") -> Fix | Report:
    """The edit of a value; safe with the message that says why, else of the rule's level."""
    edits = token.becomes(new)
    if not edits:
        return Report(proven)
    return Fix(edits, proven, level=FixLevel.SAFE if proven else None)
