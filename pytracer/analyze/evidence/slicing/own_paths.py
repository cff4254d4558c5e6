"""Whether a path can be another one on each rank: back over all that can name it, also lists and keys that keep it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.not_finite.reach import Part, function_of, values_held
from pytracer.analyze.evidence.failing.stored.paths import PATH_CALLS
from pytracer.analyze.evidence.slicing.callers import ProgramCall, calls_named, calls_of
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import reads_rank
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, is_parameter, own_nodes, parameters

_OWN = Pattern(
    r"getpid|uuid|mkdtemp|mkstemp|mktemp|Temporary[A-Z]|gethostname|\bnode\(|token_|urandom|\btime\(|time_ns|\bnow\("
    r"|strftime|\brand|choice|TMPDIR|PROCID|LOCALID|NODEID|TASK_PID|RANK|HOSTNAME"
)
_TEXTS = frozenset({"format", "zfill", "with_name", "with_suffix", "replace", "strip", "glob", "rglob", "iglob"})
_CHOOSES = frozenset({"max", "min", "sorted", "reversed", "list", "tuple", "set", "next", "iter", "enumerate", "zip"})
_KEEPERS = frozenset({"pop", "popleft", "popitem", "get", "keys", "values", "items", "copy", "listdir", "scandir"})
_FOLLOWED = PATH_CALLS | _TEXTS | _CHOOSES | _KEEPERS | {"iterdir", "heappop"}
_GROWS = frozenset({"append", "appendleft", "add", "insert", "extend", "put", "heappush", "setdefault"})
_INNER = (ast.JoinedStr, ast.FormattedValue, ast.BinOp, ast.IfExp, ast.BoolOp, ast.Tuple, ast.List, ast.Starred)
_PARTS = frozenset({"parent", "name", "stem", "path"})
_STARTS = ("spawn", "start_processes")
_MOST = 120


def may_be_own(at: FailingLine, path: ast.expr, spot: Spot) -> bool:
    """With the rank, a draw, the time, a temporary folder or the host in it; also where the source does not show it."""
    waiting, seen = [Part(path, spot)], set[tuple[int, int]]()
    while waiting:
        part = waiting.pop(0)
        key = (id(part.node), id(part.spot.scope))
        if key in seen:
            continue
        seen.add(key)
        if (
            len(seen) > _MOST
            or _OWN.search(ast.unparse(part.node)) is not None
            or (isinstance(part.node, ast.expr) and reads_rank(part.node))
        ):
            return True
        found = [*_behind(at, part)]
        if not found and _is_open(at, part):
            return True
        waiting += found
    return False


def _behind(at: FailingLine, part: Part) -> Iterator[Part]:
    """A step back."""
    node, spot = part.node, part.spot
    name = variable(node)
    if name is not None:
        yield from (Part(_item(value, index), place) for value, place, index in values_held(at, name, spot))
        yield from _kept(name, spot)
    elif isinstance(node, ast.Assign):  # `kept[path] = loss`, `paths[n] = path`
        yield from (Part(item.slice, spot) for item in node.targets if isinstance(item, ast.Subscript))
        yield Part(node.value, spot)
    elif isinstance(node, ast.Subscript):
        yield Part(node.value, spot)
    elif isinstance(node, ast.Call):
        yield from _called(at, node, spot)
    elif isinstance(node, (*_INNER, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.comprehension, ast.Dict)):
        yield from (Part(item, spot) for item in ast.iter_child_nodes(node) if isinstance(item, ast.expr))
        for item in getattr(node, "generators", ()):
            yield Part(item.iter, spot)
    elif isinstance(node, ast.Attribute) and node.attr in _PARTS:
        yield Part(node.value, spot)


def _item(value: ast.AST, index: int | None) -> ast.AST:
    """`a` of `self.folder, self.rank = a, b`."""
    items = value.elts if isinstance(value, (ast.Tuple, ast.List)) and index is not None else []
    return items[index] if index is not None and index < len(items) else value


def _called(at: FailingLine, call: ast.Call, spot: Spot) -> Iterator[Part]:
    found = function_of(at, call, spot)
    if found is not None:
        place = Spot(found[1].file, found[1].tree, found[0], found[0].end_lineno or 0, call=(call, spot))
        yield from (
            Part(item.value, place) for item in own_nodes(found[0]) if isinstance(item, ast.Return) and item.value
        )
    elif called_name(call) in _FOLLOWED:
        yield from (Part(item, spot) for item in call.args)
        if isinstance(call.func, ast.Attribute):
            yield Part(call.func.value, spot)


def _kept(name: str, spot: Spot) -> Iterator[Part]:
    """What lines append to a list or another container."""
    owner = class_around(spot.tree, spot.scope) if name.startswith("self.") else None
    methods: list[Scope] = (
        [item for item in owner.body if isinstance(item, ast.FunctionDef)] if owner is not None else []
    )
    for scope in methods or [spot.scope]:
        for item in own_nodes(scope):
            if isinstance(item, ast.Call) and called_name(item) in _GROWS:
                target = item.func.value if isinstance(item.func, ast.Attribute) else None
                if variable(target) == name if target is not None else False:
                    place = Spot(spot.file, spot.tree, scope, item.lineno)
                    yield from (Part(given, place if scope is not spot.scope else spot) for given in item.args)


def _is_open(at: FailingLine, part: Part) -> bool:
    """Of a parameter, or an attribute of another object: whether a line of the program may give it the rank."""
    node = part.node
    if isinstance(node, ast.Attribute):
        return any(_sets_rank(tree, node.attr) for tree in at.files.values())
    own = isinstance(node, ast.Name) and node.id not in ("self", "cls") and is_parameter(part.spot.scope, node.id)
    return own and isinstance(node, ast.Name) and _given_rank(at, part.spot, node.id)


def _given_rank(at: FailingLine, spot: Spot, name: str) -> bool:
    """By any call of its function that the source shows; nothing is known where there is none.

    The first parameter of a function that spawn() starts is the number of the process.
    """
    function, file = spot.scope, spot.file
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or file is None:
        return True
    owner = class_around(spot.tree, function) if function.name == "__init__" else None
    if owner is not None:
        calls = [item.call for item in _constructions(at, owner.name)]
        given = [argument_of(item, function, name) for item in calls]
        return not calls or any(item is not None and reads_rank(item) for item in given)
    found = [*calls_of(at.files, file, function)]
    first = next((item for item in parameters(function) if item not in ("self", "cls")), None)
    if name == first and any(called_name(item.call) in _STARTS for item in found):
        return True
    values = [(item, item.argument(function, name)) for item in found]
    return not found or any(value is not None and _is_of_each(item, value) for item, value in values)


def _constructions(at: FailingLine, name: str) -> Iterator[ProgramCall]:
    yield from (ProgramCall(file, tree, call) for file, tree, call in calls_named(at.files, name))


def _is_of_each(found: ProgramCall, value: ast.expr) -> bool:
    """With the rank in it, or what the loop that starts the processes goes through."""
    loops = loops_around(found.tree, found.call.lineno)
    targets = {variable(item) for loop in loops if not isinstance(loop, ast.While) for item in nodes_of(loop.target)}
    return reads_rank(value) or (
        found.passed is not None and any(variable(item) in targets for item in nodes_of(value) if variable(item))
    )


def _sets_rank(tree: ast.Module, attribute: str) -> bool:
    for item in nodes_of(tree):
        if isinstance(item, ast.keyword) and item.arg == attribute and reads_rank(item.value):
            return True
        if isinstance(item, (ast.Assign, ast.AugAssign)) and reads_rank(item.value):
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            if any(isinstance(one, ast.Attribute) and one.attr == attribute for one in targets):
                return True
    return False
