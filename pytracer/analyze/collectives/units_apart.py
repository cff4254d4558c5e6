"""Ranks that ran different units of FSDP in one forward: the first that did not match, and what decides there.

Each unit gathers its parameters before it runs. Where units have one size, gathers of two different ones match, and the
ranks fail later, in the backward: the names of the units show where they went apart.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer.analyze.collectives.call_sites import numbered_calls, site_of
from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.collectives.skipped_units import SAME_UNITS, skipped_unit_advice
from pytracer.analyze.collectives.ways import Side, quoted
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.calls import method_of
from pytracer.analyze.evidence.slicing.drawn_tests import draw_behind, drawn_words, seed_words
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.draws import Draw
from pytracer.analyze.evidence.syntax.loops import deciding_ifs, last_of, loops_around
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans
from pytracer.analyze.naming import line_in, place_words
from pytracer.analyze.tensors.scopes import unit_step
from pytracer.decode.types.snapshot import Collective, Snapshot
from pytracer.report.job import PythonFrame

_GATHER = "all_gather"


class UnitsApart(msgspec.Struct, frozen=True):
    """`subject`: for the headline; `advice`: what to change; `brief`: the subject without the text of lines."""

    subject: str
    advice: str
    brief: str | None = None


class _Test(msgspec.Struct, frozen=True):
    """An `if` that decides whether a unit runs; `draw`: a number drawn for it; `alone`: no other `if` decides."""

    file: str | None
    node: ast.If
    draw: Draw | None
    alone: bool


def units_apart(one: Side, other: Side) -> UnitsApart | None:
    """Of two ranks, whose calls match up to one in which they are in one function, with different units."""
    calls = [numbered_calls(side.view, side.call.group) for side in (one, other)]
    pair = _first_pair(calls[0], calls[1])
    if pair is None:
        return None
    ran = sorted(zip((one, other), pair, calls, strict=True), key=lambda item: item[0].number)
    windows = [_windows(made) for _, _, made in ran]
    left = _left_out(windows[0], windows[1], ran[0][1], ran[1][1])
    (first, mine, _), (second, theirs, _) = ran if left != 1 else ran[::-1]  # `first` left out what `second` ran
    frame = place_of(theirs)
    if frame is None:
        return None
    if left is None:
        said = f"{first.name} ran {_unit_words(mine)} where {second.name} ran {_unit_words(theirs)}"
    else:
        said = f"{first.name} left out {_unit_words(theirs)}, which {second.name} ran"
    said += f" ({place_words(frame)})" if site_of(mine) == site_of(theirs) else ""
    return _decided(said, second.view.process.snapshot, frame)


def _decided(said: str, snapshot: Snapshot, frame: PythonFrame) -> UnitsApart:
    """With what decides at the line that runs the unit."""
    test = _deciding(snapshot, frame)
    if test is None:
        return UnitsApart(said, f"Find out what decides in {frame.function} which units run. {SAME_UNITS}")
    head = quoted(snapshot, PythonFrame(file=test.file, line=test.node.lineno), test.node.lineno)
    number_of_line = line_in(test.file, test.node.lineno, frame.file)
    line = f"{number_of_line} ({head})"
    if test.draw is None:
        advice = skipped_unit_advice(snapshot, frame, test.node, line, test.file)
        return UnitsApart(f"{said}: {line} decides", advice, f"{said}: {number_of_line} decides")
    number = drawn_words(test.draw, test.file, frame.file)
    seeds = seed_words(program_files(snapshot, [frame]), test.draw, frame.file)
    how = "decides" if test.alone else "may have decided"
    return UnitsApart(
        f"{said}: {line} {how}, by {number}, which each rank draws for itself{seeds}",
        f"Draw {number} alike on all ranks: from a generator of its own with one seed, or on one rank and broadcast. "
        f"Or run the layer in each step, and multiply its result by 0. {SAME_UNITS}",
        f"{said}: {number_of_line} {how} by `{source(test.draw.call)}`, which each rank draws for itself",
    )


def _first_pair(mine: dict[int, Collective], theirs: dict[int, Collective]) -> tuple[Collective, Collective] | None:
    """The first number at which the two are not alike: gathers of two units, called in one function."""
    for number in sorted(mine.keys() & theirs.keys()):
        pair = mine[number], theirs[number]
        if site_of(pair[0]) == site_of(pair[1]) and pair[0].scope == pair[1].scope:
            continue
        units, functions = [_unit(call) for call in pair], [_function(call) for call in pair]
        return pair if None not in units and units[0] != units[1] and functions[0] == functions[1] else None
    return None


def _unit(call: Collective) -> str | None:
    step = unit_step(call.scope)
    return step.unit if step is not None and step.step == _GATHER else None


def _unit_words(call: Collective) -> str:
    return f"`{_unit(call)}`" if _unit(call) else "the root unit"


def _function(call: Collective) -> tuple[str, str] | None:
    site = site_of(call)
    return site[:2] if site is not None else None


def _windows(calls: dict[int, Collective]) -> list[list[Collective]]:
    """Gathers that one function called with nothing between: those of one forward."""
    found: list[list[Collective]] = []
    for number in sorted(calls):
        before = calls.get(number - 1)
        follows = before is not None and _unit(before) is not None and _function(before) == _function(calls[number])
        if _unit(calls[number]) is not None:
            found = found if follows else [*found, []]
            found[-1].append(calls[number])
    return found


def _left_out(
    one: list[list[Collective]], other: list[list[Collective]], mine: Collective, theirs: Collective
) -> int | None:
    """Which of the two ranks left out the other's unit, 0 or 1, where some forward ran that one before its own."""
    found = []
    for rank, windows, own, missed in ((0, one, mine, theirs), (1, other, theirs, mine)):
        after = [_unit(item) for window in windows if own in window for item in window[window.index(own) :]]
        order = [[_unit(item) for item in window] for window in (*one, *other)]
        before = any(_is_before(units, _unit(missed), _unit(own)) for units in order)
        found += [rank] if before and _unit(missed) not in after else []
    return found[0] if len(found) == 1 else None


