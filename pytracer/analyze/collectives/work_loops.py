"""The loop in which a rank worked while others waited for it."""

from __future__ import annotations

import ast

import msgspec

from pytracer._library_files import is_library_file
from pytracer.analyze.collectives.rank_branches import branch_at_end
from pytracer.analyze.collectives.ways import head_words
from pytracer.analyze.evidence.native.fault_function import own_function
from pytracer.analyze.evidence.syntax.loops import Loop, loops_around
from pytracer.analyze.evidence.syntax.unbounded import Reason
from pytracer.analyze.evidence.waits.stood_loop import loop_reason
from pytracer.analyze.evidence.waits.waits import wait_of, was_asleep
from pytracer.analyze.naming import place_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame


class WorkLoop(msgspec.Struct, frozen=True):
    """`frame`: its function, at the line of its head; `head`: that, in backticks.

    `is_inner`: whether the rank's innermost line is in it.
    """

    frame: PythonFrame
    head: str
    is_inner: bool

    @property
    def words(self) -> str:
        """`` the loop `for text in texts` (line 38) ``."""
        return f"the loop {self.head} ({f'line {self.frame.line}' if self.is_inner else place_words(self.frame)})"

    @property
    def short(self) -> str:
        """`loop of line 38`."""
        return f"loop of {f'line {self.frame.line}' if self.is_inner else place_words(self.frame)}"


def work_loop(view: ProcessView) -> WorkLoop | None:
    """The outermost `for` around the last line in its function; with a branch on the rank, of what that branch runs.

    Inner ones are parts of its rounds: what takes long is the whole. None where the innermost is a `while`.
    """
    below = branch_at_end(view)
    own = [frame for frame in view.python_stack or [] if not is_library_file(frame.file)]
    for number, frame in enumerate(own):
        is_last = below is None or frame == below.frame
        tree = syntax_tree(view.process.snapshot, frame)
        loops: list[Loop] = loops_around(tree, frame.line) if tree is not None and frame.line is not None else []
        inside = [item for item in loops if below is None or frame != below.frame or item.lineno > below.line]
        whole = next((item for item in inside if isinstance(item, ast.For)), None)
        if whole is not None and isinstance(inside[-1], ast.For):
            place = PythonFrame(file=frame.file, function=frame.function, line=whole.lineno)
            return WorkLoop(place, head_words(view.process.snapshot, place, whole), number == 0)
        if is_last or inside:
            return None
    return None


def endless_loop(view: ProcessView) -> tuple[Reason, str] | None:
    """Why the loop that a rank's own code worked in at its end may not end by itself, and where that was called."""
    if view.raised or was_asleep(view) or wait_of(view) is not None or own_function(view) is not None:
        return None
    found = loop_reason(view)
    return found if found is not None and not found[0].by_others else None


def standing_while(view: ProcessView) -> str | None:
    """`` `while len(kept) > limit` (line 11) ``, the innermost loop around the last line of the program."""
    frame = next((item for item in view.python_stack or [] if not is_library_file(item.file)), None)
    tree = syntax_tree(view.process.snapshot, frame) if frame is not None else None
    loops = loops_around(tree, frame.line) if tree is not None and frame is not None and frame.line is not None else []
    if frame is None or not loops or not isinstance(loops[-1], ast.While):
        return None
    return f"{head_words(view.process.snapshot, frame, loops[-1])} (line {loops[-1].lineno})"
