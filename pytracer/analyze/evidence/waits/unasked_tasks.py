"""Tasks of a pool of processes whose results nobody asks for: an error of one, also in passing it on, stays there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.evidence.syntax.bindings import lines_that_bind, set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, is_parameter, own_nodes, scope_of, spans
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_POOLS = {
    "Pool": ("apply_async", "map_async", "starmap_async", "imap", "imap_unordered"),
    "ProcessPoolExecutor": ("submit", "map"),
}
# CPython, multiprocessing: context.assert_spawning() refuses these anywhere but in a process that is being started.
_INHERITED = frozenset({"Queue", "JoinableQueue", "SimpleQueue", "Lock", "RLock", "Semaphore", "Event", "Condition"})
_MODULES = ("multiprocessing", "torch.multiprocessing", "multiprocess")
_CALLBACK = "error_callback"


class UnaskedTasks(msgspec.Struct, frozen=True):
    """`refused`: an argument that cannot be passed, what made it, and the line."""

    line: int
    method: str
    pool: str
    before: int
    refused: tuple[str, str, int] | None = None

    @property
    def words(self) -> str | None:
        """For the headline; None where it is not known to be the reason."""
        if self.refused is None:
            return None
        name, made, _ = self.refused
        return f"line {self.line} passes `{name}`, made by `{made}`, to {self.method}(), which cannot send it to a task"

    @property
    def advice(self) -> str:
        """How the error is to be seen, and what to pass instead."""
        ask = "and call its result()" if self.pool != "Pool" else "and call its get()"
        if "map" in self.method and not self.method.endswith("async"):
            ask = "and iterate over it"
        ask += ", or pass error_callback=print" if self.method.endswith("async") else ""
        if self.refused is None:
            return (
                f"Line {self.line} gives tasks to a pool by {self.method}(), and nobody asks for their results before "
                f"line {self.before}: an error of a task, also that its arguments cannot be pickled (a queue, a lock, "
                f"a lambda), stays in there unseen. Keep what {self.method}() returns {ask}."
            )
        name, made, line = self.refused
        kind = made.removesuffix("()").rpartition(".")[2]
        return (
            f"`{name}` (line {line}: `{made}`) cannot be an argument of a task (line {self.line}): multiprocessing "
            f"passes it only to a process that it starts. The task does not run, and nobody asks for the error. Pass "
            f"`mp.Manager().{kind}()`, or this one by initializer= and initargs= of {self.pool}. To see such errors, "
            f"keep what {self.method}() returns {ask}."
        )


def unasked_tasks(view: ProcessView, wait: ProcessWait) -> UnaskedTasks | None:
    """Of the function that waits, above its line; first those with an argument that is refused."""
    tree = syntax_tree(view.process.snapshot, wait.at) if wait.at is not None else None
    if tree is None or wait.at is None or wait.at.line is None:
        return None
    scope = scope_of(tree, wait.at.line)
    branches = [item for item in own_nodes(scope) if isinstance(item, ast.If) and not spans(item, wait.at.line)]
    found = [
        UnaskedTasks(call.lineno, called_name(call) or "", pool, wait.at.line, _refused(tree, scope, call))
        for call, pool in given_tasks(tree, scope)
        if call.lineno < wait.at.line and is_unasked(scope, call, wait.at.line)
        if not any(spans(item, call.lineno) for item in branches)
    ]
    return min(found, key=lambda item: item.refused is None, default=None)


def given_tasks(tree: ast.Module, scope: Scope) -> Iterator[tuple[ast.Call, str]]:
    """Those that give tasks to a pool of processes, with the class of the pool."""
    for item in own_nodes(scope):
        owner = (
            variable(item.func.value) if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) else None
        )
        if not isinstance(item, ast.Call) or owner is None:
            continue
        made = _made(tree, scope, owner)
        if made is None:
            continue
        for pool, methods in _POOLS.items():
            own = pool != "Pool" or _of_multiprocessing(tree, made)
            if called_name(made) == pool and called_name(item) in methods and own:
                yield item, pool


def _made(tree: ast.Module, scope: Scope, name: str) -> ast.Call | None:
    """The only value of a variable, if that is a call."""
    if is_parameter(scope, name):
        return None
    bound = lines_that_bind(scope, name) or lines_that_bind(tree, name)
    if name.startswith("self."):
        bound = [(0, value) for item in nodes_of(tree) for target, value in set_by(item) if variable(target) == name]
    value = bound[0][1] if len(bound) == 1 else None
    return value if isinstance(value, ast.Call) else None


def _of_multiprocessing(tree: ast.Module, call: ast.Call) -> bool:
    """`mp.Queue()`, `ctx.Queue()`, `Queue()`: not queue.Queue(), and not that of a Manager."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(owner, ast.Call):
        return called_name(owner) == "get_context"
    if (imported_as(tree, call.func) or "").rpartition(".")[0] in _MODULES:
        return True
    return isinstance(owner, ast.Name) and any(
        isinstance(item, ast.Assign)
        and isinstance(item.value, ast.Call)
        and called_name(item.value) == "get_context"
        and any(variable(part) == owner.id for part in item.targets)
        for item in nodes_of(tree)
    )


