"""The Python thread that was inside torch when the interpreter shut down: what it runs, and who made it.

Its frames are gone by then. What is left are the storages that it made and freed, with their lines, and the lines of
the program that make threads.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.ends.asked_events import AskedEvent, asked_event
from pytracer.analyze.evidence.native.aborts import aborted_at_shutdown
from pytracer.analyze.evidence.native.native_stack import functions
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.constants import is_true
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, scope_of, spans
from pytracer.analyze.naming import place_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.storages import PythonFrame as StoragePlace
from pytracer.report.job import PythonFrame

_LONGEST = 50
_MOST_FILES = 4
_POOLS = ("ThreadPool", "ThreadPoolExecutor", "start_new_thread", "run_in_executor", "to_thread")
_ROUNDS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp)
_OPERATOR = Pattern(r"torch::autograd::THPVariable_(\w+)\(")  # Tensor's methods, and torch's functions
_PYTHON = "_PyEval_EvalFrame"
_DAEMONS = ("self.daemon", "daemon")
_ENDS = "A daemon thread may not be inside torch when the interpreter shuts down. The work of the main thread was done."


class MadeThread(msgspec.Struct, frozen=True):
    """A thread that the program makes. `runs`: the function. `made`: the line and text of its constructor.

    `daemon`: the line that makes it one. `starts`: the line of start(). `loop`: an endless `while` of the function.
    `until`: the function that starts it, and its last line; None where that is not the end of the program.
    `several`: whether a loop makes one in each round.
    """

    runs: str
    made: tuple[int, str]
    daemon: int | None
    starts: tuple[int, str] | None
    loop: tuple[int, str] | None
    until: tuple[str, int] | None
    several: bool = False
    asks: AskedEvent | None = None
    """What its loop asks already."""


class ThreadAtShutdown(msgspec.Struct, frozen=True):
    """`last`: the line of the program at which it last made or freed a tensor. `operator`: what it called of torch."""

    last: PythonFrame
    thread: MadeThread | None
    operator: str | None = None

    @property
    def what(self) -> str:
        """Behind `aborted:`."""
        made = self.thread
        who = "a Python thread"
        if made is not None:
            kind = "daemon thread" if made.daemon is not None else "Python thread"
            who = f"the {kind} that runs" if not made.several else f"one of the {kind}s that run"
            who += f" {made.runs}() (line {made.made[0]}: `{made.made[1]}`)"
        called = f" (`{self.operator}`)" if self.operator is not None else ""
        return (
            f"{who} was inside torch{called} while the interpreter was shutting down; it last made or freed a tensor "
            f"at {place_words(self.last)}"
        )

    @property
    def advice(self) -> str:
        """How the thread is to end before the program does."""
        made = self.thread
        if made is None:
            return (
                f"Stop the thread that runs {place_words(self.last)} before the program ends: an Event that its loop "
                f"looks at, then set() and join(); of a pool, close() and join(). {_ENDS}"
            )
        what, it = ("each such thread", "each") if made.several else ("that thread", "it")
        lines = [f"line {made.daemon} makes {what} a daemon"] if made.daemon is not None else []
        lines += [f"line {made.starts[0]} starts {it} (`{made.starts[1]}`)"] if made.starts is not None else []
        told = f"{' and '.join(lines)}: " if lines else f"{made.runs}() runs in a thread of line {made.made[0]}: "
        loop = f"`{made.loop[1]}` (line {made.loop[0]})" if made.loop is not None else "its loop"
        where = "before the program ends"
        if made.until is not None:
            where = f"at the end of {made.until[0]}() (line {made.until[1]})" if made.until[0] else "as the last lines"
        if made.asks is not None and made.loop is None:
            return f"{told[0].upper()}{told[1:]}{made.asks.advice(made.runs, where)} {_ENDS}"
        return (
            f"{told[0].upper()}{told[1:]}let {loop} in {made.runs}() ask an Event (`while not stop.is_set()`), and "
            f"call `stop.set()` and `join()` of {'each' if made.several else 'the'} thread {where}. {_ENDS}"
        )


def thread_at_shutdown(view: ProcessView) -> ThreadAtShutdown | None:
    """None where the interpreter did not shut down, or the thread left no line of the program."""
    crash = view.crash
    if crash is None or crash.tid == view.process.snapshot.pid or not aborted_at_shutdown(view):
        return None
    if not any(_PYTHON in name for name in functions(view)):
        return None  # of a library: it only asked for the GIL
    places = sorted(_places(view, crash.tid), key=lambda item: item[0])
    if not places:
        return None
    frames = [PythonFrame(place.function, place.file, place.line) for _, place in places]
    made = _made(view, list(dict.fromkeys(reversed(frames))))
    called = (found[1] for name in functions(view) if (found := _OPERATOR.match(name)) is not None)
    return ThreadAtShutdown(frames[-1], made, next(called, None))


def _places(view: ProcessView, tid: int) -> Iterator[tuple[tuple[int, int], StoragePlace]]:
    """Lines of the program at which a thread made and freed storages, with their order."""
    for item in view.process.snapshot.storages:
        sites = (
            item.allocated_by.place if item.allocated_thread == tid else None,
            item.freed_by.place if item.freed_by is not None and item.freed_thread == tid else None,
        )
        for place in sites:
            if place is not None and not is_library_file(place.file):
                yield item.order, place


def _made(view: ProcessView, frames: list[PythonFrame]) -> MadeThread | None:
    """The thread whose function is among those of the lines; else the only one that these files make."""
    by_file = {frame.file: frame for frame in frames}
    trees = [syntax_tree(view.process.snapshot, frame) for frame in list(by_file.values())[:_MOST_FILES]]
    known = [tree for tree in trees if tree is not None]
    found = [item for tree in known for item in (*_of_targets(tree), *_of_classes(tree))]
    functions = {frame.function or "" for frame in frames}
    running = [item for item in found if any(_is_named(function, item.runs) for function in functions)]
    if not running and any(_has_pool(tree) for tree in known):
        return None
    chosen = running or found
    return chosen[0] if len(chosen) == 1 else None


def _has_pool(tree: ast.Module) -> bool:
    """Whether other threads than those of Thread() may run the program's functions."""
    return any(isinstance(item, ast.Call) and called_name(item) in _POOLS for item in nodes_of(tree))


