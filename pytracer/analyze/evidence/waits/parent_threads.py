"""The thread that a forked child waits for, and its parent alone has: which line started it, and what it runs.

An event loop in a thread of its own (fsspec, zarr and others do so), the threads of a ThreadPoolExecutor, or a thread
that answers by queues: fork() copies the object, which looks ready in the child, and not the thread.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import (
    Scope,
    class_around,
    class_named,
    function_named,
    own_nodes,
    scope_of,
    spans_body,
)
from pytracer.analyze.evidence.waits.fork_line import SPAWNED
from pytracer.analyze.evidence.waits.pipes import Starter, forked_at
from pytracer.analyze.evidence.waits.used_before_fork import EarlierUse, called_before_fork
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waited_object import waited_object
from pytracer.analyze.evidence.waits.waits import called_by_program, end_of, main_stack
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import PythonFrame as SnapshotFrame
from pytracer.report.job import PythonFrame

Kind = Literal["loop", "executor", "thread"]
_LOOPS = ("run_forever", "run_until_complete")
_OF_LOOP, _OF_EXECUTOR = Pattern(r"/asyncio/base_events\.py$"), Pattern(r"/concurrent/futures/thread\.py$")
_ASKS_LOOP, _ASKS_EXECUTOR = ("run_coroutine_threadsafe", "call_soon_threadsafe"), ("submit",)
_RESULTS, _OF_MAP = ("Future.result", "result"), "result_iterator"
_EXECUTOR, _THREAD = "ThreadPoolExecutor", "Thread"
_LONGEST = 50
CHILD: dict[Starter, str] = {
    "Process": "child",
    "Pool": "worker",
    "ProcessPoolExecutor": "worker",
    "DataLoader": "worker",
}
FIRST: dict[Starter, str] = {
    "Process": "first in the function that the child runs",
    "Pool": "in the `initializer` of the pool",
    "ProcessPoolExecutor": "in the `initializer` of the pool",
    "DataLoader": "in a `worker_init_fn` of the DataLoader",
}


class ThreadStart(msgspec.Struct, frozen=True):
    """`call` makes the thread, or the executor whose threads its tasks start; `holder` has what it works for."""

    kind: Kind
    file: str
    tree: ast.Module
    call: ast.Call
    scope: Scope
    target: str | None
    holder: str | None

    @property
    def made_as(self) -> str | None:
        """The variable that has the thread itself."""
        return target_of(self.tree, self.call)

    @property
    def starts_itself(self) -> bool:
        """Whether the constructor of its class calls `self.start()`."""
        owner = class_named(self.tree, called_name(self.call) or "")
        return owner is not None and any(
            isinstance(item, ast.Call) and ast.unparse(item.func) == "self.start"
            for method in owner.body
            if isinstance(method, ast.FunctionDef) and method.name == "__init__"
            for item in own_nodes(method)
        )

    def run_function(self, files: Mapping[str, ast.Module]) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """What the thread runs: its target, or `run` of its class."""
        if self.target is None:
            return None
        name = called_name(self.call) or ""
        owners = [owner for tree in files.values() if (owner := class_named(tree, name)) is not None]
        if not owners:
            return next((found for tree in files.values() if (found := function_named(tree, self.target))), None)
        run = (item for item in owners[0].body if isinstance(item, ast.FunctionDef) and item.name == self.target)
        return next(run, None)


class ParentThread(msgspec.Struct, frozen=True):
    """`line` starts it; `earlier` had led there in the parent. `test`: the `if` by which the child makes no new one.

    `holder`: what has it, such as `_loop`; `owner`: the class in whose method that line is.
    """

    kind: Kind
    line: LineWords
    name: str | None
    holder: str | None
    test: LineWords | None
    earlier: LineWords | None
    imported: bool
    forked: LineWords
    starter: Starter
    owner: str | None

    @property
    def words(self) -> str:
        """`it is the thread `io` of line 38 (`Thread(...)`), which runs the event loop `_loop`, started by line 9`."""
        held = f" `{self.holder}`" if self.holder is not None else ""
        what = {
            "loop": f"it is the thread{self._named} of {self.line}, which runs the event loop{held}",
            "executor": f"it is one of the threads of the executor{held} of {self.line}",
            "thread": f"it is the thread{self._named} of {self.line}",
        }[self.kind]
        if self.imported:
            return f"{what}, started when its module was imported in the parent, before {self.forked} forked"
        by = f" by {self.earlier}" if self.earlier is not None else ""
        return (
            f"{what}, {'used' if self.kind == 'executor' else 'started'} in the parent{by} before {self.forked} forked"
        )

    @property
    def advice(self) -> str:
        """Where it can be made so that each process has its own."""
        thing, what = self._thing
        threads = "its threads" if self.kind == "executor" else "its thread"
        child = CHILD[self.starter]
        why = f"fork() copies one thread: a forked {child} has {thing}, but not {threads}"
        if self.test is not None:
            why += f", and {self.test} makes no new one there"
        anew = "or keep os.getpid() beside it and make it anew where that differs"
        if self.test is not None and self.holder is not None:
            by = f"{FIRST[self.starter]}, or by os.register_at_fork(after_in_child=...)"
            own = f"Set {thing} to None in each {child}, {by}; {anew}"
        else:
            own = f"Make {what} in each {child}, at its first use there or {FIRST[self.starter]}; {anew}"
        shared = self.owner is not None  # what holds a thread cannot be pickled
        spawn = "" if shared else f". Or start the {child} by spawn, {SPAWNED[self.starter]}"
        return f"{why}. {own}{spawn}."

    @property
    def _thing(self) -> tuple[str, str]:
        """What the child has a copy of, and what it is to make."""
        if self.kind == "thread" and self.owner is not None:
            return f"a copy of the `{self.owner}`", f"a `{self.owner}`"
        if self.kind == "thread" or self.holder is None:
            return "what it works for", "it"
        return f"`{self.holder}`", "it"

    @property
    def _named(self) -> str:
        return f" `{self.name}`" if self.name is not None else ""


def parent_thread(view: ProcessView, wait: ProcessWait, parent: ProcessView | None) -> ParentThread | None:
    """Of a child that waits so; None where the source has none such, or several that may be meant.

    Args:
        view: The child.
        wait: Its wait.
        parent: Its parent, whose threads show what runs there.
    """
    stack = main_stack(view)
    fork = forked_at(stack) if wait.kind == "forked-notice" else None
    own = [frame for frame in stack if not is_library_file(frame.file)]
    if fork is None or not own:
        return None
    files = program_files(view.process.snapshot, own)
    asked = _asked(files, own[0], called_by_program(view) or "")
    stacks = _threads_of(parent)
    found = [item for item in thread_starts(files) if item.kind in asked]
    if asked == ("thread",):
        thing = waited_object(view, wait)
        ends = {item.function.rpartition(".")[2] for item in thing.providers} if thing is not None else set()
        found = [item for item in found if item.target in ends]
    if stacks:
        found = [item for item in found if any(_runs(item, frames) for frames in stacks)]
    if len(found) != 1:
        return None
    start = found[0]
    earlier = _led_there(view, stack, files, start, own[0])
    imported = isinstance(start.scope, ast.Module) and start.kind != "executor"
    if not stacks and earlier is None and not imported:
        return None
    return _described(start, own[0].file, fork, earlier, imported=imported)


def _described(
    start: ThreadStart,
    here: str | None,
    fork: tuple[PythonFrame, Starter],
    earlier: EarlierUse | None,
    *,
    imported: bool,
) -> ParentThread:
    name = keyword_value(start.call, "name")
    test = _test_around(start)
    at, starter = fork
    owner = class_around(start.tree, start.scope)
    return ParentThread(
        start.kind,
        line_in(start.file, start.call.lineno, here).quoted(shortened(ast.unparse(start.call), _LONGEST)),
        name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else None,
        start.holder,
        line_in(start.file, test.lineno, here).quoted(f"if {shortened(ast.unparse(test.test), _LONGEST)}")
        if test is not None
        else None,
        line_in(earlier.at.file, earlier.at.line, here).quoted(earlier.text) if earlier is not None else None,
        imported,
        line_in(at.file, at.line, here),
        starter,
        owner.name if owner is not None else None,
    )


def _asked(files: Mapping[str, ast.Module], frame: PythonFrame, called: str) -> tuple[Kind, ...]:
    """By what the waiting function calls: it waits for what a loop, or an executor, was given there."""
    tree = files.get(frame.file or "")
    if tree is None or frame.line is None:
        return ()
    names = {called_name(item) for item in nodes_of(scope_of(tree, frame.line)) if isinstance(item, ast.Call)}
    if called == _OF_MAP or called.endswith(f".{_OF_MAP}"):
        return ("executor",)
    if not called.endswith(_RESULTS):
        return ("thread",)
    if names & {*_ASKS_LOOP}:
        return ("loop",)
    return ("executor",) if names & {*_ASKS_EXECUTOR} else ("loop", "executor")


def thread_starts(files: Mapping[str, ast.Module]) -> Iterator[ThreadStart]:
    """All that the program makes of threads."""
    every = [item for tree in files.values() for item in nodes_of(tree) if isinstance(item, ast.ClassDef)]
    classes = {item.name: item for item in every if _is_thread_class(item)}
    for file, tree in files.items():
        for item in nodes_of(tree):
            name = called_name(item) if isinstance(item, ast.Call) else None
            if not isinstance(item, ast.Call) or name is None:
                continue
            scope = scope_of(tree, item.lineno)
            if name == _EXECUTOR:
                yield ThreadStart("executor", file, tree, item, scope, None, target_of(tree, item))
            elif name == _THREAD:
                target = keyword_value(item, "target")
                owner = _loop_of(tree, target)
                kind: Kind = "loop" if owner is not None else "thread"
                function = ast.unparse(target).rpartition(".")[2] if target is not None else None
                yield ThreadStart(kind, file, tree, item, scope, function, owner or target_of(tree, item))
            elif name in classes:
                loop = _loop_in(classes[name])
                kind = "loop" if loop is not None else "thread"
                yield ThreadStart(kind, file, tree, item, scope, "run", loop or target_of(tree, item))


def _is_thread_class(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).rpartition(".")[2] == _THREAD for base in node.bases)


def _loop_of(tree: ast.Module, target: ast.expr | None) -> str | None:
    """`_loop` of `target=_loop.run_forever`, and of a function that calls it."""
    if isinstance(target, ast.Attribute) and target.attr in _LOOPS:
        return ast.unparse(target.value)
    name = ast.unparse(target).rpartition(".")[2] if target is not None else ""
    function = function_named(tree, name) if name else None
    return _loop_in(function) if function is not None else None


def _loop_in(function: ast.AST) -> str | None:
    """Of a function or a class that runs it."""
    for item in nodes_of(function):
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in _LOOPS:
            return ast.unparse(item.func.value)
    return None


def target_of(tree: ast.Module, call: ast.Call) -> str | None:
    """`self.executor`, to which the call's object is given; also as `with ... as pool`."""
    for item in nodes_of(tree):
        if isinstance(item, ast.Assign) and item.value is call and len(item.targets) == 1:
            return variable(item.targets[0])
    return None


