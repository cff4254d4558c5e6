"""A class number beyond the outputs of a model: markers, shifted numbers, and numbers that are no classes."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.tensors.last_layers import counted_before, last_layer
from pytracer.analyze.evidence.failing.tensors.shifted_labels import (
    Marker,
    Shift,
    barely_above,
    takes_zero,
    what_makes,
    without_casts,
)
from pytracer.analyze.evidence.slicing.batch_items import batch_item
from pytracer.analyze.evidence.syntax.calls import argument_at

_VALUES = Pattern(r", (-?\d+)\.\.(-?\d+)$")
_WHITE = (254, 255)  # of a picture with 8 bits


def label_beyond(at: FailingLine, label: int) -> str | None:
    """Of `Target 7 is out of bounds`."""
    output = next(
        (name for name, shape in at.shapes.items() if len(shape.sizes) > 1 and not _VALUES.search(at.values[name])),
        None,
    )
    call = at.only(ast.Call)
    computed = call.args[0] if call is not None and call.args and isinstance(call.args[0], ast.Call) else None
    classes = at.shapes[output].sizes[1] if output is not None else None
    goal = next((name for name, value in at.values.items() if name in at.names and _VALUES.search(value)), None)
    span = _span(at, goal)
    told = f"`{goal}`{at.came(goal)} is {span[0]} to {span[1]}" if goal is not None and span is not None else None
    if computed is not None:  # a variable with two dimensions is what it was computed from
        if told is None or span is None:
            return None
        has = f"{told}, and `{source(computed)}` has no class {label}"
        return f"{has}{_change(at, call, label, None, span)}"
    if output is None or classes is None:
        return None
    told = told or f"the target has {label}"
    has = f"`{output}`{last_layer(at, output)} has {classes} classes, 0 to {classes - 1}, and {told}"
    counted = counted_before(at, output, classes, span[1] if span is not None else label)
    if counted is not None:
        return f"{has}: {counted}"
    if span is not None and span[0] >= 1 and span[1] == classes:
        more = f"if class 0 is real, the last layer needs {classes + 1} outputs"
        return f"{has}: if its numbers begin at 1, subtract 1; {more}."
    return f"{has}{_change(at, call, label, classes, span)}"


def _span(at: FailingLine, goal: str | None) -> tuple[int, int] | None:
    found = _VALUES.search(at.values.get(goal or "", ""))
    return (int(found[1]), int(found[2])) if found is not None else None


def _change(at: FailingLine, call: ast.Call | None, label: int, classes: int | None, span: Sequence[int] | None) -> str:
    """The end of the sentence: why such a number may be there, and what to do about it."""
    target = argument_at(call, 1, "target") if call is not None else None
    if label < 0:
        made = what_makes(at, target, label) if target is not None else None
        marks = f"pass ignore_index={label} to the loss"
        if isinstance(made, Marker):
            return (
                f": `{made.text}` ({at.place(made.spot, made.line)}) writes it, as a marker. To ignore those, {marks}."
            )
        found = _of_shift(at, made, label) if made is not None else None
        return found or f". If {label} marks what to ignore, {marks}; if not, correct what makes it: it is no class."
    last = classes - 1 if classes is not None else None
    to = f"0 .. {last}" if last is not None else "the classes that it has, from 0 on"
    if label in _WHITE:
        white = f"a grey level of a mask, to be mapped to {to} where it is read" if last is not None else "a grey level"
        return (
            f": either a marker of what to ignore, for which the loss takes ignore_index={label}, or {white}"
            f"{_read_at(at, target)} (torch.unique() of the target shows which)."
        )
    most = max(label, span[1]) if span is not None else label
    if classes is not None and most > classes:
        return (
            f". Print torch.unique() of the target: numbers with gaps (grey levels of a mask, ids of a data set) need "
            f"a table that maps them to {to}, where they are read{_read_at(at, target)}. If 0 to {most} are all "
            f"classes, give the last layer {most + 1} outputs."
        )
    return f": give the last layer {most + 1} outputs, or map the labels to {to}."


def _read_at(at: FailingLine, target: ast.AST | None) -> str:
    """`` (line 66: `mask = read(path)`) ``, of a part of a batch: in its data set."""
    spot = at.slice.spot(0)
    item = batch_item(at.slice, target, spot) if target is not None and spot is not None else None
    if item is None:
        return ""
    made = at.slice.made(without_casts(item.made.node), item.made.spot, calls=False)
    return f" ({at.place(made.spot, made.line)}: `{short(ast.unparse(made.node))}`)"


def _of_shift(at: FailingLine, shift: Shift, label: int) -> str | None:
    """Where the program itself subtracts a number from the labels."""
    text, place = shift.text, at.place(shift.spot, shift.line)
    barely = barely_above(at, shift) if label + shift.by == 0 else None
    if barely is not None:
        same = (barely.spot.file, barely.line) == (shift.spot.file, shift.line)
        return (
            f": `{text}` ({place}) most likely makes it of a float barely above 0, as interpolation leaves them, for "
            f"which `{barely.text}`{'' if same else f' ({at.place(barely.spot, barely.line)})'} holds. Round first "
            f"(`{source(barely.compared)}.round()`), and resize labels by nearest neighbour. If -1 was there before, "
            "pass ignore_index=-1."
        )
    if not takes_zero(at, shift):
        return None
    begin = f": `{text}` ({place}) makes it of a {label + shift.by}"
    return (
        f"{begin}. Where that is no class (background, not labelled), pass ignore_index={label} to the loss; where "
        "it is one, leave the subtraction out: class numbers begin at 0."
    )
