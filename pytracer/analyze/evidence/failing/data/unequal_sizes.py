"""What to do about samples of unequal sizes, by how they differ: images are made alike, sequences are padded."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_SIZES = Pattern(r"^\[(\d+(?:, \d+)*)\]$")
_IMAGE = Pattern(r"(?i)(?<![a-z])(?:im|img|image|photo|picture|pic|frame|rgb)s?(?![a-z])")
_KEEPS = "keeps it as a list (`lambda batch: tuple(zip(*batch))` where samples are tuples)"
_IMAGE_DIMENSIONS = 3
_CHANNELS = (1, 3, 4)
_LEAST_PIXELS = 8  # of fewer it may be no image
_MOST_LINES = 2


def advice_of_sizes(at: FailingLine, one: str, other: str, part: str) -> str:
    """Which way to join them; the last sentence of what is said of the samples.

    Args:
        at: The line that failed.
        one: A sample's part, `[3, 224, 224]` of a tensor.
        other: The one that does not fit.
        part: What it is called.
    """
    sizes = [_sizes(one), _sizes(other)]
    if _differ_in_channels(*sizes):
        alike = "(Image.open(path).convert('RGB'); of a tensor `x.expand(3, -1, -1)` for one channel, `x[:3]` for four)"
        if _IMAGE.search(part):
            return (
                f"They differ in the number of channels, as gray images and those with colour: make all alike {alike}."
            )
        return (
            f"If these are images, they differ in the number of channels: make all alike {alike}. If that number "
            f"counts objects, give the DataLoader a collate_fn that {_KEEPS}."
        )
    if len({len(item) for item in sizes}) == 1 and len(sizes[0]) >= _IMAGE_DIMENSIONS:
        cut = _cut_lines(at) if max(abs(a - b) for a, b in zip(*sizes, strict=True)) == 1 else ""
        return (
            f"Return one size from the dataset{cut}. Or give the DataLoader a collate_fn that pads it, or one that "
            f"{_KEEPS}, if the model takes a list."
        )
    return f"Give the DataLoader a collate_fn that pads it or {_KEEPS}, or return one size from the dataset."


def _differ_in_channels(one: list[int], other: list[int]) -> bool:
    """`[1, 32, 32]` and `[3, 32, 32]`, channels first or last; `[32, 32]` of an image without that dimension."""
    if len(one) > len(other):
        one, other = other, one
    if len(other) != _IMAGE_DIMENSIONS or len(one) not in (_IMAGE_DIMENSIONS - 1, _IMAGE_DIMENSIONS):
        return False
    if min(sorted(other)[1:]) < _LEAST_PIXELS:
        return False
    for place in (0, -1):
        if other[place] not in _CHANNELS:
            continue
        rest = other[1:] if place == 0 else other[:-1]
        if len(one) < _IMAGE_DIMENSIONS:
            if one == rest:
                return True
        elif one[place] in _CHANNELS and one[place] != other[place] and rest == (one[1:] if place == 0 else one[:-1]):
            return True
    return False


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
