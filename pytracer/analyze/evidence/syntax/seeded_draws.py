"""A loop that seeds its generator in each pass, and so draws the same for ever."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.changes import is_among, names_read, touched
from pytracer.analyze.evidence.syntax.unbounded import EndlessLoop, Reason, body_of, short_text

_SEEDS = frozenset({"default_rng", "RandomState", "Random", "manual_seed", "seed"})


def seeded_draw(loop: EndlessLoop, words: str) -> Reason | None:
    """Of a draw in its body; `words`: what the loop waits for."""
    seeded = _seeded(loop)
    if seeded is None:
        return None
    text = short_text(seeded)
    return Reason(
        f"line {seeded.lineno} (`{text}`) seeds the generator anew in each pass, so that each pass draws the same",
        f"Move line {seeded.lineno} (`{text}`) above the loop of line {loop.lineno}: so each pass draws something "
        f"else, until {words}.",
    )


def _seeded(loop: EndlessLoop) -> ast.Call | None:
    """`default_rng(seed)` or `manual_seed(7)`, whose seed no line of the body changes."""
    changed = touched(body_of(loop))
    for item in body_of(loop):
        if not isinstance(item, ast.Call) or called_name(item) not in _SEEDS or len(item.args) != 1:
            continue
        names = names_read(item.args[0])
        if not isinstance(item.args[0], ast.Call) and not any(is_among(name, changed) for name in names):
            return item
    return None
