"""The line of the program that forked a process by os.fork(), of a child that waits in the OpenMP runtime."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import capital
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.evidence.waits.forked_team import computed_before
from pytracer.analyze.evidence.waits.ran_before import ran_before
from pytracer.analyze.evidence.waits.waits import main_stack
from pytracer.analyze.naming import line_in, place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_ASKS = "os.fork"


class PlainFork(msgspec.Struct, frozen=True):
    """`used`: a line at which the parent computed before. `here`: the file where the child waits."""

    at: PythonFrame
    used: PythonFrame | None
    here: str | None

    @property
    def words(self) -> str:
        """`its parent had used OpenMP threads before it forked at server.py:76 in Master.__init__`."""
        return f"its parent had used OpenMP threads before it forked at {place_words(self.at)}"

    @property
    def advice(self) -> str:
        """What to do about the fork, or before it."""
        used = f" (used at {place_words(self.used)})" if self.used is not None else ""
        return (
            f"{capital(line_in(self.at.file, self.at.line, self.here))} (`{_ASKS}()`) forks it, and the OpenMP threads "
            f"of the parent{used} do not exist in a forked child: call torch.set_num_threads(1) first in the child, "
            "fork before the parent computes (no warm-up there), or start it by "
            'multiprocessing.get_context("spawn").Process(...).'
        )


def plain_fork(view: ProcessView, parent: ProcessView | None = None) -> PlainFork | None:
    """By the frames of its stack that are the parent's: the innermost of a function with one os.fork() above its line.

    Args:
        view: The child.
        parent: Its parent, as far as that is known.
    """
    stack = main_stack(view)
    for place, frame in enumerate(stack):
        tree = syntax_tree(view.process.snapshot, frame) if not is_library_file(frame.file) else None
        if tree is None or frame.line is None:
            continue
        calls = (item for item in _calls(tree, frame.line) if called_name(item) == "fork")
        forks = [item for item in calls if imported_as(tree, item.func) == _ASKS]
        if len(forks) == 1:
            site = computed_before(view, parent)
            used = python_frame(site.place) if site is not None and site.place is not None else None
            here = next((item.file for item in stack if not is_library_file(item.file)), None)
            at = msgspec.structs.replace(frame, line=forks[0].lineno)
            return PlainFork(at, used or ran_before(view, [*stack[:place], at, *stack[place + 1 :]], place), here)
    return None


def _calls(tree: ast.Module, line: int) -> Iterator[ast.Call]:
    """Those of the function around a line, above it."""
    nodes = own_nodes(scope_of(tree, line))
    return (item for item in nodes if isinstance(item, ast.Call) and item.lineno < line)
