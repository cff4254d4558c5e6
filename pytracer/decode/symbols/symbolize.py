"""Native addresses to function names, from the ELF symbols of the images on this machine.

A name is given only for the image that was loaded (same build id, when one was recorded) and only when the address
lies inside the symbol. Stripped functions have no name; that is said by leaving it out. Names that were found can be
stored beside the run (`write_symbols`), so that it can be read on a machine without those images.
"""

from __future__ import annotations

import json
import os
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from pytracer._private_files import write_private
from pytracer.decode.files import MIB, Refused, Window, read_regular, regular_file
from pytracer.decode.formats.plain_json import load_json
from pytracer.decode.symbols.demangle import demangle
from pytracer.decode.symbols.elf_sections import Elf, NotElf, Section
from pytracer.decode.types.snapshot import Crash, Damage, Job, NativeFrame, Snapshot

SYMBOLS_FILE = "symbols.json"
DEBUG_FILES = Path("/usr/lib/debug/.build-id")
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
SYMBOLS, DYNAMIC_SYMBOLS = 2, 11  # SHT_SYMTAB, SHT_DYNSYM
_FUNCTIONS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_LARGEST_NAMES = 32 * MIB
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
    """Where a frame lies: what has to be looked up."""

    image: str
    build_id: str | None
    offset: int
    offset_is_file: bool


def symbolize(snapshots: Sequence[Snapshot], known: Mapping[str, str] | None = None) -> list[Snapshot]:
    """Fills `NativeFrame.function` of all crashes and endings, in the stacks of all threads.

    Args:
        snapshots: any number; each image is read once for all of them.
        known: names of `symbols.json`, by `"<build id>:<hex offset>"`; they come first.

    Returns:
        The snapshots in the same order. An image that is not the recorded one is noted in their damage.
    """
    names: dict[_Place, Name] = {}
    wanted: dict[tuple[str, str | None], set[_Place]] = {}
    for snapshot in snapshots:
        for place in _places(_written(snapshot)):
            if known and place.build_id and f"{place.build_id}:{place.offset:#x}" in known:
                names[place] = Name(known[f"{place.build_id}:{place.offset:#x}"], "exact")
            else:
                wanted.setdefault((place.image, place.build_id), set()).add(place)
    problems: dict[tuple[str, str | None], Damage] = {}
    budget = _Budget(_TABLES_IN_ALL)
    for key, places in wanted.items():
        found, problem = _look_up(*key, places, budget)
        names.update(found)
        if problem:
            problems[key] = Damage(os.path.basename(key[0]), 0, problem)
    return [_filled(s, names, problems) for s in snapshots]


def read_symbols(path: Path, damage: list[Damage]) -> dict[str, str]:
    """The names stored by `write_symbols`; empty when there are none. Trouble is added to `damage`."""
    try:
        value = load_json(read_regular(path, _LARGEST_NAMES))
    except FileNotFoundError:
        return {}
    except OSError as error:
        damage.append(Damage(path.name, 0, f"cannot be read: {error.strerror}"))
        return {}
    except (ValueError, RecursionError) as error:
        damage.append(Damage(path.name, 0, f"cannot be read: {error}"))
        return {}
    if not isinstance(value, dict):
        damage.append(Damage(path.name, 0, "is not a table of names"))
        return {}
    return {k: v for k, v in value.items() if isinstance(v, str)}


def write_symbols(job: Job, path: str | os.PathLike[str]) -> int:
    """Stores the names of all native frames of a job beside it; returns their number.

    Frames without a build id are left out: nothing would tell whether the name still holds. The file is replaced
    as a whole.

    Raises:
        OSError: it cannot be written.
        RecordingError: the directory is not ours alone.
    """
    target = Path(path)
    names: dict[str, str] = {}
    for process in job.processes:
        for frame in _frames(_written(process.snapshot)):
            if frame.function and frame.build_id and frame.offset is not None and frame.function_found == "exact":
                names[f"{frame.build_id}:{frame.offset:#x}"] = frame.function
    write_private(target, (json.dumps(names, indent=1, sort_keys=True) + "\n").encode())
    return len(names)


def _place(frame: NativeFrame) -> _Place | None:
    if frame.image is None or frame.offset is None or frame.function is not None:
        return None
    return _Place(frame.image, frame.build_id, frame.offset, frame.offset_is_file)


