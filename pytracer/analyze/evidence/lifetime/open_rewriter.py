"""A line that the process had run when it died: it opened the very file anew that the process has mapped.

`with open(self.path, "wb") as f:` around the failing line, or around a call of its stack, empties the file before what
is mapped of it is written. That the two are one file: by the whole path, by the mapping line's own path, or as the
object's array and its path are made together by each line that makes such an object.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.failing.stored.paths import path_parts
from pytracer.analyze.evidence.lifetime.file_mappers import mapping_calls
from pytracer.analyze.evidence.lifetime.file_writers import creates
from pytracer.analyze.evidence.lifetime.mapped_objects import MappedObjects
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, default_of, own_nodes, scope_of, spans, withs_around
from pytracer.analyze.naming import LineWords
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_QUOTED = 44


class OpenRewriter(msgspec.Struct, frozen=True):
    """`line` opened the file `name` anew, while `array` was mapped there, by `mapped`.

    `option` (`mmap=False`) of the call at `loaded`: what reads the file instead.
    """

    line: LineWords
    name: str
    array: str
    mapped: LineWords
    option: str | None
    loaded: LineWords | None
    is_private: bool

    @property
    def brief(self) -> str:
        """Behind the size that the file has."""
        return f"; {self.line} emptied it while {self.mapped} had it mapped as `{self.array}`"

    @property
    def advice(self) -> str:
        """What to change, and what became of the file."""
        read = f"pass {self.option} at {self.loaded}" if self.option is not None else f"copy `{self.array}` before"
        private = " A private mapping (mode='c') is no copy: its pages go with those of the file." * self.is_private
        return (
            f"Write to another file at {self.line.partition(' (')[0]} and rename it over this one when it is whole "
            f"(os.replace()): what is mapped stays readable then. Or {read}.{private}"
        )


def open_rewriter(view: ProcessView, path: str) -> OpenRewriter | None:
    """None where no such line is around the stack's, or its file may be another one."""
    frames = program_frames(view)
    back, files = Slice(view.process.snapshot, frames), program_files(view.process.snapshot, frames)
    maps = mapping_calls(view, path)
    for depth, frame in enumerate(frames):
        spot = back.spot(depth)
        if spot is None or frame.line is None:
            continue
        for call, given in _opened(spot, frame.line):
            at = msgspec.structs.replace(spot, line=call.lineno)
            for array in _arrays(view, frame):
                if _bound_behind(spot, call, array, frame.line):
                    continue
                mapped = _mapped(MappedObjects(files, maps), back, at, given, array, path, frame.line)
                if mapped is not None:
                    return _found(view, files, call, spot, path, array, mapped)
    return None