def _is_before(units: Sequence[str | None], first: str | None, second: str | None) -> bool:
    return first in units and second in units[units.index(first) :]


def _deciding(snapshot: Snapshot, frame: PythonFrame) -> _Test | None:
    """The `if` that draws, or the only one, on the way to a line in its round; or in what the loop goes through."""
    slice_ = Slice(snapshot, [frame])
    spot = slice_.spot(0)
    if spot is None:
        return None
    loops = loops_around(spot.tree, spot.line)
    tests = _tests(slice_, [item for item in _ifs(spot) if not loops or spans(loops[-1], item.lineno)], spot)
    if not tests and loops and isinstance(loops[-1], ast.For):
        tests = _of_iteration(slice_, loops[-1], spot)
    return next((item for item in tests if item.draw is not None), tests[0] if len(tests) == 1 else None)


def _ifs(spot: Spot) -> list[ast.If]:
    return [
        item
        for item, around in deciding_ifs(spot.tree, spot.line)
        if around or not isinstance(last_of(item.body), ast.Raise)
    ]


def _tests(slice_: Slice, found: Sequence[ast.If], spot: Spot) -> list[_Test]:
    return [_Test(spot.file, item, draw_behind(slice_, item, spot), len(found) == 1) for item in found]


def _of_iteration(slice_: Slice, loop: ast.For, spot: Spot) -> list[_Test]:
    """Of the `__iter__` of a class of the program, what decides about its `yield`."""
    made = slice_.made(loop.iter, spot, calls=False)
    owner = slice_.defined(made.node.func, made.spot) if isinstance(made.node, ast.Call) else None
    method = method_of(owner[0], ("__iter__",)) if owner is not None else None
    if owner is None or method is None:
        return []
    lines = [item.lineno for item in own_nodes(method) if isinstance(item, ast.Yield)]
    inside = Spot(owner[1].file, owner[1].tree, method, lines[0] if lines else method.lineno)
    return _tests(slice_, _ifs(inside), inside)
