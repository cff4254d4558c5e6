"""Conditions that go by a number drawn at random: the call that draws it, and what seeds its generator."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.draws import Draw, draw_in, is_unseeded, seeded_by_rank
from pytracer.analyze.evidence.syntax.names import names_of
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import line_in


def draw_behind(slice_: Slice, decides: ast.If, spot: Spot) -> Draw | None:
    """In the condition, in what binds a variable of it above, or in a function of the file that it calls."""
    for node in _behind(slice_, decides, spot):
        found = draw_in(spot.tree, node)
        if found is not None:
            return found
    return None


def _behind(slice_: Slice, decides: ast.If, spot: Spot) -> Iterator[ast.AST]:
    yield decides.test
    for name in names_of(decides.test):
        bound = [value for line, value in lines_that_bind(spot.scope, name) if line < decides.lineno]
        yield from (value for value in bound[::-1] if value is not None)
    for call in (item for item in nodes_of(decides.test) if isinstance(item, ast.Call)):
        own = slice_.function(call, spot)
        if own is not None and own[1].file == spot.file:
            yield own[0]


def drawn_words(draw: Draw, file: str | None, here: str | None) -> str:
    """`` `torch.rand(())` of line 35 ``; `here`: the file that is spoken of."""
    return f"`{source(draw.call)}` of {line_in(file, draw.call.lineno, here)}"


def seed_words(files: Mapping[str, ast.Module], draw: Draw, here: str | None) -> str:
    """`` ; line 58 (`torch.manual_seed(1234 + rank)`) seeds by the rank ``, or that no line seeds; else nothing.

    A line that is seeded again below, by the same on all ranks, is left out. torch itself begins with one seed in each
    process, `random` and numpy with another.
    """
    if draw.library is None:
        return ""
    seed = seeded_by_rank(files, draw.library)
    if seed is not None:
        return f"; {line_in(seed.file, seed.call.lineno, here)} (`{source(seed.call)}`) seeds by the rank"
    return f"; no line of the program seeds `{draw.library}`" if is_unseeded(files, draw.library) else ""