def _opened(spot: Spot, line: int) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The calls around a line that make a file anew, each with its path: the innermost `with` first."""
    around = sorted(withs_around(spot.tree, line), key=lambda item: -item.lineno)
    calls = [item.context_expr for part in around for item in part.items]
    calls += [item.value for item in _before(spot, line)]
    for call in calls:
        if not isinstance(call, ast.Call) or called_name(call) != "open":
            continue
        method = isinstance(call.func, ast.Attribute)
        if method and isinstance(call.func, ast.Attribute) and _is_path_mode(call):
            yield call, call.func.value
        elif not method and call.args and creates(call):
            yield call, call.args[0]


def _bound_behind(spot: Spot, call: ast.Call, array: str, line: int) -> bool:
    """Whether a line between the two binds the variable, or sets the attribute: then it was mapped of the new file."""
    names = {array, array.partition(".")[0]}
    return any(
        isinstance(item, (ast.Name, ast.Attribute)) and isinstance(item.ctx, ast.Store) and ast.unparse(item) in names
        for item in own_nodes(spot.scope)
        if call.lineno <= getattr(item, "lineno", 0) <= line
    )


def _is_path_mode(call: ast.Call) -> bool:
    """`path.open("wb")`."""
    given = next((item.value for item in call.keywords if item.arg == "mode"), None) or next(iter(call.args), None)
    return isinstance(given, ast.Constant) and isinstance(given.value, str) and "w" in given.value


def _before(spot: Spot, line: int) -> Iterator[ast.Assign]:
    """`f = open(path, "wb")` in a block that goes on to the line: it ran before that."""
    for node in (spot.scope, *own_nodes(spot.scope)):
        for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            if not isinstance(block, list) or not any(spans(item, line) for item in block):
                continue
            yield from (
                item for item in block if isinstance(item, ast.Assign) and (item.end_lineno or item.lineno) < line
            )


def _arrays(view: ProcessView, frame: PythonFrame) -> list[str]:
    """Variables and attributes of a frame whose arrays lie in the mapping at the fault."""
    mapping = view.place.mapping if view.place is not None else None
    if mapping is None or view.crash is None:
        return []
    return [
        item.expression
        for item in view.crash.arrays
        if (item.frame.file, item.frame.line) == (frame.file, frame.line) and mapping.start <= item.data < mapping.end
    ]


def _mapped(
    objects: MappedObjects, back: Slice, spot: Spot, given: ast.expr, array: str, path: str, line: int
) -> tuple[str, ast.Call] | None:
    """The line that mapped the array, by its file and call, where the path that is opened is the same one."""
    node, at = _settled(back, given, spot)
    root, _, field = array.partition(".")
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == root and field and at.scope is spot.scope:
        owner = class_around(spot.tree, spot.scope) if root == "self" else objects.owner_of(field, node.attr)
        again = objects.setters(owner, field) if owner is not None else set()
        between = (item for item in own_nodes(spot.scope) if isinstance(item, ast.Call))
        if owner is None or any(called_name(item) in again and spot.line <= item.lineno <= line for item in between):
            return None
        return objects.of(owner, field, node.attr)
    if field:
        return None
    made = back.made(ast.parse(array, mode="eval").body, spot, calls=True)
    found = next((item for item in objects.maps if item[1] is made.node), None)
    if found is None or not found[1].args:
        return None
    mapped = path_parts(back, found[1].args[0], made.spot)
    opened = path_parts(back, node, at)
    is_file = "/" + "/".join(opened) == path
    return found if is_file or (mapped == opened and bool(opened)) else None


def _settled(back: Slice, node: ast.expr, spot: Spot) -> tuple[ast.expr, Spot]:
    """`self.path` of `path or self.path`, where the caller on the stack passes no path."""
    for _ in range(4):
        made = back.made(node, spot, calls=False) if isinstance(node, ast.Name) else None
        if made is not None and isinstance(made.node, ast.expr) and made.node is not node:
            if isinstance(made.node, ast.Constant):
                return node, spot
            node, spot = made.node, made.spot
        elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and len(node.values) == 2:
            node = node.values[1] if _is_none(back, node.values[0], spot) else node.values[0]
        elif isinstance(node, ast.IfExp) and (none := _tests_none(node.test)) is not None:
            name, positive = none
            node = node.body if _is_none(back, name, spot) == positive else node.orelse
        elif isinstance(node, ast.Call) and called_name(node) in ("str", "Path", "fspath") and len(node.args) == 1:
            node = node.args[0]
        else:
            break
    return node, spot


def _is_none(back: Slice, node: ast.expr, spot: Spot) -> bool:
    value = back.made(node, spot, calls=False).node
    return isinstance(value, ast.Constant) and value.value is None


def _tests_none(test: ast.expr) -> tuple[ast.expr, bool] | None:
    """`x` and True of `x is None`, False of `x is not None` and of `x`."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
        is_none = test.comparators[0].value is None
        return (test.left, isinstance(test.ops[0], ast.Is)) if is_none else None
    return (test, False) if isinstance(test, ast.Name) else None


def _found(
    view: ProcessView,
    files: dict[str, ast.Module],
    call: ast.Call,
    spot: Spot,
    path: str,
    array: str,
    mapped: tuple[str, ast.Call],
) -> OpenRewriter:
    file, mapper = mapped
    text = line_text(view.process.snapshot, PythonFrame(file=spot.file, line=call.lineno)) or ""
    mapping = view.place.mapping if view.place is not None else None
    option = _option(files[file], mapper)
    loaded = _loaded(view, files, file, mapper) if option is not None else None
    return OpenRewriter(
        place_of(view, spot.file, call.lineno).quoted(shortened(text, _QUOTED)),
        os.path.basename(path),
        array,
        place_of(view, file, mapper.lineno),
        option if loaded is not None else None,
        loaded,
        mapping is not None and mapping.permissions == "rw-p",
    )


def _option(tree: ast.Module, mapper: ast.Call) -> str | None:
    """`mmap=False`, where a parameter that is True by default decides whether the line maps the file or reads it."""
    scope = scope_of(tree, mapper.lineno)
    for item in own_nodes(scope):
        if not isinstance(item, ast.If) or not item.orelse or not isinstance(item.test, ast.Name):
            continue
        default = default_of(scope, item.test.id)
        if any(spans(part, mapper.lineno) for part in item.body) and isinstance(default, ast.Constant):
            return f"{item.test.id}=False" if default.value is True else None
    return None


def _loaded(view: ProcessView, files: dict[str, ast.Module], file: str, mapper: ast.Call) -> LineWords | None:
    """The line of the stack's functions that made the object whose array it is, by that function."""
    name = getattr(scope_of(files[file], mapper.lineno), "name", None)
    for frame in program_frames(view):
        tree = files.get(frame.file or "")
        for array in _arrays(view, frame) if tree is not None and frame.line is not None else ():
            scope = scope_of(tree, frame.line) if tree is not None and frame.line is not None else None
            for item in own_nodes(scope) if scope is not None else ():
                if not isinstance(item, ast.Assign) or item.lineno > (frame.line or 0):
                    continue
                sets = any(variable(target) == array.partition(".")[0] for target in item.targets)
                calls = (part for part in nodes_of(item.value) if isinstance(part, ast.Call))
                if sets and any(called_name(part) == name for part in calls):
                    text = shortened(ast.unparse(item), _QUOTED)
                    return place_of(view, frame.file, item.lineno).quoted(text)
    return None
