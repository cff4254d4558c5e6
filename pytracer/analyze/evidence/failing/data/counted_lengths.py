"""An index beyond the items of a data set that its own `__len__` lets the loader ask for: a number, or another list."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import shape_of
from pytracer.analyze.evidence.failing.usage.emptied import counted_in
from pytracer.analyze.evidence.slicing.calls import method_of
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.outcomes import number, outcome
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, second_parameter, spans_body

_FETCHES = ("utils/data/_utils/fetch.py", "utils/data/dataset.py")
_COUNTS_ALL = ("Distributed", "RandomSampler(", "SequentialSampler(")
_NOT_ALL = ("Subset", "Weighted", "Batch")
_HOPS = 4


class _Length(msgspec.Struct, frozen=True):
    """What a `return` of `__len__` gives. `count`: where that is known."""

    value: ast.expr
    spot: Spot
    count: int | None


def counted_length(at: FailingLine, table: ast.expr, index: ast.AST, asked: int, held: int) -> str | None:
    """The end of a sentence about a table that has too few items; None where `__len__` is not what let it be asked.

    Args:
        at: The line of `__getitem__` that failed.
        table: What it indexes: an attribute of the data set.
        index: The index, as it is written.
        asked: Its value.
        held: How many items the table has.
    """
    name = variable(table)
    if name is None or not name.startswith("self.") or not is_asked_by_loader(at, index):
        return None
    found = [item for item in _lengths(at, name, held) if item.count is None or item.count > asked]
    if not found:
        return None
    values = {item.count for item in found}
    first = found[0]
    where = at.place(first.spot, first.value.lineno)
    counted = counted_in(first.value)
    if len(found) == 1 and counted is not None and variable(counted) != name:
        return _of_another(at, first, counted, name, where)
    if None in values:
        return None
    if any(_counts(item.value, name) for item in found):
        return (
            f"`__len__()` ({where}) returns `{source(first.value)}`, {first.count} in all. Take the index modulo "
            f"(`{source(index)} % len({name})`), or return len({name}) there."
        )
    numbers = " or ".join(str(item) for item in sorted(item for item in values if item is not None))
    text = source(first.value)
    written = "" if text in numbers.split(" or ") else f": `{text}`"
    return (
        f"`__len__()` returns {numbers} ({where}{written}), and the loader asks for that many. Return len({name}) "
        f"there; if so many items are meant, look at why `{name}` has fewer (missing files, a filter)."
    )


def _of_another(at: FailingLine, length: _Length, counted: ast.AST, name: str, where: str) -> str:
    other = source(counted)
    many = f", which has {length.count}" if length.count is not None else ""
    return (
        f"`__len__()` ({where}) counts `{other}`{many}. Both must have an item for each index: correct what fills them "
        f"(files without a partner), or return the length of `{name}` there."
    )


def is_asked_by_loader(at: FailingLine, index: ast.AST) -> bool:
    """Whether the index is the one that a loader gave, of all that the data set says to have."""
    scope = at.scope
    if not isinstance(scope, ast.FunctionDef) or scope.name != "__getitem__":
        return False
    if variable(index) is None or variable(index) != second_parameter(scope):
        return False
    above = at.stack[at.stack.index(at.frame) + 1 :][:1]
    if not above or not (above[0].file or "").endswith(_FETCHES):
        return False
    calls = (item for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.Call))
    samplers = [keyword_value(item, "sampler", "batch_sampler") for item in calls if called_name(item) == "DataLoader"]
    return all(item is None or _counts_all(at, item) for item in samplers)


def _counts_all(at: FailingLine, sampler: ast.expr) -> bool:
    """A sampler of torch's that goes by the length of the data set."""
    text = source(sampler)
    sets = [
        ast.unparse(item.value)
        for tree in at.files.values()
        for item in nodes_of(tree)
        if isinstance(item, ast.Assign) and any(ast.unparse(target) == text for target in item.targets)
    ]
    texts = sets or [text]
    known = all(any(part in item for part in _COUNTS_ALL) or "None" in item for item in texts)
    return known and not any(part in item for part in _NOT_ALL for item in texts)


def _lengths(at: FailingLine, name: str, held: int) -> Iterator[_Length]:
    """What `__len__` of the class, or of one that it is derived from, may return."""
    spot, owner = at.slice.spot(0), class_around(at.tree, at.scope)
    for _ in range(_HOPS):
        if spot is None or owner is None or method_of(owner, ("__len__",)) is not None:
            break
        base = at.slice.defined(owner.bases[0], spot) if len(owner.bases) == 1 else None
        owner, spot = (base[0], base[1]) if base is not None and isinstance(base[0], ast.ClassDef) else (None, spot)
    method = method_of(owner, ("__len__",)) if owner is not None else None
    if method is None or spot is None:
        return
    for item in own_nodes(method):
        if isinstance(item, ast.Return) and item.value is not None:
            there = structs.replace(spot, scope=method, line=item.lineno, depth=None, call=None)
            if not _is_ruled_out(at, item, there):
                yield _Length(item.value, there, _count(at, item.value, there, name, held))


def _is_ruled_out(at: FailingLine, item: ast.Return, spot: Spot) -> bool:
    for test, around in deciding_ifs(spot.tree, item.lineno):
        held = outcome(test.test, lambda node: _recorded(at, node, spot))
        if held is None:
            continue
        wanted = spans_body(test.body, item.lineno) if around else False
        if held is not wanted:
            return True
    return False


def _count(at: FailingLine, value: ast.expr, spot: Spot, name: str, held: int) -> int | None:
    made = at.slice.made(value, spot, calls=True)

    def known(node: ast.expr) -> str | None:
        return f"list of {held}" if variable(node) == name else _recorded(at, node, made.spot)

    found = number(made.node, known) if isinstance(made.node, ast.expr) else None
    return int(found) if found is not None else None


def _recorded(at: FailingLine, node: ast.expr, spot: Spot) -> str | None:
    """Of the data set's own attribute as it was; of others the constant that the program sets."""
    told = at.values.get(ast.unparse(node)) if ast.unparse(node).startswith("self.") else None
    shape = shape_of(told)
    if told is not None:
        return f"list of {shape.sizes[0]}" if shape is not None and shape.sizes else told
    made = at.slice.made(node, spot, calls=True).node
    if isinstance(made, (ast.List, ast.Tuple)) and not any(isinstance(item, ast.Starred) for item in made.elts):
        return f"list of {len(made.elts)}"
    return repr(made.value) if isinstance(made, ast.Constant) and not isinstance(made.value, str) else None


def _counts(value: ast.expr, name: str) -> bool:
    """Whether it goes by the length of the table itself."""
    return any(variable(inner) == name for item in nodes_of(value) if (inner := counted_in(item)) is not None)
