"""The last batch of a DataLoader, which is smaller: which loader it is, and the line that made it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_LOADER = re.compile(r"DataLoader, batch_size=(\d+), drop_last=False, (\d+) samples$")
_ONE_VALUE = re.compile(r"Expected more than 1 value per channel when training, got input size torch\.Size\(\[1, (\d+)")
_WORDS_OF_LOOP = (ast.For, ast.AsyncFor)


def last_batch_of_one(at: FailingLine) -> str | None:
    """BatchNorm in training with one sample left over."""
    if _ONE_VALUE.search(at.message) is None:
        return None
    layer = f"`{at.layer.name}` ({at.layer.kind})" if at.layer is not None else "BatchNorm"
    found = last_batch(at, 1)
    if found is not None:
        return f"{layer} was given a batch of one sample, and in training needs more: {found}."
    return None


def last_batch(at: FailingLine, size: int, full: int | None = None) -> str | None:
    """`` the last batch of `train` has 1 sample (961 in batches of 32), ... ``, of a loop of the stack.

    `full`: the batch size that another tensor was made for.
    """
    for name, value, depth in _looped(at):
        found = _LOADER.match(value)
        if found is None or size != int(found[2]) % int(found[1]) or full not in (None, int(found[1])):
            continue
        line = _made_at(at, name, depth)
        left = f"{size} sample{'s' * (size != 1)}"
        return (
            f"the last batch of `{name}` has {left}, as {found[2]} samples in batches of {found[1]} leave {size} over. "
            f"Set drop_last=True in the DataLoader{line}, or another batch_size"
        )
    return None


def full_batch(at: FailingLine, full: int, size: int) -> str | None:
    """Of a rank whose batch is a full one, where that of another rank has so many."""
    for name, value, depth in _looped(at):
        found = _LOADER.match(value)
        if found is not None and int(found[1]) == full > size:
            return (
                f"`{name}` has batches of {full} (drop_last=False), and {size} may be a last one. Set drop_last=True "
                f"in the DataLoader{_made_at(at, name, depth)}, and give all ranks as many batches"
            )
    return None


def _made_at(at: FailingLine, name: str, depth: int) -> str:
    """`` at line 9 (`DataLoader(data, batch_size=64)`) ``, if that is known."""
    spot = at.slice.spot(depth)
    made = at.slice.made(ast.Name(name), spot, calls=True) if spot is not None else None
    if made is None or not isinstance(made.node, ast.Call) or not made.through:
        return ""
    return f" at {at.place(made.spot, made.line)} (`{source(made.node)}`)"


def _looped(at: FailingLine) -> Iterator[tuple[str, str, int]]:
    """Loaders that a loop around a line of the stack runs over."""
    for depth in range(len(at.frames)):
        spot = at.slice.spot(depth)
        values = at.values if depth == 0 else at.outer.get(depth, {})
        for item in own_nodes(spot.scope) if spot is not None else ():
            if not isinstance(item, _WORDS_OF_LOOP) or spot is None:
                continue
            if item.lineno <= spot.line <= (item.end_lineno or 0):
                for part in ast.walk(item.iter):
                    text = ast.unparse(part) if isinstance(part, (ast.Name, ast.Attribute)) else ""
                    if text in values:
                        yield text, values[text], depth
