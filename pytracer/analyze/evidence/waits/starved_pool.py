"""A ThreadPoolExecutor whose threads all wait for futures themselves: no thread is left for the tasks behind them."""

from __future__ import annotations

import ast

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.evidence.waits.waits import end_of
from pytracer.analyze.naming import place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_POOL = Pattern(r"/concurrent/futures/thread\.py$")
_FUTURES = Pattern(r"/concurrent/futures/_base\.py$")
# Their futures may be another process's, or a coroutine's.
_OTHERS = Pattern(r"/(concurrent/futures/process|asyncio/base_events|distributed/\w+|loky/process_executor)\.py$")
_LONGEST = 50


class StarvedPool(msgspec.Struct, frozen=True):
    """`at`: the line at which the first of them waits. `submits`: a line of its function that submits a task."""

    count: int
    at: PythonFrame
    submits: tuple[int, str] | None

    @property
    def words(self) -> str:
        """`all 2 threads of its ThreadPoolExecutor waited for futures themselves, at load.py:17 in load_pair`."""
        who = f"all {self.count} threads" if self.count > 1 else "the only thread"
        what = "futures themselves" if self.count > 1 else "a future itself"
        return f"{who} of its ThreadPoolExecutor waited for {what}, at {place_words(self.at)}"

    @property
    def advice(self) -> str:
        """What holds the threads, and how the inner tasks get one."""
        inner = f"line {self.submits[0]} (`{self.submits[1]}`) submits" if self.submits is not None else "it submitted"
        return (
            f"A task that waits for tasks of its own pool keeps a thread of it, and what {inner} found none free. Call "
            "the inner function directly there, or submit it to an executor of its own; more max_workers only help "
            "until as many outer tasks run."
        )


def starved_pool(view: ProcessView) -> StarvedPool | None:
    """None where one of its threads works or is idle, or where something else may complete the futures."""
    end = end_of(view)
    stacks = [frames for _, frames in end.python_threads] if end is not None else []
    if any(_OTHERS.search(frame.file) for frames in stacks for frame in frames):
        return None
    pool = [frames for frames in stacks if any(_POOL.search(frame.file) for frame in frames)]
    waiting = []
    for frames in pool:
        at = next((place for place, item in enumerate(frames) if not is_library_file(item.file)), 0)
        if not at or not _FUTURES.search(frames[at - 1].file):
            return None
        waiting.append(python_frame(frames[at]))
    others = [
        frames for frames in stacks if frames not in pool and not any(_FUTURES.search(frame.file) for frame in frames)
    ]
    if not waiting or others:  # another thread may complete a future of its own
        return None
    return StarvedPool(len(waiting), waiting[0], _submits(view, waiting[0]))


def _submits(view: ProcessView, at: PythonFrame) -> tuple[int, str] | None:
    tree = syntax_tree(view.process.snapshot, at)
    if tree is None or at.line is None:
        return None
    for item in own_nodes(scope_of(tree, at.line)):
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and called_name(item) == "submit":
            return item.lineno, shortened(ast.unparse(item), _LONGEST)
    return None
