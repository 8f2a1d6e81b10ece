"""What a shared library needs and has, read from its ELF tables."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import NamedTuple

DYNAMIC, DYNSYM, VERSYM = 6, 11, 0x6FFFFFFF
DT_NEEDED, DT_SONAME = 1, 14
WEAK = 2


class Library(NamedTuple):
    needed: tuple[str, ...]
    soname: str
    undefined: frozenset[str]
    """Symbols that must be found elsewhere, without those bound to a version of a library."""
    defined: frozenset[str]


class _Section(NamedTuple):
    kind: int
    offset: int
    size: int
    link: int


def read(path: Path) -> Library:
    """Read a 64-bit little-endian library, the kind of every platform torch_npu exists for."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is no 64-bit little-endian ELF file")
        sections = _sections(data)
        undefined, defined = _symbols(data, sections)
        needed, soname = _dynamic(data, sections)
        return Library(needed, soname, undefined, defined)


def _sections(data: mmap.mmap) -> list[_Section]:
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = []
    for index in range(count):
        _, kind, _, _, offset, length, link = struct.unpack_from(
            "<IIQQQQI", data, start + index * size
        )
        sections.append(_Section(kind, offset, length, link))
    return sections


def _first(sections: list[_Section], kind: int) -> _Section | None:
    return next((section for section in sections if section.kind == kind), None)


def _symbols(data: mmap.mmap, sections: list[_Section]) -> tuple[frozenset[str], frozenset[str]]:
    table = _first(sections, DYNSYM)
    if table is None:
        return frozenset(), frozenset()
    strings = _bytes(data, sections[table.link])
    versions = _first(sections, VERSYM)
    numbers = struct.unpack(f"<{table.size // 24}H", _bytes(data, versions)) if versions else ()
    undefined, defined = set(), set()
    entries = struct.iter_unpack("<IBBHQQ", _bytes(data, table))
    for index, (name, info, _, section, _, _) in enumerate(entries):
        if not name:
            continue
        if section:
            defined.add(_text(strings, name))
        elif info >> 4 != WEAK and not (numbers and numbers[index] & 0x7FFF > 1):
            undefined.add(_text(strings, name))
    return frozenset(undefined), frozenset(defined)


def _dynamic(data: mmap.mmap, sections: list[_Section]) -> tuple[tuple[str, ...], str]:
    table = _first(sections, DYNAMIC)
    if table is None:
        return (), ""
    strings = _bytes(data, sections[table.link])
    tags = list(struct.iter_unpack("<qQ", _bytes(data, table)))
    needed = tuple(_text(strings, value) for tag, value in tags if tag == DT_NEEDED)
    return needed, next((_text(strings, value) for tag, value in tags if tag == DT_SONAME), "")


def _bytes(data: mmap.mmap, section: _Section) -> bytes:
    return data[section.offset : section.offset + section.size]


def _text(strings: bytes, start: int) -> str:
    return strings[start : strings.index(b"\0", start)].decode()
