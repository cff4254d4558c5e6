"""A progress bar on stderr: on a terminal only, after the first second, whatever takes so long."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE_SECONDS = 1.0


@contextmanager
def progress_bar(what: str, *, wanted: bool = True) -> Iterator[Callable[[int, int], None] | None]:
    """Yields a function to call with (done, total), or None without a terminal; the bar is removed at the end.

    Until it is called, and when all is done, the bar shows only that something goes on.
    """
    if not wanted or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    bar = _Bar(what)
    try:
        yield bar.show
    finally:
        bar.close()


class _Bar:
    def __init__(self, what: str) -> None:
        self._what, self._counts, self._since = what, (0, 0), time.monotonic()
        self._progress: Progress | None = None
        self._lock, self._closed = Lock(), False
        self._timer = Timer(PATIENCE_SECONDS, self._begin)
        self._timer.daemon = True
        self._timer.start()

    def show(self, done: int, total: int) -> None:
        if time.monotonic() - self._since >= PATIENCE_SECONDS:
            self._begin()  # the timer's thread may be starved by the work
        with self._lock:
            self._counts = (done, total)
            self._update()

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._progress is not None:
                self._progress.stop()

    def _begin(self) -> None:
        # Imported here: most runs are read within a second and need no rich.
        from rich.console import Console
        from rich.progress import Progress

        with self._lock:
            if self._closed or self._progress is not None:
                return
            self._progress = Progress(console=Console(file=sys.stderr), transient=True)
            self._progress.add_task(self._what, total=None)
            self._progress.start()
            self._update()

    def _update(self) -> None:
        """A total of None makes the bar pulse."""
        done, total = self._counts
        if self._progress is not None:
            task = self._progress.task_ids[0]
            known = total if done < total else None
            self._progress.update(task, completed=done if known else 0)
            self._progress.tasks[0].total = known
