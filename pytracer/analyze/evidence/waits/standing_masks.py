"""A loop that goes on while a mask has a true element, and whose recorded passes left as many of them each time.

`while (matching.sum(0) == 0).any():` that asks for these by torch.nonzero() makes a tensor of their places, whose size
is recorded. Passes that come nearer to the end make smaller ones. Sums over each dimension have as many elements as the
other one, so a matrix with more columns than rows is known as such.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._text import count_words
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.endless import only_exit
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import spans
from pytracer.analyze.evidence.syntax.unbounded import EndlessLoop, Reason, body_of, is_unbounded, short_text
from pytracer.analyze.evidence.waits.made_tensors import made_in_loop
from pytracer.analyze.evidence.waits.running_loops import idle_loop
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_PASSES = 8  # recorded ones that left as many
_PLACES = frozenset({"nonzero", "where", "argwhere", "flatnonzero"})
_REDUCES = frozenset({"sum", "any", "max", "amax", "count_nonzero", "all"})
_INDEX_NBYTES, _FLOATS = 8, (4, 8)
_GROWS = frozenset({"append", "extend", "cat", "concat", "concatenate", "hstack", "vstack"})
_MODULES = frozenset({"torch", "np", "numpy"})


class StandingMask(msgspec.Struct, frozen=True):
    """`places`: the call that finds the true elements, `left` in each pass; `matrix`: with too few rows."""

    loop: EndlessLoop
    test: str
    places: ast.Call
    passes: int
    left: int | None
    matrix: Matrix | None

    @property
    def reason(self) -> Reason:
        """Why the loop never ends."""
        line, text = self.places.lineno, short_text(self.places)
        leave = f"leave the loop of line {self.loop.lineno} where a pass has left as many of them as the one before"
        if self.matrix is None or self.left is None:
            had = f"had {count_words(self.left, 'element')}" if self.left is not None else "had as many elements"
            return Reason(
                f"in each of its last {self.passes} recorded passes `{text}` (line {line}) {had}: no pass brought "
                f"`{self.test}` nearer to its end",
                f"Print `{text}` in each pass, and what keeps these true. Or {leave}, and bound the passes.",
                idle=True,
            )
        of, asked, others = self.matrix.name, self.matrix.asked, self.matrix.others
        one, other = ("column", "row") if not self.matrix.dim else ("row", "column")
        return Reason(
            f"`{of}` has {count_words(asked, one)} and only {count_words(others, other)}, and in each of its last "
            f"{self.passes} recorded passes {count_words(self.left, one)} had none (`{text}`, line {line}): where a "
            f"{other} takes one {one} at most, `{self.test}` stays true",
            f"Give `{of}` at least as many {other}s as {one}s ({asked} here), or leave out {one}s before the loop of "
            f"line {self.loop.lineno}: compare the two numbers of `{of}.shape` there. And {leave}.",
            sure=True,
            spins=True,
        )


class Matrix(msgspec.Struct, frozen=True):
    """`name` was reduced over `dim`, which leaves `asked` elements; over the other one it has `others`."""

    name: str
    dim: int
    asked: int
    others: int


def standing_mask(view: ProcessView, frame: PythonFrame) -> StandingMask | None:
    """Of the innermost `while` around a frame's line; None where a step or autograd node was recorded meanwhile."""
    around = idle_loop(view, frame)
    if around is None:
        return None
    scope, loop = around
    asked = _asked(loop)
    if asked is None:
        return None
    named = _names(loop)
    mask = _mask(asked, named)
    places = next(_places(loop, mask, named), None) if mask is not None else None
    if mask is None or places is None:
        return None
    made = made_in_loop(view, frame, scope, loop)
    sizes = Counter(nbytes for line, nbytes in made if spans(places, line))
    passes = min(sizes.values(), default=0)
    if passes < _PASSES or max(sizes.values()) > passes * (len(nodes_of(places)) + _INDEX_NBYTES):
        return None
    elements = _elements(Counter(nbytes for line, nbytes in made if spans(places, line) or spans(mask, line)))
    left = _left(sizes, elements)
    matrix = _matrix(loop, mask, made, elements)
    if matrix is not None and left != matrix.asked - matrix.others:
        matrix = None
    if matrix is None and _moves_on(loop):
        return None
    return StandingMask(loop, short_text(asked), places, passes, left, matrix)


def _moves_on(loop: EndlessLoop) -> bool:
    """Whether a pass counts, or adds to what it has made: a text that grows by a token ends, without fewer of them."""
    return any(
        (isinstance(item, ast.AugAssign) and isinstance(item.target, ast.Name))
        or (isinstance(item, ast.Call) and called_name(item) in _GROWS)
        for item in body_of(loop)
    )


