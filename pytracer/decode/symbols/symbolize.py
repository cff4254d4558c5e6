"""Native addresses to function names and source lines, from the images on this machine.

A name is given only for the loaded image (same build id, if one was recorded) and only if the address lies inside the
symbol. Stripped functions have no name. Lines come from debug information (`source_lines.py`), if there is any. Results
can be stored in the run directory (`stored.py`).
"""

from __future__ import annotations

import contextlib
import os
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from pytracer.decode.files import MIB, Refused, Window, regular_file
from pytracer.decode.symbols.demangle import demangle
from pytracer.decode.symbols.elf_sections import Elf, NotElf, Section
from pytracer.decode.symbols.source_lines import SourceLines
from pytracer.decode.symbols.stored import Known, Lines, native_frames, symbol_key, written
from pytracer.decode.types.snapshot import Crash, Damage, NativeFrame, Snapshot, SourceLine

DEBUG_FILES = Path("/usr/lib/debug/.build-id")
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
SYMBOLS, DYNAMIC_SYMBOLS = 2, 11  # SHT_SYMTAB, SHT_DYNSYM
_FUNCTIONS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
# Of symbol tables: of one image, and of all together. libtorch's have 7 MiB, those of a debug build 60.
_LARGEST_TABLE = 96 * MIB
_TABLES_IN_ALL = 192 * MIB
_AT_ONCE = 24 << 16
_LONGEST_GUESS = 8192  # bytes behind a symbol without a size


class Name(NamedTuple):
    """A function's name; `found` is "exact" or "guessed"."""

    function: str
    found: str


class _Place(NamedTuple):
    """The location of a frame: the key of a look-up."""

    image: str
    build_id: str | None
    offset: int
    offset_is_file: bool


class _Found:
    """What is known of each location, and what has still to be looked up."""

    def __init__(self, places: Iterable[_Place], known: Known, reader: SourceLines) -> None:
        self.names: dict[_Place, Name] = {}
        self.lines: dict[_Place, Lines] = {}
        self.reader = reader
        self.budget = _Budget(_TABLES_IN_ALL)
        self._places: dict[tuple[str, str | None], list[_Place]] = {}
        for place in places:
            key = symbol_key(place.build_id, place.offset) if place.build_id else ""
            if key in known.names:
                self.names[place] = Name(known.names[key], "exact")
            if key in known.lines:
                self.lines[place] = known.lines[key]
            if place not in self.names or (place not in self.lines and self.reader.wanted):
                self._places.setdefault((place.image, place.build_id), []).append(place)

    def images(self) -> Iterator[tuple[tuple[str, str | None], list[_Place]]]:
        """Each image that has to be opened, with its places."""
        yield from self._places.items()


def symbolize(snapshots: Sequence[Snapshot], known: Known | None = None) -> list[Snapshot]:
    """Fills `NativeFrame.function` and `.lines` of all crashes, endings and stacks on request, of all threads.

    Args:
        snapshots: any number; each image is read once for all of them.
        known: names and lines of `symbols.json`; they come first.

    Returns:
        The snapshots in the same order. An image that is not the recorded one is noted in their damage.
    """
    places = dict.fromkeys(place for snapshot in snapshots for place in _places(written(snapshot)))
    problems: dict[tuple[str, str | None], Damage] = {}
    with SourceLines() as reader:
        found = _Found(places, known or Known(), reader)
        for (image, build_id), here in found.images():
            problem = _look_up(image, build_id, here, found)
            if problem:
                problems[image, build_id] = Damage(os.path.basename(image), 0, problem)
    return [_filled(s, found, problems) for s in snapshots]


def _place(frame: NativeFrame) -> _Place | None:
    if frame.image is None or frame.offset is None or frame.function is not None:
        return None
    return _Place(frame.image, frame.build_id, frame.offset, frame.offset_is_file)


def _places(crash: Crash | None) -> set[_Place]:
    """Locations to look up, each once: threads of one pool wait in the same place."""
    return {place for place in map(_place, native_frames(crash)) if place is not None}


def _filled(snapshot: Snapshot, symbols: _Found, problems: Mapping[tuple[str, str | None], Damage]) -> Snapshot:
    crash = written(snapshot)
    if crash is None:
        return snapshot
    places = _places(crash)
    found = {problems[place.image, place.build_id] for place in places if (place.image, place.build_id) in problems}
    damage = dict.fromkeys((*snapshot.damage, *sorted(found, key=lambda item: item.file)))
    crash = replace(
        crash,
        native_stack=_named(crash.native_stack, symbols),
        code_pointers=_named(crash.code_pointers, symbols),
        threads=tuple(replace(t, native_stack=_named(t.native_stack, symbols)) for t in crash.threads),
    )
    snapshot = replace(snapshot, damage=tuple(damage))
    if snapshot.crash is not None:
        return replace(snapshot, crash=crash)
    return replace(snapshot, ending=crash) if snapshot.ending is not None else replace(snapshot, live=crash)


def _named(stack: Sequence[NativeFrame], symbols: _Found) -> tuple[NativeFrame, ...]:
    frames = []
    for frame in stack:
        place = _place(frame)
        name, lines = (symbols.names.get(place), symbols.lines.get(place, ())) if place else (None, ())
        if name or lines:
            function, how = name or (None, None)
            frame = replace(frame, function=function, function_found=how, lines=lines)
        frames.append(frame)
    return tuple(frames)


@dataclass
class _Budget:
    """Bytes of symbol tables that may still be read: a hostile recording names any number of images."""

    left: int

    def take(self, nbytes: int) -> bool:
        if nbytes > min(_LARGEST_TABLE, self.left):
            return False
        self.left -= nbytes
        return True


