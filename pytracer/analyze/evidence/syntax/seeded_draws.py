"""A loop that seeds its generator in each pass, and so draws the same for ever."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.changes import RANDOM, bound_in, is_among, names_read, touched
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.unbounded import EndlessLoop, Reason, body_of, short_text

_MAKES = frozenset({"default_rng", "RandomState", "Random"})
_SEEDS = frozenset({"manual_seed", "seed"})


def seeded_draw(loop: EndlessLoop, words: str, drawn: ast.AST | None) -> Reason | None:
    """Of what it draws, `drawn`; `words`: what the loop waits for. None where another generator draws that."""
    if drawn is None:
        return None
    values = [drawn, *_behind(loop, drawn)]
    changed = touched(body_of(loop))
    seeds = (item for statement in loop.body for item in _seeds(statement, values) if _is_fixed(item, changed))
    seeded = next(seeds, None)
    if seeded is None:
        return None
    text = short_text(seeded)
    return Reason(
        f"line {seeded.lineno} (`{text}`) seeds the generator anew in each pass, so that each pass draws the same",
        f"Move line {seeded.lineno} (`{text}`) above the loop of line {loop.lineno}: so each pass draws something "
        f"else, until {words}.",
    )


def _behind(loop: EndlessLoop, value: ast.AST) -> Iterator[ast.AST]:
    """What the loop sets the names to that a value reads."""
    read = set(names_read(value))
    yield from (item.value for item in body_of(loop) if isinstance(item, ast.Assign) and bound_in([item]) & read)


def _seeds(statement: ast.stmt, values: list[ast.AST]) -> Iterator[ast.Call]:
    """Its call that seeds what one of the values draws from; of the statements of each pass, below no condition."""
    call = statement.value if isinstance(statement, (ast.Assign, ast.Expr)) else None
    if not isinstance(call, ast.Call) or len(call.args) != 1 or call.keywords:
        return
    name, owner = called_name(call), call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(statement, ast.Assign) and name in _MAKES and len(statement.targets) == 1:
        generator = variable(statement.targets[0])
    else:
        generator = variable(owner) if name in _SEEDS and owner is not None else None
    if generator is not None and any(_draws(item, generator) for value in values for item in nodes_of(value)):
        yield call


def _draws(node: ast.AST, generator: str) -> bool:
    """`rng.integers(9)`, `torch.randint(9, (1,))`, `torch.randint(9, (1,), generator=rng)`."""
    if not isinstance(node, ast.Call) or RANDOM.search(ast.unparse(node.func)) is None:
        return False
    given = keyword_value(node, "generator")
    if given is not None:
        return variable(given) == generator
    return isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == generator


def _is_fixed(call: ast.Call, changed: set[str]) -> bool:
    """Whether its seed is one, and no line of the body changes it."""
    seed = call.args[0]
    if isinstance(seed, ast.Constant) and seed.value is None:
        return False
    if any(isinstance(item, (ast.Call, ast.Starred, ast.NamedExpr)) for item in nodes_of(seed)):
        return False
    return not any(is_among(name, changed) for name in names_read(seed))
