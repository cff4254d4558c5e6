"""A value that each rank draws or makes for itself: back from a path or a key over all that it is made of.

A number that `np.random` draws without a seed, the process's id, the time, a temporary folder. Where the ranks agree on
the value, or one of them alone makes it, nothing is found.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.stored.paths import PATH_CALLS
from pytracer.analyze.evidence.slicing.by_rank import before
from pytracer.analyze.evidence.slicing.callers import only_call
from pytracer.analyze.evidence.slicing.data_numbers import is_passed_on
from pytracer.analyze.evidence.slicing.defaulted import defaulted
from pytracer.analyze.evidence.slicing.drawn_sizes import drawn_value
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_of_rank, rank_branch
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters, scope_of, spans
from pytracer.analyze.naming import LineWords, line_in

MODULES = ("os", "os.path", "glob", "osp", "path")
STORE_SETS = ("set", "add", "append", "multi_set", "compare_set")
_SENDS = frozenset(
    {"send", "put", "put_nowait", "write", "write_text", "dump", "send_object_list", "isend", "rpc_sync", "rpc_async"}
    | {"Popen", "run", "Process", "broadcast", "broadcast_object_list", "scatter_object_list", "all_gather_object"}
    | {"gather_object", "setdefault", "putenv", *STORE_SETS}
    | {"Thread", "submit", "apply_async", "system", "call", "check_call", "check_output", "spawn", "start_processes"}
)
_RUNS, _STARTERS = ("run", "call"), ("subprocess", "sp")
_STABLE = "getpid"  # each call gives the process the same
_MOST = 80
_OF_PROCESS = frozenset(
    {"uuid.uuid1", "uuid.uuid4", "os.getpid", "os.urandom", "secrets.token_hex", "secrets.token_urlsafe"}
    | {"secrets.token_bytes", "secrets.randbelow"}
    | {"tempfile.mkdtemp", "tempfile.mkstemp", "tempfile.mktemp", "tempfile.TemporaryDirectory"}
    | {"tempfile.NamedTemporaryFile"}
)
OF_TIME = frozenset(
    {"time.time", "time.time_ns", "time.monotonic", "time.perf_counter", "time.strftime", "time.ctime"}
    | {"datetime.datetime.now", "datetime.datetime.today", "datetime.datetime.utcnow", "datetime.now"}
)
_STARTS = frozenset({"spawn", "start_processes", "Process", "Pool", "ProcessPoolExecutor", "fork"})
_PARTS = frozenset({"parent", "name", "stem", "hex", "path", "int"})
_CARRIES = PATH_CALLS | {
    "int",
    "hex",
    "str",
    "repr",
    "round",
    "format",
    "with_name",
    "with_suffix",
    "strftime",
    "isoformat",
    "timestamp",
    "replace",
    "strip",
    "lower",
    "upper",
    "encode",
    "decode",
    "md5",
    "sha1",
    "sha256",
    "hexdigest",
    "item",
}


class OwnValue(msgspec.Struct, frozen=True):
    """`call`, of `spot`, makes it another one on each rank. `sure`: whether it must be; of a time it may be the same.

    `reason`, `change`: of that line, in words. `names`: the variables that it went through. `maker`: the line that
    makes the generator which draws.
    """

    call: ast.Call
    spot: Spot
    reason: str
    change: str
    sure: bool
    names: tuple[str, ...] = ()
    maker: LineWords | None = None


class OwnValues:
    """Asked for values of one process; `here`: the file that is spoken of."""

    def __init__(self, slice_: Slice, files: Mapping[str, ast.Module], here: str | None) -> None:
        self._slice = slice_
        self._files = files
        self._here = here
        self._way = tuple(iter_spots(slice_))

    def of(self, value: ast.expr, spot: Spot) -> tuple[OwnValue | None, list[Made]]:
        """The nearest part that is another one on each rank, and all parts up to it; none where the ranks share one."""
        waiting: list[tuple[ast.AST, Spot, tuple[str, ...], bool]] = [(value, spot, (), False)]
        seen: set[tuple[str, int, int]] = set()
        parts: list[Made] = []
        while waiting and len(seen) < _MOST:
            node, place, names, alone = waiting.pop(0)
            made = defaulted(self._slice, self._slice.made(node, place, calls=False), calls=False)
            key = (ast.unparse(made.node), id(made.spot.scope), made.spot.line)
            if self._is_common(made, spot) or any(_starts_ranks(at) for at in (place, *(at for _, at in made.through))):
                return None, []
            if key in seen or not isinstance(made.node, ast.expr):
                continue
            seen.add(key)
            parts.append(made)
            ways = (*(part for part, _ in made.through), made.node)
            names = (*names, *(name for part in ways if (name := variable(part)) is not None))
            found = self._of_call(made)
            if found is not None:
                return (None, []) if _is_alone(found, called=alone) else (structs.replace(found, names=names), parts)
            alone = alone or self._calls_alone(made)
            waiting += ((*item, names, alone) for item in self._behind(made.node, made.spot))
        return None, parts

    def _behind(self, node: ast.expr, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
        """A step back. Not into what makes an object of which the value is only a part.

        What may stand in for another value (`given or draw()`) counts only where that is known to be None.
        """
        if isinstance(node, ast.BoolOp):
            yield node.values[0], spot
        elif isinstance(node, ast.Attribute) and variable(node) is None:
            yield from [(node.value, spot)] if node.attr in _PARTS else []
        elif isinstance(node, (ast.Name, ast.Attribute)):
            found = [*before(self._slice, node, spot)]
            yield from (found or self._passed(node, spot)) if len(found) <= 1 else ()
        elif isinstance(node, ast.Call) and self._slice.function(node, spot) is not None:
            yield from before(self._slice, node, spot)
        elif isinstance(node, ast.Call):
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            carries = called_name(node) in _CARRIES
            yield from ((item, spot) for item in node.args if carries)
            yield from [(owner, spot)] if carries and owner is not None and ast.unparse(owner) not in MODULES else []
        elif isinstance(node, ast.List) and not node.elts:
            yield from before(self._slice, node, spot)
        elif not isinstance(node, ast.IfExp):
            yield from ((item, spot) for item in _inside(node))

    def _passed(self, node: ast.expr, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
        """What the only call of a function passes for a parameter, in another file of the program."""
        function, name = spot.scope, variable(node)
        if not isinstance(function, ast.FunctionDef) or name is None or spot.call is not None:
            return
        if name not in parameters(function):
            return
        called = only_call(self._files, function)
        value = called.argument(function, name) if called is not None else None
        if called is not None and value is not None:
            line = called.call.lineno
            yield value, Spot(called.file, called.tree, scope_of(called.tree, line), line)

    def _of_call(self, made: Made) -> OwnValue | None:
        call, spot = made.node, made.spot
        if not isinstance(call, ast.Call):
            return None
        where = f"{line_in(spot.file, call.lineno, self._here)} (`{source(call.func)}`)"
        drawn = drawn_value(self._slice, self._files, call, spot)
        if drawn is not None:
            alike = drawn.maker_words(self._here)
            seed = f"seed `{drawn.library}` alike on all of them before" if drawn.library is not None else alike
            change = f"draw it on rank 0 and broadcast it (broadcast_object_list), or {seed}"
            maker = line_in(drawn.maker[1], drawn.maker[0], None) if drawn.maker is not None else None
            return OwnValue(call, spot, drawn.words(self._here), change, sure=True, maker=maker)
        name = imported_as(spot.tree, call.func)
        change = "make it on rank 0, and broadcast it (broadcast_object_list)"
        if name in _OF_PROCESS:
            return OwnValue(call, spot, f"{where} gives each process another one", change, sure=True)
        if name in OF_TIME:
            return OwnValue(call, spot, f"{where} takes the time of each process", change, sure=False)
        return None

    def _is_common(self, made: Made, start: Spot) -> bool:
        """Whether the ranks share it, or one rank alone makes it, and the others may get it from that one.

        `start`: where the value is read. A branch that leads there is this rank's own; a constant is of whoever reads
        it.
        """
        for node, spot in (*made.through, (made.node, made.spot)):
            names = [item.id for item in nodes_of(node) if isinstance(item, ast.Name)]
            if any(is_passed_on(name, spot) for name in names):
                return True
            branch = rank_branch(spot.tree, getattr(node, "lineno", spot.line))
            if branch is not None and not self._leads(branch, spot, start) and not isinstance(made.node, ast.Constant):
                return True
            if isinstance(node, ast.IfExp) and is_of_rank(node.test):
                return True
        return False

    def _leads(self, branch: ast.If, spot: Spot, start: Spot) -> bool:
        return any(at.file == spot.file and spans(branch, at.line) for at in (start, *self._way))

    def _calls_alone(self, made: Made) -> bool:
        """Whether one rank calls a function of the program, which may draw the value on that rank alone."""
        call, spot = made.node, made.spot
        if not isinstance(call, ast.Call) or rank_branch(spot.tree, call.lineno) is None:
            return False
        return self._slice.function(call, spot) is not None


def _inside(node: ast.AST) -> Iterator[ast.expr]:
    """What an expression is made of, down to variables, calls and choices."""
    for item in ast.iter_child_nodes(node):
        if isinstance(item, (ast.Name, ast.Attribute, ast.Call, ast.BoolOp, ast.IfExp)):
            yield item
        else:
            yield from _inside(item)


def iter_spots(slice_: Slice) -> Iterator[Spot]:
    """Of the frames on the stack, as far as they are known."""
    depth = 0
    while (spot := slice_.spot(depth)) is not None:
        yield spot
        depth += 1


def _is_alone(found: OwnValue, *, called: bool) -> bool:
    """Whether one rank alone draws; what an object was made with, it has from before the call."""
    scope = found.spot.scope
    made = isinstance(scope, ast.FunctionDef) and scope.name == "__init__"
    return rank_branch(found.spot.tree, found.call.lineno) is not None or (called and not made)


def _starts_ranks(spot: Spot) -> bool:
    """Whether the function starts processes: what it makes it may give to all of them."""
    return any(isinstance(item, ast.Call) and called_name(item) in _STARTS for item in own_nodes(spot.scope))


def is_handed_out(files: Mapping[str, ast.Module], value: OwnValue) -> bool:
    """Whether the program may send it, or write it where another rank reads it."""
    names = {name.rpartition(".")[2] for name in value.names}
    stable = ast.unparse(value.call) if called_name(value.call) == _STABLE else None
    own = {item.name for tree in files.values() for item in nodes_of(tree) if isinstance(item, ast.FunctionDef)}
    nodes = (node for tree in files.values() for node in nodes_of(tree) if not _runs_own(node, own))
    return any(_names(item, names, stable) for node in nodes for item in _sent(node))


def _runs_own(node: ast.AST, own: Collection[str]) -> bool:
    """`trainer.run(...)`, of a method of the program: no other process is started."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr in _RUNS and node.func.attr in own and ast.unparse(node.func.value) not in _STARTERS


def _sent(node: ast.AST) -> Sequence[ast.expr]:
    """What a call sends: of `store.set(key, value)` the value, of `json.dump(value, file)` that."""
    if isinstance(node, ast.Assign) and "environ" in ast.unparse(node.targets[0]):
        return [node.value]
    if not isinstance(node, ast.Call) or called_name(node) not in _SENDS:
        return ()
    if called_name(node) == "dump":
        return node.args[:1]
    return passed_values(node)[called_name(node) in STORE_SETS :]


def _names(node: ast.expr, names: Collection[str], call: str | None) -> bool:
    held = (item for item in nodes_of(node) if isinstance(item, (ast.Name, ast.Attribute)))
    if any((item.id if isinstance(item, ast.Name) else item.attr) in names for item in held):
        return True
    return call is not None and call in ast.unparse(node)
