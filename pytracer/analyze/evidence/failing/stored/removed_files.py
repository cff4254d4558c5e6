"""A file that is gone, where the program itself removes files of its folder, or by the path that the line makes."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.processes.made_by_one import guard_of, paths_of, rank_of
from pytracer.analyze.evidence.failing.stored.kept_paths import KeptPath, kept_paths, own_measure
from pytracer.analyze.evidence.failing.stored.paths import path_parts
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import each_set
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import Loop, loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import one_rank_number, one_rank_words
from pytracer.analyze.evidence.syntax.scopes import class_around, scope_of, spans

_OF_OS = frozenset({"remove", "unlink", "replace", "rename", "renames", "move"})
_MODULES = ("os", "shutil")
_OF_PATH = frozenset({"unlink", "rename", "replace"})
_LISTED = ("glob", "rglob", "iglob", "iterdir")
_UNKNOWN = Pattern(r"\{.*? \d+ \d+\}")  # as path_parts writes what the source does not show
_MOST_CALLERS = 4
_FIRST_IS_ZERO = ("range", "enumerate")


class _Way(msgspec.Struct, frozen=True):
    """`guard`: the `if` by which one rank alone comes there. `loop`: of the stack, around the removal and the line."""

    guard: tuple[Spot, ast.If] | None
    loop: tuple[Spot, Loop] | None


class _Removal(msgspec.Struct, frozen=True):
    """`kept`: the list of an object that the removed path is taken from."""

    call: ast.Call
    spot: Spot
    way: _Way
    kept: KeptPath | None


def removed_file(at: FailingLine) -> str | None:
    """What to change, at the only line that removes such files."""
    found = _removal(at)
    if found is None:
        return None
    again = f"let line {at.line} make the file again when it is gone"
    said = capital(f"{_removes(at, found)}.{_round(at, found)}")
    if found.way.guard is None:
        return (
            f"{said} See whether it had removed this one, or whether that was never written: list the folder before "
            f"and after that line. Remove only what nothing reads any more, or {again}."
        )
    chosen = own_measure(at, found.kept) if found.kept is not None else None
    if chosen is not None and found.kept is not None:
        place = at.place(found.kept.spot, found.kept.spot.line)
        return (
            f"{said} Each rank keeps `{found.kept.name}` ({place}) by its own `{chosen}`, which no collective makes "
            "the same on all ranks, so that they choose different files. Make it the same before (dist.all_reduce of "
            f"`{chosen}`), or let rank 0 choose and broadcast the path (dist.broadcast_object_list)."
        )
    return (
        f"{said} Do not remove what other ranks may still read: gather the files that all ranks use before "
        f"(dist.all_gather_object), give each rank its own folder, or {again}."
    )


def removed_subject(at: FailingLine) -> str | None:
    """For the headline: what the program does there; whether it met this file is not recorded."""
    found = _removal(at)
    if found is None:
        return None
    chosen = own_measure(at, found.kept) if found.way.guard is not None and found.kept is not None else None
    own = f"; each rank keeps files by its own `{chosen}`" if chosen is not None else ""
    return f"{_removes(at, found)}{own}"


def _removes(at: FailingLine, found: _Removal) -> str:
    line = at.place(found.spot, found.call.lineno)
    below = ""
    if found.way.guard is not None:
        spot, guard = found.way.guard
        who, here = one_rank_words(guard.test), at.place(spot, guard.lineno)
        below = f", below `if {source(guard.test)}:` ({here}: {who} alone comes there)"
    return f"{line} (`{short(ast.unparse(found.call))}`) removes files of that folder{below}"


def _round(at: FailingLine, found: _Removal) -> str:
    """`` `epoch` was 1 (line 79): an earlier round may have removed it.``, where that was recorded."""
    if found.way.loop is None:
        return ""
    spot, loop = found.way.loop
    if isinstance(loop, ast.While) or spot.depth is None or not isinstance(loop.iter, ast.Call):
        return ""
    counted = called_name(loop.iter) in _FIRST_IS_ZERO and len(loop.iter.args) == 1 and not loop.iter.keywords
    first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else loop.target
    value = at.value_at(first, spot) if counted else None
    if value is None or not value.isdecimal() or int(value) == 0:
        return ""
    here = at.place(spot, loop.lineno)
    return f" `{source(first)}` was {value} ({here}): an earlier round may have removed it."


def _removal(at: FailingLine) -> _Removal | None:
    """The only call that removes files of the missing one's folder and can have come before."""
    path, folder, part = (at.values.get(name) for name in ("file", "file folder", "file missing part"))
    spot = at.slice.spot(0)
    if at.kind != "FileNotFoundError" or None in (path, folder, part) or at.node is None or spot is None:
        return None
    if path is None or folder is None or os.path.basename(path) != part:  # a folder above it is missing
        return None
    opened = [item for item, writes in paths_of(at.node) if not writes]
    known = ((_parts(at, item, spot), *_kept_parts(at, item, spot), *_set_parts(at, item)) for item in opened)
    read = [parts for item in known for parts in item if parts]
    found: list[_Removal] = []
    for file, tree in at.files.items() if read else ():
        for call in (item for item in nodes_of(tree) if isinstance(item, ast.Call)):
            removed = _removed_path(call)
            if removed is None or (file == at.frame.file and spans(call, at.line)):
                continue
            place = Spot(file, tree, scope_of(tree, call.lineno), call.lineno)
            ways = targets(at, removed, place)
            if not any(_is_of(parts, own, part) for parts in ways for own in read):
                continue
            way = _way(at, place, _MOST_CALLERS)
            if way is not None:
                stored = kept_paths(at, removed, place)
                kept = next((item for item in stored if len(_parts(at, item.path, item.spot)) > 1), None)
                found.append(_Removal(call, place, way, kept))
    if len(found) != 1 or (found[0].way.guard is not None and rank_of(at) is None):
        return None
    return msgspec.structs.replace(found[0], way=_as_own(at, found[0].way))


