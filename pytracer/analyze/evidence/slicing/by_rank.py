"""The line by which the size of a value depends on the rank: followed back over all that a size can come from.

Other than a slice, which ends where two lines may have made a value, this goes on through each of them: what it finds
is a line that the value depends on. Only what carries a size is followed: of `torch.randn(n, generator=g)` it is `n`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.callers import only_call
from pytracer.analyze.evidence.slicing.calls import method_of
from pytracer.analyze.evidence.slicing.data_numbers import is_agreed, is_size, number_of_data
from pytracer.analyze.evidence.slicing.left_out_items import leaves_out
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import ITEM_COMPREHENSIONS, Loop, deciding_ifs
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_for_one_rank, is_of_rank, is_rank
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, own_nodes, parameters, scope_of
from pytracer.analyze.naming import line_in

_MOST = 80
_CREATED = frozenset({"randn", "rand", "zeros", "ones", "empty", "normal", "new_zeros", "new_ones", "new_empty"})
_FIRST = frozenset({"full", "new_full"})
_NOT_SIZES = frozenset(
    {"generator", "dim", "axis", "dtype", "device", "seed", "group", "op", "key"}
    | {"disable", "desc", "position", "leave", "verbose", "num_workers"}
    | {"quiet", "silent", "progress", "progress_bar", "show_progress", "log"}
)
_PROGRESS = frozenset({"tqdm", "track"})
EVEN = frozenset(
    {"DistributedSampler", "manual_seed", "Generator", "default_rng", "device", "all_reduce", "broadcast"}
    | {"Random", "RandomState"}
)
_SPLITS = frozenset({"chunk", "tensor_split", "array_split", "split"})
_STEPS = "[rank::world]"
_ITERATED = ("__iter__", "__len__")
SELECTING = frozenset(
    {"nonzero", "unique", "unique_consecutive", "masked_select", "nms", "batched_nms", "argwhere", "bincount"}
)
_OF_ISLICE = 4  # arguments with a step
_GROWS = frozenset({"append", "extend", "add"})


class SizeSource(msgspec.Struct, frozen=True):
    """The expression with the rank. `split`: it gives each rank a part of one whole, by that.

    `selects`: the function by which its size comes from what is in the data, and the rank has no part in it.
    `counts`: it is a number taken out of the data. `left_out`: the condition by which some of the part are left out.
    """

    node: ast.expr
    spot: Spot
    split: str | None = None
    selects: str | None = None
    counts: bool = False
    left_out: tuple[ast.expr, Spot] | None = None

    @property
    def line(self) -> int:
        """Its line."""
        return self.node.lineno

    @property
    def text(self) -> str:
        """Itself; of a long subscript the part with the rank."""
        whole = ast.unparse(self.node)
        if isinstance(self.node, ast.Subscript) and source(self.node) != whole:
            return f"...[{source(self.node.slice)}]"
        return source(self.node)

    def left_out_words(self, here: str | None) -> str:
        """`` , of which line 51 (`keep(doc)`) leaves out some, if any ``; `here`: the file of lines without one."""
        if self.left_out is None:
            return ""
        node, spot = self.left_out
        return f", of which {line_in(spot.file, node.lineno, here)} (`{source(node)}`) leaves out some, if any"

    def whole(self, sizes: dict[int, int]) -> int | None:
        """How many there are in all, where these are the parts that a split of so many gives to ranks 0, 1, ..."""
        if self.split is None or sorted(sizes) != [*range(len(sizes))]:
            return None
        total, count = sum(sizes.values()), len(sizes)
        least, more = divmod(total, count)
        part = least + bool(more)
        even = [least + (rank < more) for rank in range(count)]
        chunks = [max(0, min(part, total - rank * part)) for rank in range(count)]
        last = [least] * (count - 1) + [least + more]
        return total if more and [sizes[rank] for rank in range(count)] in (even, chunks, last) else None

    def gives(self, sizes: dict[int, int]) -> bool:
        """Whether the expression is that number on each of the ranks, on one of its branches."""
        branches = [self.node.body, self.node.orelse] if isinstance(self.node, ast.IfExp) else [self.node]
        return any(all(_number(item, rank) == size for rank, size in sizes.items()) for item in branches)


def _number(node: ast.expr, rank: int) -> int | None:
    """Of a sum or product of numbers and the rank."""
    if is_rank(node):
        return rank
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if not isinstance(node, ast.BinOp):
        return None
    left, right = _number(node.left, rank), _number(node.right, rank)
    if left is None or right is None:
        return None
    by = {ast.Add: left + right, ast.Sub: left - right, ast.Mult: left * right}
    return by.get(type(node.op))


def rounds_source(slice_: Slice, depth: int, loop: Loop) -> SizeSource | None:
    """That of what a loop around a frame's line goes through; None of a `while`."""
    spot = slice_.spot(depth)
    return size_source(slice_, loop.iter, spot) if spot is not None and not isinstance(loop, ast.While) else None


