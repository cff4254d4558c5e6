"""A negative number that asks an embedding for a row: a subtraction of a number that was 0, or a marker of labels."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.tensors.shifted_labels import Marker, takes_zero, what_makes

_IGNORED = -100  # what torch's losses ignore


def negative_row(at: FailingLine, low: int) -> str:
    """The end of the sentence: which line makes it, and what to do about it."""
    call = at.only(ast.Call)
    made = what_makes(at, call.args[0], low) if call is not None and call.args else None
    if isinstance(made, Marker):
        line = f" (`{made.text}`, {at.place(made.spot, made.line)})"
        return f", a marker{line}. Give those places a real row (padding_idx) before the lookup; labels may keep it."
    if made is not None and takes_zero(at, made):
        return (
            f": `{made.text}` ({at.place(made.spot, made.line)}) makes it of a {low + made.by}. Where the numbers "
            "begin at 0, leave the subtraction out; where 0 is padding, keep a row for it (padding_idx)."
        )
    if low == _IGNORED:
        return (
            ", the number that losses ignore: it belongs into labels only. Where labels become inputs, put a real row "
            "(that of padding, padding_idx) in its place first."
        )
    return (
        ", and rows count from 0. Look at what makes it: a marker of padding or of unknown needs a row of its own "
        "(padding_idx), and a subtraction, a hash or a search that found nothing is to be corrected there."
    )
