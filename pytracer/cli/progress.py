"""A progress bar on stderr: on a terminal only, after the first second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE_SECONDS = 1.0


@contextmanager
def progress_bar(what: str, *, wanted: bool = True) -> Iterator[Callable[[int, int], None] | None]:
    """Yields a function to call with (done, total), or None without a terminal; the bar is removed at the end."""
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
        self._what, self._since = what, time.monotonic()
        self._progress: Progress | None = None

    def show(self, done: int, total: int) -> None:
        if self._progress is None and time.monotonic() - self._since >= PATIENCE_SECONDS:
            # Imported here: most runs are read within a second and need no rich.
            from rich.console import Console
            from rich.progress import Progress

            self._progress = Progress(console=Console(file=sys.stderr), transient=True)
            self._progress.add_task(self._what)
            self._progress.start()
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=done, total=total)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