def _asked(loop: EndlessLoop) -> ast.expr | None:
    """The condition that keeps it going."""
    if isinstance(loop, ast.While) and not is_unbounded(loop):
        return loop.test
    only = only_exit(loop)
    test = only.test if only is not None else None
    return test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None


def _names(loop: EndlessLoop) -> Mapping[str, ast.expr]:
    """Variables that the loop sets once."""
    sets = [
        (item.targets[0].id, item.value)
        for item in body_of(loop)
        if isinstance(item, ast.Assign) and len(item.targets) == 1 and isinstance(item.targets[0], ast.Name)
    ]
    often = Counter(name for name, _ in sets)
    return {name: value for name, value in sets if often[name] == 1}


def _mask(test: ast.expr, named: Mapping[str, ast.expr]) -> ast.expr | None:
    """`found == 0` of `(found == 0).any()`, `torch.any(found == 0)`, `(found == 0).sum() > 0`."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Gt):
        zero = test.comparators[0]
        given = _reduced(test.left, "sum", "count_nonzero")
        return _set_to(given, named) if given is not None and ast.unparse(zero) == "0" else None
    given = _reduced(test, "any")
    return _set_to(given, named) if given is not None else None


def _reduced(node: ast.expr, *names: str) -> ast.expr | None:
    """What a call without a dimension is of, also inside of bool() or .item()."""
    while isinstance(node, ast.Call) and called_name(node) in ("bool", "item"):
        inner = node.args[0] if node.args else node.func.value if isinstance(node.func, ast.Attribute) else None
        if inner is None:
            return None
        node = inner
    if not isinstance(node, ast.Call) or called_name(node) not in names or node.keywords:
        return None
    of = _operands(node)
    return of[0] if len(of) == 1 else None


def _operands(call: ast.Call) -> list[ast.expr]:
    """`found`, then the arguments, of `found.sum(0)` and `torch.sum(found, 0)`."""
    if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) not in _MODULES:
        return [call.func.value, *call.args]
    return [*call.args]


def _set_to(node: ast.expr, named: Mapping[str, ast.expr]) -> ast.expr:
    return named.get(node.id, node) if isinstance(node, ast.Name) else node


def _places(loop: EndlessLoop, mask: ast.expr, named: Mapping[str, ast.expr]) -> Iterator[ast.Call]:
    """Calls of torch.nonzero() and the like of that mask."""
    text = ast.unparse(mask)
    for item in body_of(loop):
        if isinstance(item, ast.Call) and called_name(item) in _PLACES:
            of = _operands(item)
            if len(of) == 1 and ast.unparse(_set_to(of[0], named)) == text:
                yield item


def _elements(sizes: Counter[int]) -> int | None:
    """How many a mask has that compares numbers: its bytes, beside the numbers' own."""
    return max((nbytes for nbytes in sizes if any(nbytes * width in sizes for width in _FLOATS)), default=None)


def _left(sizes: Counter[int], elements: int | None) -> int | None:
    """How many true elements were found; None where that size may be of something else."""
    known = {_INDEX_NBYTES, *(width * (elements or 0) for width in (1, *_FLOATS))}
    found = [nbytes for nbytes in sizes if nbytes % _INDEX_NBYTES == 0 and nbytes not in known]
    if not found:
        return 1 if _INDEX_NBYTES in sizes else None
    return found[0] // _INDEX_NBYTES if len(found) == 1 else None


def _matrix(loop: EndlessLoop, mask: ast.expr, made: Sequence[tuple[int, int]], asked: int | None) -> Matrix | None:
    """What the mask compares the sums of, with the number of its rows and columns, where one is too few."""
    own = next((found for item in nodes_of(mask) if (found := _over(item)) is not None), None)
    if own is None or asked is None:
        return None
    name, dim = own
    for item in body_of(loop):
        found = _over(item)
        if found != (name, 1 - dim) or not isinstance(item, ast.Call):
            continue
        sizes = Counter(nbytes for line, nbytes in made if spans(item, line))
        others = _elements(sizes)
        whole = {nbytes for _, nbytes in made}
        if others is not None and others < asked and any(others * asked * width in whole for width in (1, *_FLOATS)):
            return Matrix(name, dim, asked, others)
    return None


def _over(node: ast.AST) -> tuple[str, int] | None:
    """`matching`, 0 of `matching.sum(0)`."""
    if not isinstance(node, ast.Call) or called_name(node) not in _REDUCES:
        return None
    of = _operands(node)
    dim = keyword_value(node, "dim", "axis") or (of[1] if len(of) > 1 else None)
    value = dim.value if isinstance(dim, ast.Constant) else None
    return (ast.unparse(of[0]), value) if of and type(value) is int and value in (0, 1) else None