def _as_own(at: FailingLine, way: _Way) -> _Way:
    """Without the `if` by which one rank alone comes there, on that rank."""
    own = way.guard is not None and rank_of(at) == (one_rank_number(way.guard[1].test) or 0)
    return msgspec.structs.replace(way, guard=None) if own else way


def _removed_path(call: ast.Call) -> ast.expr | None:
    """Of os.remove(path), path.unlink(), os.replace(path, other)."""
    function = call.func
    if isinstance(function, ast.Name):
        return call.args[0] if function.id in ("remove", "unlink") and call.args else None
    if not isinstance(function, ast.Attribute):
        return None
    if isinstance(function.value, ast.Name) and function.value.id in _MODULES:
        return call.args[0] if function.attr in _OF_OS and call.args else None
    one = function.attr == "unlink" or (len(call.args) == 1 and not call.keywords)  # str.replace() has two
    return function.value if function.attr in _OF_PATH and one else None


def _parts(at: FailingLine, node: ast.expr, spot: Spot) -> tuple[str, ...]:
    """Also of a path that a function of the program makes."""
    made = at.slice.made(node, spot, calls=True)
    return path_parts(at.slice, made.node, made.spot)


def _kept_parts(at: FailingLine, node: ast.expr, spot: Spot) -> Iterator[tuple[str, ...]]:
    """Of an item of a list: the paths that are stored there, where the source shows more than a name."""
    for item in kept_paths(at, node, spot):
        parts = _parts(at, item.path, item.spot)
        if len(parts) > 1:
            yield parts