def _is_named(function: str, runs: str) -> bool:
    """`main.<locals>.refresh` is `refresh`; `Prefetcher.run` is itself, and `run` before CPython 3.11."""
    return function == runs or function.endswith(f".{runs}") or function == runs.rpartition(".")[2]


def _of_targets(tree: ast.Module) -> Iterator[MadeThread]:
    """`Thread(target=refresh, daemon=True)`."""
    functions = {item.name: item for item in nodes_of(tree) if isinstance(item, (ast.FunctionDef))}
    for call in nodes_of(tree):
        if not isinstance(call, ast.Call) or called_name(call) not in ("Thread", "Timer"):
            continue
        target = keyword_value(call, "target", "function")
        name = target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else None
        function = functions.get(name or "")
        if function is not None:
            yield _made_by(tree, call, function, function.name, _daemon(call))


def _of_classes(tree: ast.Module) -> Iterator[MadeThread]:
    """A class that derives from Thread, and has a run() of its own."""
    for owner in nodes_of(tree):
        bases = owner.bases if isinstance(owner, ast.ClassDef) else []
        if not isinstance(owner, ast.ClassDef) or not any(ast.unparse(base).endswith("Thread") for base in bases):
            continue
        run = next((item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "run"), None)
        own = next((line for item in nodes_of(owner) if (line := _makes_daemon(item)) is not None), None)
        for call in nodes_of(tree):
            if run is not None and isinstance(call, ast.Call) and called_name(call) == owner.name:
                yield _made_by(tree, call, run, f"{owner.name}.run", own or _daemon(call))


def _made_by(tree: ast.Module, call: ast.Call, run: ast.FunctionDef, runs: str, daemon: int | None) -> MadeThread:
    scope = scope_of(tree, call.lineno)
    name = next(
        (
            variable(item.targets[0])
            for item in own_nodes(scope)
            if isinstance(item, ast.Assign) and item.value is call and len(item.targets) == 1
        ),
        None,
    )
    named = [item for item in nodes_of(tree) if name is not None and _owner(item) == name]
    starts = next((item for item in named if isinstance(item, ast.Call) and called_name(item) == "start"), None)
    daemon = daemon or next((line for item in own_nodes(scope) if (line := _sets_daemon(item, name)) is not None), None)
    loop = next(
        (
            (item.lineno, f"while {ast.unparse(item.test)}")
            for item in own_nodes(run)
            if isinstance(item, ast.While) and isinstance(item.test, ast.Constant) and item.test.value
        ),
        None,
    )
    return MadeThread(
        runs,
        (call.lineno, shortened(ast.unparse(call), _LONGEST)),
        daemon,
        (starts.lineno, shortened(ast.unparse(starts), _LONGEST)) if starts is not None else None,
        loop,
        _until(tree, call.lineno),
        any(isinstance(item, _ROUNDS) and spans(item, call.lineno) for item in nodes_of(tree)),
        asked_event(tree, run, name, call),
    )


def _until(tree: ast.Module, line: int) -> tuple[str, int] | None:
    """The end of the function that makes it, where that is no method, whose object lives on."""
    scope = scope_of(tree, line)
    if isinstance(scope, ast.Module):
        return "", max((item.end_lineno or 0 for item in scope.body), default=line)
    if isinstance(scope, ast.Lambda) or class_around(tree, scope) is not None:
        return None
    return scope.name, scope.body[-1].end_lineno or line


def _owner(node: ast.AST) -> str | None:
    """`worker` of `worker.start()`."""
    return variable(node.func.value) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None


def _daemon(call: ast.Call) -> int | None:
    return next((word.value.lineno for word in call.keywords if word.arg == "daemon" and is_true(word.value)), None)


def _makes_daemon(node: ast.AST) -> int | None:
    """`super().__init__(daemon=True)`, `self.daemon = True`, `daemon = True`."""
    if isinstance(node, ast.Call) and called_name(node) == "__init__":
        return _daemon(node)
    names = [ast.unparse(item) for item in node.targets] if isinstance(node, ast.Assign) else []
    is_set = isinstance(node, ast.Assign) and is_true(node.value) and any(name in _DAEMONS for name in names)
    return node.lineno if isinstance(node, ast.Assign) and is_set else None


def _sets_daemon(node: ast.AST, name: str | None) -> int | None:
    """`worker.daemon = True`, `worker.setDaemon(True)`."""
    if name is None:
        return None
    if isinstance(node, ast.Assign) and is_true(node.value):
        return node.lineno if any(ast.unparse(item) == f"{name}.daemon" for item in node.targets) else None
    is_call = isinstance(node, ast.Call) and called_name(node) == "setDaemon" and _owner(node) == name
    return node.lineno if isinstance(node, ast.Call) and is_call else None
