"""The lines of the program that led each of two ranks to its call, and the first at which they differ."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import structs

from pytracer._library_files import is_library_file
from pytracer._text import shortened
from pytracer.analyze.collectives.call_sites import calls_of_group, site_of, stacks_of
from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.evidence.slicing.callers import mentions, only_function
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, qualified_name, scope_of
from pytracer.analyze.evidence.syntax.unbounded import EndlessLoop, head_of
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective, Snapshot
from pytracer.report.job import PythonFrame

_LONGEST = 80  # characters of a quoted line
_DEPTH = 8  # functions
_LIBRARY = "torch"


class Side(msgspec.Struct, frozen=True):
    """A rank, and the lines of its program that led to the call, the outermost first."""

    view: ProcessView
    way: tuple[PythonFrame, ...]
    call: Collective

    @property
    def number(self) -> int:
        """Of the rank."""
        return self.view.process.rank or 0

    @property
    def name(self) -> str:
        """For a sentence: `rank 3`."""
        return f"rank {self.view.process.rank}"


def way_to(view: ProcessView, call: Collective) -> tuple[PythonFrame, ...]:
    """The program's frames, the outermost first; the call's own line alone where the rank did not end in it."""
    at = place_of(call)
    for stack in stacks_of(view):
        own = [frame for frame in stack if not is_library_file(frame.file)]
        if at is None or at in own:
            return tuple(reversed(own))
    return _in_function(next(stacks_of(view), ()), at) if at is not None else ()


def _in_function(stack: Sequence[PythonFrame], at: PythonFrame) -> tuple[PythonFrame, ...]:
    """Of a call that was awaited later in the same function (`work.wait()`), the frames that led there."""
    own = [frame for frame in reversed(stack) if not is_library_file(frame.file)]
    same = [number for number, frame in enumerate(own) if (frame.file, frame.function) == (at.file, at.function)]
    return (*own[: same[-1]], at) if same else (at,)


def completed(one: Side, other: Side) -> tuple[Side, Side]:
    """Of a rank whose stack is not known, with the lines that alone can have led to its function from the other's way.

    `train_epoch(loader)` of main(), which the other one is in, too: no other line of the program names that function.
    """
    return _led_from(one, other), _led_from(other, one)


def aligned(one: Side, other: Side) -> tuple[Side, Side]:
    """Of a rank whose stack is still not known, its one line beside the same function of the other rank."""
    return _beside(one, other), _beside(other, one)


def _led_from(one: Side, other: Side) -> Side:
    frame = one.way[0] if len(one.way) == 1 < len(other.way) else None
    files = program_files(one.view.process.snapshot, other.way[::-1]) if frame is not None else {}
    led: tuple[PythonFrame, ...] = one.way
    for _ in range(_DEPTH if frame is not None else 0):
        inner = led[0]
        if any((item.file, item.function) == (inner.file, inner.function) for item in other.way):
            return one
        outer = _only_caller(files, (inner.function or "").rpartition(".")[2])
        if outer is None:
            return one
        led = (outer, *led)
        same = (at for at, item in enumerate(other.way) if (item.file, item.function) == (outer.file, outer.function))
        if (at := next(same, None)) is not None:
            return structs.replace(one, way=(*other.way[:at], *led))
    return one


def _only_caller(files: Mapping[str, ast.Module], name: str) -> PythonFrame | None:
    """The line that calls the only function of a name, where no other line names it; `self.opt.step()` is torch's."""
    named = [item for item in mentions(files, name) if not _is_of_library(item[1], item[2])]
    if len(named) != 1 or only_function(files, name) is None:
        return None
    file, tree, node = named[0]
    scope = scope_of(tree, node.lineno)
    calls = (item for item in own_nodes(scope) if isinstance(item, ast.Call) and item.func is node)
    if isinstance(scope, ast.Lambda) or next(calls, None) is None:
        return None
    return PythonFrame(file=file, function=qualified_name(tree, scope), line=node.lineno)


def _is_of_library(tree: ast.Module, node: ast.Name | ast.Attribute) -> bool:
    """Whether it is a method of an object of a library: all lines that set the object call an imported class."""
    held = variable(node.value) if isinstance(node, ast.Attribute) else None
    if held is None or held == "self":
        return False
    values = [value for item in nodes_of(tree) for to, value in set_by(item) if variable(to) == held]
    made = [imported_as(tree, item.func) if isinstance(item, ast.Call) else None for item in values]
    return bool(made) and all((origin or "").partition(".")[0] == _LIBRARY for origin in made)


def _beside(one: Side, other: Side) -> Side:
    if len(other.way) != 1 or len(one.way) < 2:
        return one
    single = other.way[0]
    same = (at for at, frame in enumerate(one.way) if (frame.file, frame.function) == (single.file, single.function))
    return structs.replace(one, way=one.way[next(same, 0) :])


def parted(mine: Sequence[PythonFrame], theirs: Sequence[PythonFrame]) -> int | None:
    """The position of the function in which both are, at different lines; or that only one of them is in."""
    for at, (one, other) in enumerate(zip(mine, theirs, strict=False)):
        if (one.file, one.function) != (other.file, other.function) or None in (one.line, other.line):
            return None
        if one.line != other.line:
            return at
    shorter = min(len(mine), len(theirs))
    return shorter if shorter and len(mine) != len(theirs) else None


def quoted(snapshot: Snapshot, frame: PythonFrame, line: int) -> str | None:
    """A line of the frame's file in backticks, cut where it is long; None where it is not known."""
    text = line_text(snapshot, PythonFrame(file=frame.file, line=line, function=frame.function))
    return f"`{shortened(text, _LONGEST)}`" if text is not None else None


def head_words(snapshot: Snapshot, frame: PythonFrame, loop: EndlessLoop) -> str:
    """`` `for step in range(3)` ``: the head of a loop of the frame's file, as it is written where it has one line."""
    text = line_text(snapshot, PythonFrame(file=frame.file, line=loop.lineno, function=frame.function))
    whole = text is not None and text.endswith(":")
    return f"`{shortened(text[:-1], _LONGEST)}`" if text is not None and whole else f"`{head_of(loop)}`"


def in_step(one: Side, other: Side, least: int = 2) -> bool:
    """Whether both called from the same lines before, as far back as both recordings go: at least so many times."""
    sites = [
        {
            item.sequence_nr: site_of(item)
            for item in calls_of_group(side.view, side.call.group)
            if item.sequence_nr < side.call.sequence_nr
        }
        for side in (one, other)
    ]
    both = sites[0].keys() & sites[1].keys()
    same = all(sites[0][number] == sites[1][number] for number in both)
    return one.call.sequence_nr == other.call.sequence_nr and len(both) >= least and same