class _TooLarge(Exception):
    """There are more symbols than the limit."""


def _look_up(image: str, build_id: str | None, places: Iterable[_Place], found: _Found) -> str | None:
    """Finds names and lines for places of one image; returns what is wrong with the image, if anything."""
    if not image.startswith("/"):
        return None
    try:
        with regular_file(image, follow=True) as file:
            return _look_into(image, file, build_id, places, found)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if isinstance(error, (Refused, IsADirectoryError)):  # no image of this process: a recording may name anything
            return None
        return f"{image} cannot be read: {error.strerror}"
    except _TooLarge:
        return f"{image} has more symbols than are looked at: no names"
    except (NotElf, struct.error, IndexError, ValueError) as error:
        return f"{image} has symbols that cannot be read: {error}"


def _look_into(image: str, file: int, build_id: str | None, places: Iterable[_Place], found: _Found) -> str | None:
    elf = Elf(Window(file))
    here = elf.build_id()
    if build_id is not None and here != build_id:
        return f"{image} is not the image that was loaded (build id {here}, recorded {build_id}): no names"
    wanted = {p: elf.address_of(p.offset) if p.offset_is_file else p.offset for p in places}
    addresses = {p: a for p, a in wanted.items() if a is not None}
    names = _names(elf, {a for p, a in addresses.items() if p not in found.names}, found.budget)
    lines = _lines(elf, file, {a for p, a in addresses.items() if p not in found.lines}, found.reader)
    with _debug_file(here) as debug_file:
        if debug_file is not None:
            separate = Elf(Window(debug_file))
            if separate.build_id() == here:
                left = {a for p, a in addresses.items() if p not in found.names and a not in names}
                names |= _names(separate, left, found.budget)
                lines = lines or _lines(separate, debug_file, set(addresses.values()), found.reader)
    found.names |= {p: names[a] for p, a in addresses.items() if a in names}
    found.lines |= {p: lines[a] for p, a in addresses.items() if a in lines}
    return None


@contextlib.contextmanager
def _debug_file(build_id: str | None) -> Iterator[int | None]:
    """The separate debug file of an image, where a distribution's debug package has installed it."""
    with contextlib.ExitStack() as stack:
        file = None
        if build_id is not None:
            with contextlib.suppress(OSError):
                path = DEBUG_FILES / build_id[:2] / f"{build_id[2:]}.debug"
                file = stack.enter_context(regular_file(path, follow=True))
        yield file


def _lines(elf: Elf, file: int, addresses: set[int], reader: SourceLines) -> dict[int, Lines]:
    if not addresses or not reader.wanted or not elf.has_debug_information():
        return {}
    base = elf.load_address()
    rows = reader.of(file, (address - base for address in addresses))
    return {
        address + base: tuple(SourceLine(demangle(function), file, line) for function, file, line in found)
        for address, found in rows.items()
    }


def symbol_table(elf: Elf, kind: int) -> Section | None:
    """The table of all symbols or of the dynamic ones, if it has content."""
    table = next(elf.of_type(kind), None)
    return table if table is not None and table.nbytes else None


def _names(elf: Elf, addresses: set[int], budget: _Budget) -> dict[int, Name]:
    """One pass over each symbol table for all addresses."""
    found: dict[int, Name] = {}
    for kind in (SYMBOLS, DYNAMIC_SYMBOLS):
        table = symbol_table(elf, kind)
        left = sorted(addresses - {a for a, n in found.items() if n.found == "exact"})
        if table is None or not left:
            continue
        content = elf.content(table)
        if not budget.take(content.nbytes):
            raise _TooLarge
        for address, (offset, how) in _best(content, left).items():
            name = elf.string_of(table, offset)
            if name and (how == "exact" or address not in found):
                found[address] = Name(demangle(name), how)
    return found


def _symbols(table: Window) -> Iterator[tuple[int, int, int, int, int, int]]:
    for start in range(0, table.nbytes, _AT_ONCE):
        part = table.read(start, _AT_ONCE)
        yield from _SYMBOL.iter_unpack(part[: len(part) // _SYMBOL.size * _SYMBOL.size])


def _best(symbols: Window, addresses: list[int]) -> dict[int, tuple[int, str]]:
    """For each address (sorted) the offset of its symbol's name: the smallest symbol that covers it.

    A symbol without a size (hand-written assembly) may reach up to the next symbol, and is a guess.
    """
    covering: dict[int, tuple[int, bool, int]] = {}  # by address: size, not global, name
    before: dict[int, tuple[int, int, int]] = {}  # by the first address behind it: start, size, name
    last, count = addresses[-1], len(addresses)
    for name, info, _, section, value, size in _symbols(symbols):
        if value > last or not section or info & 15 not in _FUNCTIONS:
            continue
        at = bisect_left(addresses, value)
        known = before.get(addresses[at])
        if known is None or (value, size) > known[:2]:
            before[addresses[at]] = (value, size, name)
        end = value + size
        while at < count and addresses[at] < end:
            candidate = (size, info >> 4 != 1, name)
            if addresses[at] not in covering or candidate < covering[addresses[at]]:
                covering[addresses[at]] = candidate
            at += 1
    found = {a: (name, "exact") for a, (_, _, name) in covering.items()}
    nearest: tuple[int, int, int] | None = None
    for address in addresses:
        nearest = before.get(address, nearest)
        if address not in found and nearest is not None and nearest[1] == 0 and address - nearest[0] < _LONGEST_GUESS:
            found[address] = (nearest[2], "guessed")
    return found