def size_source(
    slice_: Slice, node: ast.AST, spot: Spot, *, data: bool = False, is_number: bool = False
) -> SizeSource | None:
    """The nearest split by rank that a value can come from; else what has the rank in it.

    `data`: or the nearest selection by what is in the data; a number that is taken out of it where nothing else is
    found, but of a size (`is_number`) before all that lies behind it.
    """
    waiting: list[tuple[ast.AST, Spot, bool]] = [(node, spot, is_number)]
    seen: set[tuple[str, int, int, bool]] = set()
    other: SizeSource | None = None
    counted: SizeSource | None = None
    given: SizeSource | None = None
    left_out: tuple[ast.expr, Spot] | None = None
    while waiting and len(seen) < _MOST:
        item, place, sizes = waiting.pop(0)
        made = slice_.made(item, place, calls=False)
        if data and is_agreed(made):
            continue
        key = (ast.unparse(made.node), id(made.spot.scope), made.spot.line, sizes)
        if key in seen or not isinstance(made.node, ast.expr):
            continue
        seen.add(key)
        found = _by_rank(slice_, made.node, made.spot) or (_selection(made.node, made.spot) if data else None)
        if found is not None and (found.split is not None or found.selects is not None):
            return structs.replace(found, left_out=left_out)
        left_out = left_out or leaves_out(slice_, made.node, made.spot)
        number = number_of_data(made) if data and sizes else None
        counted = counted or (SizeSource(number, made.spot, counts=True) if number is not None else None)
        if is_number and counted is not None and other is None:
            return counted
        other = other or found
        if given is None and isinstance(made.node, ast.Call) and _is_given_rank(slice_, made.node, made.spot):
            given = SizeSource(made.node, made.spot)
        behind = before(slice_, made.node, made.spot)
        waiting += [(part, at, sizes or is_size(part, made.node)) for part, at in behind]
    found = other or counted or given
    return structs.replace(found, left_out=left_out) if found is not None and not found.counts else found


def _is_given_rank(slice_: Slice, call: ast.Call, spot: Spot) -> bool:
    """Whether a call passes the rank itself; to a function of the program, one that does not only seed by it."""
    if called_name(call) in EVEN | _CREATED | {"randint"} or not any(is_rank(item) for item in carriers(call)):
        return False
    function, made = slice_.function(call, spot), slice_.defined(call.func, spot)
    if function is None:
        return made is None  # of a class of the program, its methods are known
    seeds = [item for item in own_nodes(function[0]) if isinstance(item, ast.Call) and called_name(item) in EVEN]
    seeding = {id(part) for item in seeds for part in nodes_of(item)}
    return any(is_rank(item) and id(item) not in seeding for item in own_nodes(function[0]))


def _by_rank(slice_: Slice, node: ast.expr, spot: Spot) -> SizeSource | None:
    """Whether an expression depends on the rank itself, other than in what it passes to functions of the program."""
    if isinstance(node, ast.Subscript) and is_of_rank(node.slice):
        held = slice_.made(node.value, spot, calls=False).node
        name = called_name(held) if isinstance(held, ast.Call) else None
        steps = isinstance(node.slice, ast.Slice) and node.slice.step is not None
        return SizeSource(node, spot, name if name in _SPLITS else _STEPS if steps else None)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        sides = (node.left, node.right)
        if any(is_of_rank(a) and not isinstance(b, ast.Constant) for a, b in (sides, sides[::-1])):
            return SizeSource(node, spot, "start:end")
    if isinstance(node, ast.Call) and called_name(node) == "range" and len(node.args) == 3:
        start, end, step = node.args
        if is_of_rank(start) and not is_of_rank(end) and not isinstance(step, ast.Constant):
            return SizeSource(node, spot, _STEPS)
    turns = next(_turns(node, spot), None)
    if turns is not None:
        return SizeSource(turns, spot, _STEPS)
    name = variable(node)
    for test, place in _branches(name, spot) if name is not None else ():
        return SizeSource(test, place)
    if isinstance(node, (ast.Name, ast.Attribute, ast.Call, *ITEM_COMPREHENSIONS, ast.Tuple, ast.List)):
        return None
    return SizeSource(node, spot) if any(is_rank(item) for item in _parts(node)) else None


