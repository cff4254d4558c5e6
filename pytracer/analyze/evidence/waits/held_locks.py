"""Locks between processes by their names in the source: who is inside of one, and whether two lines take the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, withs_around
from pytracer.analyze.evidence.waits.waits import main_native, main_stack, wait_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_SEMAPHORE = "_multiprocessing_SemLock_acquire_impl"  # CPython; threading has locks of another kind
_SYNCHRONIZE = Pattern(r"/multiprocess(?:ing)?/synchronize\.py$")
_MADE = ("Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition")
_NEAR, _MOST_FRAMES = 8, 32


class Inside(msgspec.Struct, frozen=True):
    """Where a process was between the taking of a lock and its release. `line`: of the taking, in the file of `frame`.

    `inner`: its innermost line of the program, which `frame` had called or is.
    """

    lock: str
    line: int
    frame: PythonFrame
    inner: PythonFrame


def waits_between(view: ProcessView) -> bool:
    """Whether its main thread waits for a lock of multiprocessing in a line of the program."""
    wait = wait_of(view)
    if wait is None or wait.kind != "lock":
        return False
    stack = main_stack(view)
    by_file = bool(stack) and _SYNCHRONIZE.search(stack[0].file or "") is not None
    return by_file or any(frame.function == _SEMAPHORE for frame in main_native(view)[:_NEAR])


def taken_at(view: ProcessView, at: PythonFrame) -> dict[str, str]:
    """The last names of what `with lock:` or `lock.acquire()` of that line takes, with the whole text."""
    tree, found = syntax_tree(view.process.snapshot, at), dict[str, str]()
    for node in nodes_of(tree) if tree is not None else ():
        taken = [item.context_expr for item in node.items] if isinstance(node, ast.With) else []
        taken += [item] if (item := _of_call(node, "acquire")) is not None else []
        for part in taken:
            name = last_name(part)
            if part.lineno == at.line and name is not None:
                found[name] = ast.unparse(part)
    return found


def _of_call(node: ast.AST, method: str) -> ast.expr | None:
    """`lock` of `lock.acquire()`."""
    match node:
        case ast.Call(func=ast.Attribute(value=lock, attr=found)) if found == method:
            return lock
    return None


def inside_of(view: ProcessView, stack: Sequence[PythonFrame], wanted: Mapping[str, str]) -> Inside | None:
    """Where a thread took one of these by `with`, or by acquire(), and was not beyond the release."""
    stack = stack[:_MOST_FRAMES]
    own = [frame for frame in stack if not is_library_file(frame.file)]
    called = stack[stack.index(own[0]) - 1].function if own and stack[0] != own[0] else None
    if (called or "").startswith("Condition.wait"):
        return None  # which lets go of it meanwhile
    for frame in own:
        tree = syntax_tree(view.process.snapshot, frame)
        if tree is None or frame.line is None:
            continue
        for taken, line in _held_around(tree, frame.line):
            if last_name(taken) in wanted:
                return Inside(ast.unparse(taken), line, frame, own[0])
    return None


def _held_around(tree: ast.Module, line: int) -> Iterator[tuple[ast.expr, int]]:
    """What the function has taken where that line runs."""
    for entered in withs_around(tree, line):
        yield from ((item.context_expr, item.context_expr.lineno) for item in entered.items)
    nodes = [*own_nodes(scope_of(tree, line))]
    for node in nodes:
        taken = _of_call(node, "acquire")
        if taken is None or taken.lineno >= line:
            continue
        released = [item.lineno for other in nodes if (item := _of_call(other, "release")) is not None
                    and ast.unparse(item) == ast.unparse(taken)]  # fmt: skip
        if any(item > line for item in released) and not any(taken.lineno <= item <= line for item in released):
            yield taken, taken.lineno


def is_one_lock(first: ProcessView, at: PythonFrame, killed: ProcessView, inside: Inside) -> bool:
    """Whether both lines name the same one: the same statement, or a name that the program gives to one lock only."""
    if (at.file, at.line) == (inside.frame.file, inside.line):
        return True
    trees = {at.file: syntax_tree(first.process.snapshot, at)}
    trees[inside.frame.file] = syntax_tree(killed.process.snapshot, inside.frame)
    name = inside.lock.rpartition(".")[2]
    made = [item for tree in trees.values() if tree is not None for item in _made(tree, name)]
    return len(made) == 1


def _made(tree: ast.Module, name: str) -> Iterator[ast.Assign]:
    for item in nodes_of(tree):
        if not (isinstance(item, ast.Assign) and isinstance(item.value, ast.Call)):
            continue
        if called_name(item.value) in _MADE and any(last_name(target) == name for target in item.targets):
            yield item
