"""`%load_ext pytracer`: records the kernel of a notebook, and shows how the one before it died.

A kernel takes its notebook's output with it: the browser says that it restarts, and nothing else. The next kernel that
loads the extension in the same directory shows the report of the last one, once, with the cell that ran.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pytracer._errors import InputError
from pytracer._paths import RUNS
from pytracer._private_files import write_private
from pytracer.record import relayed
from pytracer.record.api import disable, enable
from pytracer.record.core import core
from pytracer.record.doing import doing

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytracer.report.job import Report

SHOWN = "shown"  # in the directory of a run whose report was shown
_SESSION = "JPY_SESSION_NAME"  # the notebook, as Jupyter's server calls it


class Info(Protocol):
    """IPython's `ExecutionInfo`."""

    raw_cell: str
    store_history: bool


class Result(Protocol):
    """IPython's `ExecutionResult`."""

    execution_count: int | None
    info: Info
    error_in_exec: BaseException | None


class Shell(Protocol):
    """What is used of IPython's `InteractiveShell`."""

    execution_count: int

    @property
    def events(self) -> Events:
        """Its callbacks."""

    @property
    def compile(self) -> Compiler:
        """It names the code of cells."""


class Events(Protocol):
    """IPython's `EventManager`."""

    def register(self, event: str, function: Callable[..., None]) -> None:
        """Adds a callback."""

    def unregister(self, event: str, function: Callable[..., None]) -> None:
        """Removes it."""


class Compiler(Protocol):
    """IPython's `CachingCompiler`."""

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
        """The file name that frames of the cell have."""


class _Cells:
    """Notes each cell when it begins, and that it is over."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        # IPython counts before it calls pre_run_cell (9.18), or after the cell (8): one that is over has its number.
        self._last: int | None = None

    def begin(self, info: Info) -> None:
        if info.store_history:  # frontends run code of their own, too
            number = self._last + 1 if self._last is not None else self._shell.execution_count
            source = info.raw_cell
            transformed = getattr(info, "transformed_cell", None) or source
            file = self._shell.compile.get_code_name(source, transformed, number)
            doing("cell", str(number), file=file, source=source)

    def end(self, result: Result) -> None:
        if result.execution_count is not None and result.info.store_history:
            self._last = result.execution_count
        doing("cell", "")
        relayed.tell(core(), result.error_in_exec)


_cells: _Cells | None = None


def load(shell: Shell) -> None:
    """Shows what became of the last kernel, and records this one."""
    global _cells
    if _cells is not None:
        return
    word = _word()
    found = _last(word)
    if enable(_directory(word)) is None:
        return  # it has printed why
    doing("name", "Jupyter kernel")
    _cells = _Cells(shell)
    shell.events.register("pre_run_cell", _cells.begin)
    shell.events.register("post_run_cell", _cells.end)
    if found is not None:
        from IPython.display import display

        from pytracer.render.representation import text

        display({"text/plain": f"The last kernel of this notebook died.\n\n{text(found)}"}, raw=True)


def unload(shell: Shell) -> None:
    """Stops recording."""
    global _cells
    if _cells is not None:
        shell.events.unregister("pre_run_cell", _cells.begin)
        shell.events.unregister("post_run_cell", _cells.end)
        _cells = None
        disable()


def _word() -> str:
    """A word for the notebook, in the names of its runs."""
    name = os.path.basename(os.environ.get(_SESSION, "")).removesuffix(".ipynb")
    return re.sub(r"[^A-Za-z0-9_.]+", "_", name)[:40] or "notebook"


def _directory(word: str) -> Path | None:
    """Where this kernel records; None leaves it to PYTRACER_DIR."""
    if os.environ.get("PYTRACER_DIR"):
        return None
    return Path(os.path.abspath(RUNS), f"{time.strftime('%Y%m%d-%H%M%S')}-{word}-{os.getpid()}")


def _last(word: str) -> Report | None:
    """The report of the last kernel of this notebook, if it died and was not shown."""
    pattern = re.compile(rf"\d{{8}}-\d{{6}}-{re.escape(word)}-\d+")
    given = os.environ.get("PYTRACER_DIR")
    runs = [Path(given)] if given else [path for path in Path(RUNS).glob("*") if pattern.fullmatch(path.name)]
    if not runs or (directory := max(runs)) == _own() or (directory / SHOWN).exists():
        return None
    report = _report(directory)
    if report is not None and not given:
        try:
            write_private(directory / SHOWN, b"")
        except OSError:  # it is shown again, then
            return report
    return report


def _own() -> Path | None:
    return core().directory if core().has_box else None


def _report(directory: Path) -> Report | None:
    """The report of a run if its kernel died; None if it ended well, still runs, or cannot be read."""
    from pytracer.analyze.engine import build_report
    from pytracer.decode.job.load import load_runs

    try:
        report = build_report(load_runs(directory, light=True))
    except InputError:
        return None
    kernels = [item for item in report.processes or () if item.name == "Jupyter kernel" and item.pid != os.getpid()]
    died = [item for item in kernels if item.status is not None and item.status.kind in ("signaled", "vanished")]
    return report if died and (died[-1].doing is not None or died[-1].signal is not None) else None
