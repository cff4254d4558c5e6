"""The program's lines that make integers of 32 bits of floats, which turn NaN into -2**31 without an error."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._text import list_words
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.conversions import integer_operand, makes_32_bits
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import ProcessView

SMALLEST_32, SMALLEST_64 = -(1 << 31), -(1 << 63)  # x86: cvttss2si, cvttsd2si
_MOST = 2


def narrowing_lines(view: ProcessView, value: int) -> str | None:
    """``line 109 (`sheet.to(torch.int32)`)``; None of another number, and where several lines may have made it.

    Args:
        view: The process.
        value: An index.
    """
    frames = program_frames(view)
    if value not in (SMALLEST_32, SMALLEST_64) or not frames:
        return None
    found: dict[tuple[str, int], str] = {}
    for file, tree in program_files(view.process.snapshot, frames).items():
        for call in _conversions(tree, narrow=value == SMALLEST_32):
            found.setdefault((file, call.lineno), source(call))
    if not 0 < len(found) <= _MOST:
        return None
    here = frames[0].file
    words = [f"{line_in(file, line, here)} (`{text}`)" for (file, line), text in found.items()]
    return list_words(words, conjunction="or")


def _conversions(tree: ast.Module, *, narrow: bool) -> Iterator[ast.Call]:
    for item in nodes_of(tree):
        if isinstance(item, ast.Call) and integer_operand(item) is not None and makes_32_bits(item) is narrow:
            yield item
