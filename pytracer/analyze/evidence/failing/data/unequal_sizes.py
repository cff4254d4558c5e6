"""What to do about samples of unequal sizes, by how they differ: images are made alike, sequences are padded."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_SIZES = Pattern(r"^\[(\d+(?:, \d+)*)\]$")
_KEEPS = "keeps it as a list (`lambda batch: tuple(zip(*batch))`)"
_IMAGE_DIMENSIONS = 3
_MOST_LINES = 2


def advice_of_sizes(at: FailingLine, one: str, other: str) -> str:
    """Which way to join them; the last sentence of what is said of the samples.

    Args:
        at: The line that failed.
        one: A sample's part, `[3, 224, 224]` of a tensor.
        other: The one that does not fit.
    """
    sizes = [_sizes(one), _sizes(other)]
    if len({len(item) for item in sizes}) == 1 and len(sizes[0]) >= _IMAGE_DIMENSIONS:
        cut = _cut_lines(at) if max(abs(a - b) for a, b in zip(*sizes, strict=True)) == 1 else ""
        return (
            f"Return one size from the dataset{cut}. Or give the DataLoader a collate_fn that pads it, or one that "
            f"{_KEEPS}, if the model takes a list."
        )
    return f"Give the DataLoader a collate_fn that pads it or {_KEEPS}, or return one size from the dataset."


def _sizes(text: str) -> list[int]:
    found = _SIZES.match(text)
    return [int(item) for item in found[1].split(", ")] if found is not None else []


def _cut_lines(at: FailingLine) -> str:
    """`` : they differ by 1, and line 19 cuts off what is behind the point (`int(h * factor)`): round() it ``."""
    found = [
        (file, item.lineno, source(item))
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Name) and item.func.id == "int" and item.args
        if isinstance(item.args[0], ast.BinOp) and isinstance(item.args[0].op, (ast.Mult, ast.Div))
    ]
    lines = dict.fromkeys(at.in_file(file, line) for file, line, _ in found)
    if not 0 < len(lines) <= _MOST_LINES:
        return ""
    return (
        f": they differ by 1, and {list_words([*lines])} (`{found[0][2]}`) may cut a size to 1 less than meant: use "
        "round() there"
    )
