"""A forked child that waits for the inter-op threads of torch, which exist in its parent only.

torch.jit.fork() and torch._C._jit_... give their tasks to a pool of threads of the process (at::launch()). fork()
copies the pool as it is, without its threads: a task that the child gives to it is never begun.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of, spans
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Crash
from pytracer.report.job import NativeFrame, PythonFrame

_WAITS = "std::condition_variable::wait"
_FOR_TASKS = ("torch::jit::InterpreterState::run", "c10::ivalue::Future::wait", "c10::ivalue::Future::waitAndThrow")
_SERVES = "c10::ThreadPool::main_loop"
_NEAR = 6
_LONGEST = 60


def waits_for_task(native: Sequence[NativeFrame]) -> bool:
    """Whether a thread waits in TorchScript for a task of torch.jit.fork(), which another thread is to run."""
    names = [frame.function or "" for frame in native[:_NEAR]]
    at = next((place for place, name in enumerate(names) if name.startswith(_WAITS)), None)
    return at is not None and any(name.startswith(_FOR_TASKS) for name in names[at + 1 :])


def lacks_interop_threads(end: Crash | None) -> bool:
    """Whether no thread of the process serves that pool, by the stacks of its end."""
    stacks = [thread.native_stack for thread in end.threads] if end is not None else []
    return not any((frame.function or "").startswith(_SERVES) for stack in stacks for frame in stack)


def _earlier_use(view: ProcessView, at: PythonFrame | None) -> tuple[str, int] | None:
    """The one other call of what the waiting line calls, which may have started the threads in the parent.

    `make_views(self.items[0], 4)` and its line, of a line that calls `make_views(...)`; None of none or several.
    """
    tree = syntax_tree(view.process.snapshot, at)
    if at is None or tree is None or at.line is None:
        return None
    here = scope_of(tree, at.line)
    named = {called_name(item) for item in calls_on(tree, at.line)}
    names = {item.name for item in nodes_of(tree) if isinstance(item, ast.FunctionDef) and item.name in named}
    found = [
        item
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) in names and not spans(item, at.line)
        if scope_of(tree, item.lineno) is not here
    ]
    return (shortened(ast.unparse(found[0]), _LONGEST), found[0].lineno) if len(found) == 1 else None


def started_words(view: ProcessView, at: PythonFrame | None) -> str:
    """`; line 24 (`make_views(self.items[0], 4)`) may have started them there`; empty where no other call is known."""
    earlier = _earlier_use(view, at)
    return f"; line {earlier[1]} (`{earlier[0]}`) may have started them there" if earlier is not None else ""


def interop_advice(view: ProcessView, at: PythonFrame | None) -> str:
    """How to have the threads where the tasks are."""
    earlier = _earlier_use(view, at)
    first = f"Leave line {earlier[1]} to the children" if earlier is not None else "Run none before the children start"
    return (
        "torch.jit.fork() hands its tasks to the inter-op threads of the process, and fork() copies no thread: where "
        f"the parent had them, the children wait for ever. {first}, so that each makes its own, or call no "
        'torch.jit.fork() in them, or start them by spawn (DataLoader: multiprocessing_context="spawn").'
    )