def _written(snapshot: Snapshot) -> Crash | None:
    return snapshot.crash or snapshot.ending


def _frames(crash: Crash | None) -> Iterator[NativeFrame]:
    """The frames of all stacks, the crashed thread's first, and other pointers to code."""
    if crash is not None:
        yield from crash.native_stack
        yield from crash.code_pointers
        for thread in crash.threads:
            yield from thread.native_stack


def _places(crash: Crash | None) -> set[_Place]:
    """What has to be looked up, each once: threads of one pool wait in the same place."""
    return {place for place in map(_place, _frames(crash)) if place is not None}


def _filled(
    snapshot: Snapshot, names: Mapping[_Place, Name], problems: Mapping[tuple[str, str | None], Damage]
) -> Snapshot:
    crash = _written(snapshot)
    if crash is None:
        return snapshot
    places = _places(crash)
    found = {problems[place.image, place.build_id] for place in places if (place.image, place.build_id) in problems}
    damage = dict.fromkeys((*snapshot.damage, *sorted(found, key=lambda item: item.file)))
    crash = replace(
        crash,
        native_stack=_named(crash.native_stack, names),
        code_pointers=_named(crash.code_pointers, names),
        threads=tuple(replace(t, native_stack=_named(t.native_stack, names)) for t in crash.threads),
    )
    snapshot = replace(snapshot, damage=tuple(damage))
    return replace(snapshot, ending=crash) if snapshot.crash is None else replace(snapshot, crash=crash)


def _named(stack: Sequence[NativeFrame], names: Mapping[_Place, Name]) -> tuple[NativeFrame, ...]:
    frames = []
    for frame in stack:
        place = _place(frame)
        name = names.get(place) if place else None
        frames.append(replace(frame, function=name.function, function_found=name.found) if name else frame)
    return tuple(frames)


@dataclass
class _Budget:
    """Bytes of symbol tables that may still be read: a hostile box names any number of images."""

    left: int

    def take(self, nbytes: int) -> bool:
        if nbytes > min(_LARGEST_TABLE, self.left):
            return False
        self.left -= nbytes
        return True


class _TooLarge(Exception):
    """There are more symbols than are looked at."""


def _look_up(
    image: str, build_id: str | None, places: Iterable[_Place], budget: _Budget
) -> tuple[dict[_Place, Name], str | None]:
    """Names for places of one image, and what is wrong with the image, if anything."""
    if not image.startswith("/"):
        return {}, None
    try:
        with regular_file(image, follow=True) as file:
            return _named_places(image, Elf(Window(file)), build_id, places, budget)
    except (FileNotFoundError, NotADirectoryError):
        return {}, None
    except OSError as error:
        if isinstance(error, (Refused, IsADirectoryError)):  # no image of this process: a box may name anything
            return {}, None
        return {}, f"{image} cannot be read: {error.strerror}"
    except _TooLarge:
        return {}, f"{image} has more symbols than are looked at: no names"
    except (NotElf, struct.error, IndexError, ValueError) as error:
        return {}, f"{image} has symbols that cannot be read: {error}"


def _named_places(
    image: str, elf: Elf, build_id: str | None, places: Iterable[_Place], budget: _Budget
) -> tuple[dict[_Place, Name], str | None]:
    here = elf.build_id()
    if build_id is not None and here != build_id:
        return {}, f"{image} is not the image that was loaded (build id {here}, recorded {build_id}): no names"
    addresses = {p: elf.address_of(p.offset) if p.offset_is_file else p.offset for p in places}
    found = _names(elf, {a for a in addresses.values() if a is not None}, budget)
    found |= _debug_names(here, {a for a in addresses.values() if a is not None and a not in found}, budget)
    return {p: found[a] for p, a in addresses.items() if a in found}, None


def _debug_names(build_id: str | None, addresses: set[int], budget: _Budget) -> dict[int, Name]:
    """Names from the separate debug file of an image, where a distribution's debug package has installed it."""
    if build_id is None or not addresses:
        return {}
    path = DEBUG_FILES / build_id[:2] / f"{build_id[2:]}.debug"
    try:
        with regular_file(path, follow=True) as file:
            elf = Elf(Window(file))
            return _names(elf, addresses, budget) if elf.build_id() == build_id else {}
    except OSError:
        return {}


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


__all__ = ["read_symbols", "symbolize", "write_symbols"]
