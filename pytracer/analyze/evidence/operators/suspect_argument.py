"""An argument of the running line that looks wrong by itself: an index beyond everything, a negative size.

It is a suspect, not a proof: what a number means to a function is not known here. So only what stands out is named: of
tensors of integers, values beyond the elements of all tensors of the line; of whole numbers, those that no size can be,
unless they are addresses of memory that was there: a handle of native code.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.address_space.regions import mapping_at
from pytracer.analyze.evidence.lifetime.variables import plain_expression, program_frames
from pytracer.analyze.evidence.operators.line_tensors import line_tensors
from pytracer.analyze.evidence.operators.operator import find_operator, is_of_torch, shape_words
from pytracer.analyze.evidence.syntax.fresh_arrays import is_unset
from pytracer.analyze.evidence.syntax.lines import names_of_line
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_ITEM = Pattern(r"\[\d+\]$")
_LEAST_LARGE = 1 << 16  # smaller numbers than that may be seeds, flags or steps
_LEAST_ADDRESS = 1 << 32  # less may be a size, though an executable of a fixed address has memory there


class Suspect(msgspec.Struct, frozen=True):
    """`name`: `` `edge_ids` [3] int64 ``; `what`: it holds 5005, and no tensor there has more than 40 elements."""

    name: str
    what: str
    line: int

    @property
    def advice(self) -> str:
        """What to look at first."""
        return f"Check {self.name} first, which line {self.line} passes: {self.what}."


def suspect_argument(view: ProcessView, *, zero: bool = False) -> Suspect | None:
    """The one that stands out most; None where none does, or several do alike. `zero`: also numbers that are 0."""
    frame = next(iter(program_frames(view)), None)
    operator = find_operator(view)
    if frame is None or frame.line is None or (operator is not None and not is_of_torch(operator)):
        return None
    for found in (_zeros(view, frame.line) if zero else (), _indices(view, frame.line), _numbers(view, frame.line)):
        suspects = {item.name: item for item in found}
        if suspects:
            return next(iter(suspects.values())) if len(suspects) == 1 else None
    return None


def _indices(view: ProcessView, line: int) -> Iterator[Suspect]:
    tensors = [item for item in line_tensors(view) if item.name is not None]
    others = [item.item.elements for item in tensors if not item.item.is_integer]
    most = max(others, default=None)
    frame = program_frames(view)[0]
    tree = syntax_tree(view.process.snapshot, frame)
    for item in tensors:
        if tree is not None and is_unset(tree, item.name or "", line):
            continue  # what its memory held before, until the function writes there
        tensor, name = item.item, f"`{item.name}` {shape_words(item.item)} {item.item.dtype}"
        if not tensor.is_integer or tensor.minimum is None or tensor.maximum is None or most is None:
            continue
        if tensor.maximum > most:
            yield Suspect(name, f"it holds {tensor.maximum}, and no tensor there has more than {most} elements", line)
        elif tensor.minimum < -most:
            yield Suspect(name, f"it holds {tensor.minimum}, and no tensor there has more than {most} elements", line)


def _held(view: ProcessView, line: int) -> Iterator[tuple[str, str, int]]:
    """Whole numbers that the line passes: the variable, the expression and the value."""
    frame = program_frames(view)[0]
    tree = syntax_tree(view.process.snapshot, frame)
    names = names_of_line(tree, line) if tree is not None else []
    for item in view.crash.numbers if view.crash is not None else ():
        at = item.frame
        if (at.file, at.function, at.line) != (frame.file, frame.function, frame.line):
            continue
        expression = plain_expression(item.expression)
        if _ITEM.sub("", expression) in names:
            yield _ITEM.sub("", expression), expression, item.value


def _zeros(view: ProcessView, line: int) -> Iterator[Suspect]:
    for name, expression, value in _held(view, line):
        if value == 0:
            yield Suspect(f"`{name}`", "it is 0" if name == expression else f"`{expression}` is 0", line)


def _numbers(view: ProcessView, line: int) -> Iterator[Suspect]:
    most = max((item.item.elements for item in line_tensors(view)), default=0)
    for name, expression, value in _held(view, line):
        if (value > max(most, _LEAST_LARGE) and not _is_address(view, value)) or value < 0:
            yield Suspect(f"`{name}`", f"{'it' if name == expression else f'`{expression}`'} is {value}", line)


def _is_address(view: ProcessView, value: int) -> bool:
    """Whether memory that the process could read lay there: `lib.reader_open()` returned it, most likely."""
    mapping = mapping_at(view.crash.mappings, value) if view.crash is not None and value >= _LEAST_ADDRESS else None
    return mapping is not None and mapping.permissions.startswith("r")