def _set_parts(at: FailingLine, node: ast.expr) -> Iterator[tuple[str, ...]]:
    """Of an attribute: the paths that its class sets it to, where the source shows more than a name.

    Of `self` that is the class around the line; of another object the only one that sets an attribute of that name.
    """
    if not isinstance(node, ast.Attribute):
        return
    found = [
        (value, Spot(file, tree, scope_of(tree, item.lineno), item.lineno))
        for file, tree in at.files.items()
        for item in (part for part in nodes_of(tree) if isinstance(part, ast.Assign))
        for target, value in each_set(item.targets, item.value)
        if isinstance(target, ast.Attribute) and target.attr == node.attr
    ]
    owners = [class_around(spot.tree, spot.scope) for _, spot in found]
    own = class_around(at.tree, at.scope) if ast.unparse(node.value) == "self" else next(iter(owners), None)
    if ast.unparse(node.value) != "self" and any(item is not own for item in owners):
        return
    for (value, spot), owner in zip(found, owners, strict=True):
        parts = _parts(at, value, spot) if owner is own else ()
        if len(parts) > 1:
            yield parts


def targets(at: FailingLine, node: ast.expr, spot: Spot) -> Iterator[tuple[str, ...]]:
    """The path, or what a loop over the files of a folder gives."""
    yield _parts(at, node, spot)
    yield from _kept_parts(at, node, spot)
    if not isinstance(node, ast.Name):
        return
    for loop in loops_around(spot.tree, spot.line):
        if isinstance(loop, ast.While) or not isinstance(loop.target, ast.Name) or loop.target.id != node.id:
            continue
        names = [item for item in nodes_of(loop.iter) if isinstance(item, ast.Name)]
        for item in (loop.iter, *(at.slice.made(name, spot, calls=False).node for name in names)):
            calls = (part for part in nodes_of(item) if isinstance(part, ast.Call))
            yield from (_listed(at, call, spot) for call in calls if called_name(call) in _LISTED)


def _listed(at: FailingLine, call: ast.Call, spot: Spot) -> tuple[str, ...]:
    """`folder/*.pt` of `folder.glob("*.pt")` and of `glob.glob(join(folder, "*.pt"))`."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    first = call.args[0] if call.args else None
    if owner is None or (isinstance(owner, ast.Name) and owner.id == "glob"):
        return _parts(at, first, spot) if first is not None else ()
    pattern = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else "*"
    return (*_parts(at, owner, spot), pattern)


def _is_of(removed: tuple[str, ...], read: tuple[str, ...], name: str | None) -> bool:
    """Whether a removed path lies in the folder of the one that is read, and can have its name."""
    if not removed or name is None or removed[:-1] != read[:-1]:
        return False
    if len(read) == 1 and removed != read:  # nothing is known of the folder
        return False
    return _fits(removed[-1], name)


def may_be(parts: tuple[str, ...], name: str) -> bool:
    """Whether a path can end so, of which more is known than that it has a name."""
    return bool(parts) and any(_UNKNOWN.split(parts[-1])) and _fits(parts[-1], name)


def _fits(told: str, name: str) -> bool:
    known = _UNKNOWN.split(told)
    pattern = ".+".join(".*".join(map(re.escape, text.split("*"))) for text in known)
    return re.fullmatch(pattern, name) is not None


def _way(at: FailingLine, spot: Spot, left: int) -> _Way | None:
    """Outwards by the calls of each function to one of the stack that came there before the line; None for none."""
    guard = guard_of(spot.tree, spot.line)
    own = (spot, guard) if guard is not None else None
    stack = [at.slice.spot(depth) for depth in range(len(at.frames))]
    inside = next((item for item in stack if item is not None and item.scope is spot.scope), None)
    if inside is not None:
        both = [item for item in loops_around(spot.tree, spot.line) if spans(item, inside.line)]
        loop = (inside, both[0]) if both else None
        return _Way(own, loop) if spot.line < inside.line or both else None
    name, ways = getattr(spot.scope, "name", None), list[_Way]()
    for file, tree in at.files.items() if left and name is not None else ():
        for call in nodes_of(tree):
            if isinstance(call, ast.Call) and called_name(call) == name:
                way = _way(at, Spot(file, tree, scope_of(tree, call.lineno), call.lineno), left - 1)
                ways += [_Way(own or way.guard, way.loop)] if way is not None else []
    return next((way for way in ways if way.guard is None), next(iter(ways), None))