def is_unasked(scope: Scope, call: ast.Call, line: int) -> bool:
    """A statement of its own, or what is kept in a variable or list that nothing reads before the line."""
    if any(item.arg in (None, _CALLBACK) for item in call.keywords):
        return False
    for item in own_nodes(scope):
        if isinstance(item, ast.Expr) and item.value is call:
            return True
        if isinstance(item, ast.Assign) and item.value is call and len(item.targets) == 1:
            name = item.targets[0]
            return isinstance(name, ast.Name) and not _read(scope, name.id, line)
        if isinstance(item, ast.Expr) and isinstance(item.value, ast.Call) and call in item.value.args:
            kept = item.value.func
            if isinstance(kept, ast.Attribute) and kept.attr == "append" and isinstance(kept.value, ast.Name):
                return not _read(scope, kept.value.id, line)
        if isinstance(item, ast.Assign) and isinstance(item.value, ast.ListComp) and item.value.elt is call:
            name = item.targets[0]
            return isinstance(name, ast.Name) and not _read(scope, name.id, line)
    return False


def _read(scope: Scope, name: str, line: int) -> bool:
    """Anything but `name.append(...)`, above the line or in a loop around it."""
    filled = {id(item.value) for item in nodes_of(scope) if isinstance(item, ast.Attribute) and item.attr == "append"}
    loops = (item for item in own_nodes(scope) if isinstance(item, (ast.For, ast.While)))
    last = max((item.end_lineno or 0 for item in loops if spans(item, line)), default=line)
    return any(
        isinstance(item, ast.Name) and item.id == name and isinstance(item.ctx, ast.Load) and id(item) not in filled
        for item in nodes_of(scope)
        if getattr(item, "lineno", 0) <= last
    )


def _refused(tree: ast.Module, scope: Scope, call: ast.Call) -> tuple[str, str, int] | None:
    given = [*call.args[1:], *(item.value for item in call.keywords if item.arg not in ("callback", "chunksize"))]
    for name in (name for item in given for name in _passed(item)):
        made = _made(tree, scope, name)
        if made is not None and called_name(made) in _INHERITED and _of_multiprocessing(tree, made):
            return name, f"{ast.unparse(made.func)}()", made.lineno
    return None


def _passed(node: ast.AST) -> Iterator[str]:
    """Variables that are passed as they are: alone, or in tuples and lists."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, (ast.Tuple, ast.List)):
        for item in node.elts:
            yield from _passed(item)
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        yield from _passed(node.elt)
    elif isinstance(node, ast.Dict):
        for item in node.values:
            yield from _passed(item)
