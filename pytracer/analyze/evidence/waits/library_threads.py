"""A thread of a library that a forked child waits for, and its parent alone has: fsspec's event loop, for one.

The library itself asks an event loop or an executor, whose thread it had started when the parent used it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.waits.fork_line import SPAWNED
from pytracer.analyze.evidence.waits.parent_threads import CHILD, FIRST, runs_loop_or_tasks
from pytracer.analyze.evidence.waits.pipes import Starter, forked_at
from pytracer.analyze.evidence.waits.used_before_fork import used_before_fork
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import main_stack
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_PACKAGE = Pattern(r"/(?:site-packages|dist-packages)/([A-Za-z_]\w*)")
_NOT_THEIRS = ("torch",)  # its workers' own loop


class LibraryThread(msgspec.Struct, frozen=True):
    """`asked`: the line of the program that calls the library; `earlier`: one of its parent's that had done so."""

    package: str
    function: str
    asked: LineWords
    earlier: LineWords
    forked: LineWords
    starter: Starter

    @property
    def words(self) -> str:
        """`it is a thread of fsspec (`sync()`), which line 27 (`Data()`) had used in the parent before ...`."""
        return (
            f"it is a thread of {self.package} (`{self.function}()`), which {self.earlier} had used in the parent "
            f"before {self.forked} forked"
        )

    @property
    def advice(self) -> str:
        """To use the library first in the child."""
        child = CHILD[self.starter]
        return (
            f"fork() copies one thread: a forked {child} has the objects of {self.package} that its parent made, but "
            f"not the thread that serves them. Make what {self.asked} uses of {self.package} in each {child}, at its "
            f"first use there or {FIRST[self.starter]}, and not before; or start the {child} by spawn, "
            f"{SPAWNED[self.starter]}."
        )


def library_thread(view: ProcessView, wait: ProcessWait, parent: ProcessView | None) -> LibraryThread | None:
    """Of a child that waits below a call of a package, whose parent's threads run a loop or tasks; else None."""
    stack = main_stack(view)
    fork = forked_at(stack) if wait.kind == "forked-notice" else None
    own = next((number for number, item in enumerate(stack) if not is_library_file(item.file)), None)
    if fork is None or own is None:
        return None
    found = _package_of(stack[:own])
    names = [(item.function or "").rpartition(".")[2] for item in stack[:own]]
    earlier = used_before_fork(view.process.snapshot, stack, names)
    if found is None or earlier is None or not runs_loop_or_tasks(parent):
        return None
    at, (forked, starter) = stack[own], fork
    return LibraryThread(
        found[0],
        (found[1].function or "").rpartition(".")[2],
        line_in(at.file, at.line, at.file),
        line_in(earlier.at.file, earlier.at.line, at.file).quoted(earlier.text),
        line_in(forked.file, forked.line, at.file),
        starter,
    )


def _package_of(inner: Sequence[PythonFrame]) -> tuple[str, PythonFrame] | None:
    """The innermost function of a package, of no module of CPython's own."""
    for frame in inner:
        found = _PACKAGE.search(frame.file or "")
        if found is not None:
            return (found[1], frame) if found[1] not in _NOT_THEIRS else None
    return None
