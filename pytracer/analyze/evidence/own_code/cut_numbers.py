"""A number that does not fit into the C int by which ctypes passes a Python int: `row * dim` above 2 ** 31.

The function has no argtypes, or they say c_int; C then gets the lower 32 bits.
"""

from __future__ import annotations

import ast
import builtins

import msgspec

from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.declared_functions import NARROW, declares
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArrays
from pytracer.analyze.evidence.own_code.passed_memory import called_by_ctypes
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.platform.instruction import signed32
from pytracer.analyze.view import ProcessView

_NEAR = 1 << 16  # a loop may have gone on from it


class CutNumber(msgspec.Struct, frozen=True):
    """`text`, argument `place` (from 1) of `called` at `line`, is `value`. `declared`: the line of its argtypes."""

    text: str
    value: int
    called: str
    place: int
    line: str
    declared: str | None

    @property
    def clause(self) -> str:
        """Behind the index in a headline."""
        return f"; `{self.text}` is {self.value}, of which a C int keeps the lower 32 bits"

    @property
    def advice(self) -> str:
        """The type that has room for it."""
        at = f"at {self.declared}" if self.declared is not None else f"before {self.line}"
        why = "they say a C int" if self.declared is not None else "without them ctypes passes a Python int as a C int"
        return (
            f"Set `{self.called}.argtypes` {at} with ctypes.c_int64 (or c_long) for argument {self.place} (C must "
            f"take 64 bits, too): {why}, and `{self.text}` = {self.value} needs more than 31 bits."
        )


def cut_number(view: ProcessView, index: int) -> CutNumber | None:
    """The only argument of the failing line whose lower 32 bits are the index."""
    arrays, frame = PassedArrays(view), next(iter(program_frames(view)), None)
    spot = arrays.back.spot(0)
    if spot is None or frame is None or not called_by_ctypes(view):
        return None
    found = []
    for call in (item for item in calls_on(spot.tree, spot.line) if not _is_wrap(item)):
        for place, item in enumerate(call.args):
            value = arrays.number(item, spot) if not isinstance(item, ast.Starred) else None
            if value is None or signed32(value) == value or not _leads_to(signed32(value), index):
                continue
            files = program_files(view.process.snapshot, program_frames(view))
            lines = [*declares(files, called_name(call) or "", "argtypes")]
            kinds = lines[0][2].elts if lines and isinstance(lines[0][2], (ast.List, ast.Tuple)) else []
            if len(lines) > 1 or (lines and (place >= len(kinds) or last_name(kinds[place]) not in NARROW)):
                continue
            at = place_of(view, lines[0][0], lines[0][1]) if lines else None
            found.append(CutNumber(ast.unparse(item), value, ast.unparse(call.func), place + 1, line_words(view), at))
    return found[0] if len(found) == 1 else None


def _leads_to(cut: int, index: int) -> bool:
    """Whether an index is such a number, or follows on it; a small one may be any other number, too."""
    return cut == index or (abs(cut) >= _NEAR and 0 <= index - cut < _NEAR)


def _is_wrap(call: ast.Call) -> bool:
    """Of `ctypes.c_long(x)`, `int(x)`: what it makes is passed, and not `x`."""
    name = called_name(call) or ""
    return name.startswith("c_") or hasattr(builtins, name)