def _turns(node: ast.expr, spot: Spot) -> Iterator[ast.expr]:
    """What gives the ranks one each in turn: `n % world == rank` in a comprehension, or around what fills a list."""
    if isinstance(node, ast.Call) and called_name(node) == "islice" and len(node.args) == _OF_ISLICE:
        if is_of_rank(node.args[1]):
            yield node
    elif isinstance(node, ITEM_COMPREHENSIONS):
        yield from (test for part in node.generators for test in part.ifs if _is_turn(test))
    elif isinstance(node, ast.Name):
        calls = (item for item in own_nodes(spot.scope) if isinstance(item, ast.Call) and called_name(item) in _GROWS)
        for item in calls:
            if isinstance(item.func, ast.Attribute) and variable(item.func.value) == node.id:
                yield from (test.test for test, _ in deciding_ifs(spot.tree, item.lineno) if _is_turn(test.test))


def _is_turn(test: ast.expr) -> bool:
    """`n % world == rank`."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], (ast.Eq, ast.NotEq)):
        return False
    sides = (test.left, test.comparators[0])
    modulo = [isinstance(item, ast.BinOp) and isinstance(item.op, ast.Mod) for item in sides]
    return any(modulo[n] and is_rank(sides[1 - n]) for n in (0, 1))


def _selection(node: ast.expr, spot: Spot) -> SizeSource | None:
    if not isinstance(node, ast.Call) or called_name(node) not in SELECTING:
        return None
    known = any(item.arg == "minlength" for item in node.keywords)
    return None if known else SizeSource(node, spot, selects=called_name(node))


def _branches(name: str, spot: Spot) -> Iterator[tuple[ast.expr, Spot]]:
    """The conditions of `if` statements on the rank around lines that bind a variable."""
    for line, value, place in _settings(name, spot):
        above = line < spot.line or place.scope is not spot.scope
        if not above or (isinstance(value, ast.Call) and called_name(value) in _PROGRESS):
            continue
        for test, around in deciding_ifs(spot.tree, line):
            if around and place.scope is scope_of(spot.tree, test.lineno) and is_of_rank(test.test):
                yield test.test, place


def _settings(name: str, spot: Spot) -> Iterator[tuple[int, ast.AST, Spot]]:
    """Lines that bind a variable of a function, or an attribute in a method of its class."""
    owner = class_around(spot.tree, spot.scope) if name.startswith("self.") else None
    scopes: list[Scope] = (
        [item for item in owner.body if isinstance(item, ast.FunctionDef)] if owner is not None else []
    )
    for scope in scopes or [spot.scope]:
        for line, value, _ in bindings_of(scope, name):
            if value is not None:
                inside = spot if scope is spot.scope else structs.replace(spot, scope=scope, depth=None, call=None)
                yield line, value, structs.replace(inside, line=line)


def before(slice_: Slice, node: ast.expr, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
    """What the size of an expression can come from, a step back."""
    if isinstance(node, ast.Name):
        yield from values_of(node.id, spot)
    elif isinstance(node, ast.Attribute):
        own = variable(node) if class_around(spot.tree, spot.scope) is not None else None
        yield from ((value, place) for _, value, place in _settings(own or "", spot))
        if own is None:
            yield node.value, spot
    elif isinstance(node, ast.Call):
        yield from _called(slice_, node, spot)
    elif isinstance(node, ast.List) and not node.elts:
        names = {variable(part) for item in own_nodes(spot.scope) for part in _bound_to(item, node)}
        for name in names - {None}:
            yield from values_of(name or "", spot)
    else:
        if isinstance(node, ITEM_COMPREHENSIONS):
            yield from ((part.iter, spot) for part in node.generators)
        yield from ((item, spot) for item in _parts(node) if isinstance(item, (ast.Name, ast.Attribute, ast.Call)))


def _bound_to(item: ast.AST, value: ast.AST) -> Iterator[ast.expr]:
    """`a` of `a = []`, and of `a, b = [], []`."""
    if isinstance(item, ast.AnnAssign) and item.value is value:
        yield item.target
    for target in item.targets if isinstance(item, ast.Assign) else ():
        if item.value is value:  # type: ignore[attr-defined]
            yield target
        elif isinstance(target, ast.Tuple) and isinstance(item.value, ast.Tuple):  # type: ignore[attr-defined]
            pairs = zip(target.elts, item.value.elts, strict=False)  # type: ignore[attr-defined]
            yield from (one for one, given in pairs if given is value)


def values_of(name: str, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
    """Each value that a variable of the function can have, what its loop goes through, and what it is filled with."""
    for item in own_nodes(spot.scope):
        if isinstance(item, (ast.For, ast.AsyncFor, ast.comprehension)):
            if any(variable(part) == name for part in nodes_of(item.target)):
                yield item.iter, structs.replace(spot, line=item.iter.lineno)
        elif isinstance(item, ast.Call) and called_name(item) in _GROWS and isinstance(item.func, ast.Attribute):
            for given in item.args[:1] if variable(item.func.value) == name else ():
                yield given, structs.replace(spot, line=item.lineno)
                yield from _loops_around(item.lineno, spot)
    for line, value, _ in bindings_of(spot.scope, name):
        if value is not None:
            yield value, structs.replace(spot, line=line)
    function = spot.scope
    if isinstance(function, ast.FunctionDef) and name in parameters(function) and spot.call is None:
        found = only_call({spot.file or "": spot.tree}, function)
        value = found.argument(function, name) if found is not None else None
        if found is not None and value is not None:
            line = found.call.lineno
            yield value, Spot(spot.file, spot.tree, scope_of(spot.tree, line), line)


def _loops_around(line: int, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
    for item in own_nodes(spot.scope):
        if isinstance(item, ast.For) and item.lineno < line <= (item.end_lineno or 0):
            yield item.iter, structs.replace(spot, line=item.lineno)


def _called(slice_: Slice, call: ast.Call, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
    """What a function of the program returns; else what carries the size of a call's result."""
    function = slice_.function(call, spot)
    if function is not None:
        yield from _given_by(function[0], structs.replace(function[1], call=(call, spot)))
        return
    made = slice_.defined(call.func, spot)
    method = method_of(made[0], _ITERATED) if made is not None else None
    if made is not None and method is not None:
        yield from _given_by(method, structs.replace(made[1], call=None))
    yield from ((item, spot) for item in carriers(call))