def _test_around(start: ThreadStart) -> ast.If | None:
    """`if _loop is None:` around it."""
    tests = [
        item
        for item in own_nodes(start.scope)
        if isinstance(item, ast.If) and spans_body(item.body, start.call.lineno) and start.holder is not None
        if any(variable(part) == start.holder for part in nodes_of(item.test))
    ]
    return tests[-1] if tests else None


def _threads_of(parent: ProcessView | None) -> list[Sequence[SnapshotFrame]]:
    """The stacks of all its threads; empty where they are not known."""
    end = end_of(parent) if parent is not None else None
    return [frames for _, frames in end.python_threads] if end is not None else []


def _runs(start: ThreadStart, frames: Sequence[SnapshotFrame]) -> bool:
    """Whether a thread of the parent is one of these."""
    for frame in frames:
        function = (frame.function or "").rpartition(".")[2]
        if start.kind == "loop" and function in _LOOPS and _OF_LOOP.search(frame.file):
            return True
        if start.kind == "executor" and function == "_worker" and _OF_EXECUTOR.search(frame.file):
            return True
        if start.kind == "thread" and function == start.target and frame.file == start.file:
            return True
    return False


def runs_loop_or_tasks(parent: ProcessView | None) -> bool:
    """Whether a thread of a process runs an event loop, or tasks of an executor."""
    return any(
        (_OF_LOOP.search(frame.file) and (frame.function or "").rpartition(".")[2] in _LOOPS)
        or (_OF_EXECUTOR.search(frame.file) and (frame.function or "").rpartition(".")[2] == "_worker")
        for frames in _threads_of(parent)
        for frame in frames
    )


def _led_there(
    view: ProcessView,
    stack: Sequence[PythonFrame],
    files: Mapping[str, ast.Module],
    start: ThreadStart,
    at: PythonFrame,
) -> EarlierUse | None:
    """The parent's line above the fork: of an executor, which a task starts, one that led to the waiting function."""
    scope: Scope = start.scope
    if start.kind == "executor":
        tree = files.get(at.file or "")
        scope = scope_of(tree, at.line) if tree is not None and at.line is not None else scope
    if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    return called_before_fork(stack, files, scope)
