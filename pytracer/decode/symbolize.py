"""Native addresses to function names, from the ELF symbols of the images on this machine.

A name is given only for the image that was loaded (same build id, when one was recorded) and only when the address
lies inside the symbol. Stripped functions have no name; that is said by leaving it out. Names that were found can be
stored beside the run (`write_symbols`), so that it can be read on a machine without those images.
"""

from __future__ import annotations

import json
import os
import stat
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from elftools.elf.elffile import ELFFile

from pytracer.decode.demangle import demangle
from pytracer.decode.snapshot import Crash, Damage, Job, NativeFrame, Snapshot

SYMBOLS_FILE = "symbols.json"
DEBUG_FILES = Path("/usr/lib/debug/.build-id")
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
_FUNCTIONS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_LARGEST_TABLE = 1 << 30
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
    for key, places in wanted.items():
        found, problem = _look_up(*key, places)
        names.update(found)
        if problem:
            problems[key] = Damage(os.path.basename(key[0]), 0, problem)
    return [_filled(s, names, problems) for s in snapshots]


def read_symbols(path: Path, damage: list[Damage]) -> dict[str, str]:
    """The names stored by `write_symbols`; empty when there are none. Trouble is added to `damage`."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
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
    """
    target = Path(path)
    names: dict[str, str] = {}
    for process in job.processes:
        for frame in _frames(_written(process.snapshot)):
            if frame.function and frame.build_id and frame.offset is not None and frame.function_found == "exact":
                names[f"{frame.build_id}:{frame.offset:#x}"] = frame.function
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    aside.write_text(json.dumps(names, indent=1, sort_keys=True) + "\n")
    aside.replace(target)
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


def _look_up(image: str, build_id: str | None, places: Iterable[_Place]) -> tuple[dict[_Place, Name], str | None]:
    """Names for places of one image, and what is wrong with the image, if anything."""
    if not image.startswith("/"):
        return {}, None
    try:
        # A box may name anything as an image: a pipe or a device must not be opened.
        if not stat.S_ISREG(os.stat(image).st_mode):
            return {}, None
        with open(image, "rb") as file:
            elf = ELFFile(file)
            if elf.elfclass != 64 or not elf.little_endian:
                return {}, None
            here = build_id_of(elf)
            if build_id is not None and here != build_id:
                return {}, f"{image} is not the image that was loaded (build id {here}, recorded {build_id}): no names"
            addresses = {p: _address(elf, p) for p in places}
            found = _names(elf, {a for a in addresses.values() if a is not None})
            found |= _debug_names(here, {a for a in addresses.values() if a is not None and a not in found})
            return {p: found[a] for p, a in addresses.items() if a in found}, None
    except FileNotFoundError:
        return {}, None
    except OSError as error:
        return {}, f"{image} cannot be read: {error.strerror}"
    except Exception as error:
        # pyelftools 0.32 raises its own errors, AttributeError, TypeError, AssertionError and more on a damaged image
        # (test_damaged_images_never_raise); each of them costs the names of this image, and is told.
        return {}, f"{image} has symbols that cannot be read: {type(error).__name__} {error}"


def _debug_names(build_id: str | None, addresses: set[int]) -> dict[int, Name]:
    """Names from the separate debug file of an image, where a distribution's debug package has installed it."""
    if build_id is None or not addresses:
        return {}
    path = DEBUG_FILES / build_id[:2] / f"{build_id[2:]}.debug"
    if not path.is_file():
        return {}
    with path.open("rb") as file:
        elf = ELFFile(file)
        return _names(elf, addresses) if build_id_of(elf) == build_id else {}


def build_id_of(elf: Any) -> str | None:
    """The GNU build id of an open image, as hexadecimal digits."""
    section = elf.get_section_by_name(".note.gnu.build-id")
    if section is None:
        return None
    for note in section.iter_notes():
        if note["n_type"] == "NT_GNU_BUILD_ID":
            return str(note["n_desc"])
    return None


def _address(elf: Any, place: _Place) -> int | None:
    """The ELF virtual address; an offset in the file is moved by the segment that maps it."""
    if not place.offset_is_file:
        return place.offset
    for segment in elf.iter_segments():
        if segment["p_type"] == "PT_LOAD" and 0 <= place.offset - segment["p_offset"] < segment["p_filesz"]:
            return int(place.offset - segment["p_offset"] + segment["p_vaddr"])
    return None


def _names(elf: Any, addresses: set[int]) -> dict[int, Name]:
    """One pass over each symbol table for all addresses."""
    found: dict[int, Name] = {}
    for table in (".symtab", ".dynsym"):
        section = elf.get_section_by_name(table)
        left = sorted(addresses - {a for a, n in found.items() if n.found == "exact"})
        if section is None or not left or section["sh_type"] == "SHT_NOBITS":
            continue
        strings = elf.get_section(section["sh_link"])
        if max(section["sh_size"], strings["sh_size"]) > _LARGEST_TABLE:
            continue
        stream = elf.stream
        stream.seek(section["sh_offset"])
        content = stream.read(section["sh_size"])
        for address, (offset, how) in _best(content[: len(content) // _SYMBOL.size * _SYMBOL.size], left).items():
            stream.seek(strings["sh_offset"] + offset)
            raw = stream.read(min(65536, max(0, strings["sh_size"] - offset)))
            name = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
            if name and (how == "exact" or address not in found):
                found[address] = Name(demangle(name), how)
    return found


def _best(symbols: bytes, addresses: list[int]) -> dict[int, tuple[int, str]]:
    """For each address (sorted) the offset of its symbol's name: the smallest symbol that covers it.

    A symbol without a size (hand-written assembly) may reach up to the next symbol, and is a guess.
    """
    covering: dict[int, tuple[int, bool, int]] = {}  # by address: size, not global, name
    before: dict[int, tuple[int, int, int]] = {}  # by the first address behind it: start, size, name
    last, count = addresses[-1], len(addresses)
    for name, info, _, section, value, size in _SYMBOL.iter_unpack(symbols):
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


__all__ = ["build_id_of", "read_symbols", "symbolize", "write_symbols"]