def _given_by(function: ast.FunctionDef, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
    for item in own_nodes(function):
        if isinstance(item, ast.Return):
            tests = (test.test for test, around in deciding_ifs(spot.tree, item.lineno) if around)
            yield from (
                (test, structs.replace(spot, scope=function, line=test.lineno, depth=None))
                for test in tests
                if is_for_one_rank(test) is not None
            )
        if isinstance(item, (ast.Return, ast.Yield, ast.YieldFrom)) and item.value is not None:
            yield item.value, structs.replace(spot, scope=function, line=item.lineno + 1, depth=None)
            if not isinstance(item, ast.Return):
                at = structs.replace(spot, scope=function, line=item.lineno, depth=None)
                yield from _loops_around(item.lineno, at)


def carriers(call: ast.Call) -> Iterator[ast.expr]:
    """What carries the size of a call's result among what it is given."""
    name = called_name(call)
    if name in EVEN:
        return
    if name == "randint":
        yield from (item for item in call.args if isinstance(item, (ast.Tuple, ast.List)))
    else:
        yield from call.args[:1] if name in _FIRST else call.args
    for item in call.keywords:
        if item.arg not in _NOT_SIZES and (name not in {*_CREATED, *_FIRST, "randint"} or item.arg == "size"):
            yield item.value
    if isinstance(call.func, ast.Attribute) and name not in {*_CREATED, *_FIRST}:
        yield call.func.value


def _parts(node: ast.AST) -> Iterator[ast.expr]:
    """What an expression is made of, down to variables and calls."""
    for item in ast.iter_child_nodes(node):
        if isinstance(item, (ast.Name, ast.Attribute, ast.Call)):
            yield item
        else:
            yield from _parts(item)
