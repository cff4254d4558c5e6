"""Whether what failed was the content of a batch of a DataLoader: its numbers, not its type, device or shape."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from msgspec import structs

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import names_in, parts
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, passed_values
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters, spans

_OF_VALUES = Pattern(
    r"Target -?\d+ is out of bounds|index out of range in self|index -?\d+ is out of bounds for"
    r"|[Ii]ndex (?:-?\d+ )?(?:is )?out of (?:range|bounds)|(?:list|tuple|string|bytes) index out of range"
    r"|of target should be between 0 and 1|Class values must be|non-negative|must be in the (?:range|interval)"
    r"|buffer is smaller|codec can't decode|invalid literal|[Uu]npack requires|bytes must be in range|not in list"
)
_KINDS = Pattern(r"^(?:\w*KeyError|UnicodeDecodeError|JSONDecodeError|OverflowError|error|AssertionError)$")
_OF_SHAPES = Pattern(r"\b(?:shape|size|ndim|dim|dtype|device|len|numel|type|isinstance|is_available)\b")
_NOT_FINITE = Pattern(r"nan\b|NaN|\binf\b|isinf|finite")  # a loss gets so by training, too
_LIGHTNING = Pattern(r"/(?:pytorch_lightning|lightning|transformers|ignite|fastai)/")
_MOST = 48  # places that are looked at


def fails_by_values(at: FailingLine) -> bool:
    """By the exception: an index, a label, a key or a number that cannot be; a check of the program of such."""
    statement = at.statement
    if at.own and isinstance(statement, (ast.Raise, ast.Assert)):
        tests = [statement.test] if isinstance(statement, ast.Assert) else [*_tests_around(at, statement)]
        texts = [ast.unparse(item) for item in tests]
        return bool(texts) and not any(_OF_SHAPES.search(text) or _NOT_FINITE.search(text) for text in texts)
    node = at.only(ast.Subscript)
    if node is not None and at.kind in ("IndexError", "KeyError") and isinstance(node.slice, ast.Constant):
        return False  # what the line asks for does not come from data
    if _OF_VALUES.search(at.message):
        return True
    return _KINDS.match(at.kind) is not None


def _tests_around(at: FailingLine, statement: ast.stmt) -> Iterator[ast.expr]:
    ifs = (item for item in own_nodes(at.scope) if isinstance(item, ast.If) and spans(item, statement.lineno))
    yield from (item.test for item in ifs)


def of_loader(at: FailingLine) -> bool:
    """Whether the failing expression reads what a loop over a DataLoader, or next() of one, gave."""
    first = at.slice.spot(0)
    node = at.node
    if first is None or node is None:
        return False
    inside = [name for part in parts(node) for name in names_in(part)]
    if isinstance(at.statement, ast.Raise):
        inside += [name for test in _tests_around(at, at.statement) for name in names_in(test)]
    waiting = [(name, first) for name in inside]
    seen: set[tuple[str, str | None, int]] = set()
    while waiting and len(seen) < _MOST:
        name, spot = waiting.pop(0)
        key = (name, spot.file, spot.line)
        if key in seen:
            continue
        seen.add(key)
        for value, there, item in _givers(at, name, spot):
            if _is_batch(at, value, there, item):
                return True
            waiting += [(other, there) for other in names_in(value)]
        if _given_by_trainer(at, name, spot):
            return True
    return False


def _givers(at: FailingLine, name: str, spot: Spot) -> Iterator[tuple[ast.AST, Spot, bool]]:
    """What may have given a variable its value: `item`: one of what a loop runs over."""
    for item in own_nodes(spot.scope):
        if isinstance(item, (ast.For, ast.AsyncFor)) and spans(item, spot.line) and _gives(item, name):
            yield item.iter, structs.replace(spot, line=item.lineno), True
        for part in getattr(item, "generators", ()) if isinstance(item, ast.expr) and spans(item, spot.line) else ():
            if _names(part.target, name):
                yield part.iter, spot, True
    for line, value, _ in bindings_of(spot.scope, name):
        if value is not None and line < spot.line:
            yield value, structs.replace(spot, line=line), False
    for item in own_nodes(spot.scope):  # `a, (b, c) = ...`
        if isinstance(item, ast.Assign) and item.lineno < spot.line and _names(item.targets[0], name):
            yield item.value, structs.replace(spot, line=item.lineno), False
    if name in parameters(spot.scope):
        given = at.slice.argument(name, spot)
        if given is not None:
            yield given[0], given[1], False
            return
        outer = at.slice.spot(spot.depth + 1) if spot.depth is not None else None
        for call in calls_on(outer.tree, outer.line) if outer is not None else ():
            for value in passed_values(call):
                if outer is not None:
                    yield value, outer, False


def _gives(loop: ast.For | ast.AsyncFor, name: str) -> bool:
    """Whether it is a loop's variable; not the number of `for number, batch in enumerate(loader)`."""
    first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) and loop.target.elts else None
    calls = (item for item in nodes_of(loop.iter) if isinstance(item, ast.Call))
    counted = first is not None and _names(first, name) and any(called_name(item) == "enumerate" for item in calls)
    return _names(loop.target, name) and not counted


def _names(target: ast.AST, name: str) -> bool:
    return any(variable(item) == name for item in nodes_of(target))


def _is_batch(at: FailingLine, value: ast.AST, spot: Spot, item: bool) -> bool:
    """Whether it is one of what a loader gives: in a loop's head, or by next()."""
    if item:
        return any(_is_loader(at, part, spot) for part in nodes_of(value) if isinstance(part, ast.expr))
    taken = [part for part in nodes_of(value) if isinstance(part, ast.Call) and called_name(part) == "next"]
    return any(_is_loader(at, part, spot) for call in taken for held in call.args for part in nodes_of(held))


def _is_loader(at: FailingLine, node: ast.AST, spot: Spot) -> bool:
    if not isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
        return False
    if "DataLoader" in (at.value_at(node, spot) or ""):
        return True
    made = at.slice.made(node, spot, calls=True).node
    while isinstance(made, ast.Call) and called_name(made) == "iter" and made.args:
        made = at.slice.made(made.args[0], spot, calls=True).node
    return isinstance(made, ast.Call) and (called_name(made) or "").endswith("Loader")


def _given_by_trainer(at: FailingLine, name: str, spot: Spot) -> bool:
    """`batch` of `training_step(self, batch, index)`, which a library calls in its loop."""
    if spot.depth is None or name not in parameters(spot.scope):
        return False
    frame = at.frames[spot.depth]
    place = next((n for n, item in enumerate(at.stack) if item is frame), None)
    caller = at.stack[place + 1] if place is not None and place + 1 < len(at.stack) else None
    return caller is not None and is_library_file(caller.file) and _LIGHTNING.search(caller.file or "") is not None
