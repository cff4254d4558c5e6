"""Who takes a lock: by the lines of its file, and by where the threads of a process were at its end."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import (
    Function,
    class_around,
    class_named,
    function_named,
    own_nodes,
    qualified_name,
    scope_of,
    withs_around,
)
from pytracer.analyze.evidence.waits.waits import end_of
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_CHILDREN = ("Process", "Pool", "ProcessPoolExecutor", "DataLoader", "fork", "spawn", "start_processes")
_MODULE = "the module"
_CALLS, MOST_FRAMES = 3, 32


class Holder(msgspec.Struct, frozen=True):
    """A thread of the parent that takes the lock at `line` of `function`. `started`: the line that makes it.

    `name`: `thread refresher`. `at`: where it was when the parent ended, if inside of that `with`.
    """

    name: str
    started: int | None
    line: int
    function: str
    at: PythonFrame | None = None


class Lock(msgspec.Struct, frozen=True):
    """Of a file. `owner`: the class whose attribute it is, of a lock `self.lock`."""

    tree: ast.Module
    at: PythonFrame
    text: str
    names: frozenset[str]
    owner: ast.ClassDef | None

    def is_it(self, node: ast.expr, line: int) -> bool:
        """By its name; `self.lock` in methods of the same class alone."""
        if (last_name(node) or "") not in self.names:
            return False
        own = ast.unparse(node).startswith("self.")
        if own and self.text.startswith("self.") and self.owner is not None:
            other = class_around(self.tree, scope_of(self.tree, line))
            related = other is not None and (self.owner.name in _bases(other) or other.name in _bases(self.owner))
            return other is self.owner or related
        return True


def _bases(owner: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).rpartition(".")[2] for base in owner.bases]


def entered_around(view: ProcessView, frame: PythonFrame, lock: Lock) -> int | None:
    """The line of a `with` of the lock in whose body a frame is."""
    if frame.file != lock.at.file or frame.line is None or syntax_tree(view.process.snapshot, frame) is None:
        return None
    for node in withs_around(lock.tree, frame.line):
        for item in node.items:
            if lock.is_it(item.context_expr, node.lineno):
                return item.context_expr.lineno
    return None


def at_end(parent: ProcessView, lock: Lock) -> Holder | None:
    """The one thread of the parent, beside its main thread, that was inside of a `with` of the lock at its end."""
    end, main = end_of(parent), parent.process.snapshot.main_pthread
    found = []
    for pthread, frames in end.python_threads if end is not None else ():
        if pthread == main:
            continue
        stack = [python_frame(frame) for frame in frames[:MOST_FRAMES]]
        for frame in stack:
            line = entered_around(parent, frame, lock)
            if line is not None:
                found.append((line, frame, [item for item in stack if item.file == lock.at.file]))
                break
    if len(found) != 1:
        return None
    line, frame, own = found[0]
    outer = (own[-1].function or "?") if own else "?"
    starter = next((item for item in _threads(lock.tree) if item.runs(outer)), None)
    name = starter.name if starter is not None else f"the thread of {outer}()"
    return Holder(name, starter.line if starter is not None else None, line, frame.function or "?", frame)


class _Thread(msgspec.Struct, frozen=True):
    """A call that makes a thread, and the function that it runs."""

    name: str
    line: int
    function: Function

    def runs(self, function: str) -> bool:
        """By the name of a frame's function."""
        return function.rpartition(".")[2] == getattr(self.function, "name", None)


def _threads(tree: ast.Module) -> Iterator[_Thread]:
    """`Thread(target=refresh, name="stats")`, and calls of the classes that are threads."""
    classes = {item.name for item in nodes_of(tree) if isinstance(item, ast.ClassDef) and "Thread" in _bases(item)}
    for item in nodes_of(tree):
        name = called_name(item) if isinstance(item, ast.Call) else None
        if name is None or not isinstance(item, ast.Call):
            continue
        if name in ("Thread", "Timer"):
            target = keyword_value(item, "target", "function") or (item.args[1] if len(item.args) > 1 else None)
            run = function_named(tree, last_name(target) or "") if target is not None else None
            if run is not None:
                yield _Thread(_named(item) or f"the thread of {run.name}()", item.lineno, run)
            continue
        owner = class_named(tree, name) if name in classes else None
        if owner is not None:
            run = next((part for part in owner.body if isinstance(part, ast.FunctionDef) and part.name == "run"), None)
            if run is not None:
                calls = (
                    part for part in nodes_of(owner) if isinstance(part, ast.Call) and called_name(part) == "__init__"
                )
                name = next((text for part in calls if (text := _named(part))), f"thread {owner.name}")
                yield _Thread(name, item.lineno, run)


def _named(call: ast.Call) -> str | None:
    """`thread refresher`, of `name="refresher"`."""
    node = keyword_value(call, "name")
    return f"thread {node.value}" if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def by_source(lock: Lock) -> Holder | None:
    """The one thread that the program starts, not after the children, whose functions take the lock.

    None where another function takes it by acquire(): the thread that forks may have called that.
    """
    found, lines = [], set[int]()
    for thread in _threads(lock.tree):
        if _comes_after_children(lock.tree, thread.line):
            continue
        taken = [*_takes(lock, thread.function, _CALLS)]
        lines |= {line for line, _ in taken}
        if taken:
            found.append(Holder(thread.name, thread.line, *taken[0]))
    others = any(line not in lines for line, _ in acquired(lock))
    return found[0] if len({item.name for item in found}) == 1 and not others else None


def acquired(lock: Lock) -> tuple[tuple[int, str], ...]:
    """Lines that call acquire() of the lock, and their functions; not the one that waits."""
    return tuple(
        (item.lineno, qualified_name(lock.tree, scope_of(lock.tree, item.lineno), _MODULE))
        for item in nodes_of(lock.tree)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "acquire"
        if item.lineno != lock.at.line and lock.is_it(item.func.value, item.lineno)
    )


def _comes_after_children(tree: ast.Module, line: int) -> bool:
    """Whether its function starts children only above that line."""
    made = [
        item.lineno
        for item in own_nodes(scope_of(tree, line))
        if isinstance(item, ast.Call) and called_name(item) in _CHILDREN
    ]
    return bool(made) and max(made) < line


def _takes(lock: Lock, function: Function, depth: int) -> Iterator[tuple[int, str]]:
    """Line and function of each `with lock` and `lock.acquire()`, also in the functions that it calls."""
    for item in own_nodes(function):
        taken = [part.context_expr for part in item.items] if isinstance(item, ast.With) else []
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "acquire":
            taken = [item.func.value]
        for part in taken:
            if lock.is_it(part, part.lineno):
                yield part.lineno, qualified_name(lock.tree, function, _MODULE)
    if depth:
        for item in own_nodes(function):
            called = function_named(lock.tree, called_name(item) or "") if isinstance(item, ast.Call) else None
            if called is not None and called is not function:
                yield from _takes(lock, called, depth - 1)
