"""A program that ended itself in a signal handler, and what looks like that."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.ends.signal_handlers import SignalHandler, signal_handler
from pytracer.report.job import NativeFrame, PythonFrame
from tests.support.scenarios import program_in

SOURCE = """class Run:
    def __init__(self):
        self.sync = Process(target=sync)
        signal.signal(signal.SIGCHLD, self._on_sync_exit)
    def _on_sync_exit(self, signum, frame):
        os.write(2, b"lost the sync process")
        os._exit(70)
"""
MS = 1_000_000
HANDLES = ("os__exit", "_PyErr_CheckSignalsTstate", "_PyEval_EvalFrameDefault")


def child(pid: int, ended_ms: int, code: int = 0, kind: str = "exited", ppid: int = 7) -> Any:
    snapshot = SimpleNamespace(pid=pid, ppid=ppid, host="", boot_id=b"", worker=None, argv=(), name=None)
    process = SimpleNamespace(
        snapshot=snapshot,
        status_kind=kind,
        exit_code=code,
        role="child",
        rank=None,
        parent_rank=None,
        name=f"Process-{pid}",
    )
    return SimpleNamespace(process=process, ended_ns=ended_ms * MS, work=None)


def handler(
    run: Path, *children: Any, source: str = SOURCE, native: tuple[str, ...] = HANDLES, line: int = 7
) -> SignalHandler | None:
    """Process 7 ended itself at that line, 1 s after its start."""
    at = PythonFrame(function="Run._on_sync_exit", file=str(program_in(run, source)), line=line)
    snapshot = SimpleNamespace(pid=7, host="", boot_id=b"", argv=(), created_wall_ns=1 << 62)
    view: Any = SimpleNamespace(
        process=SimpleNamespace(snapshot=snapshot),
        ended_ns=1000 * MS,
        native_stack=[NativeFrame(function=name) for name in native],
    )
    job: Any = SimpleNamespace(views=[*children])
    return signal_handler(job, view, [at])


def test_child_that_ended_well_before_the_handler_is_named(run: Path) -> None:
    """The handler does not ask which one it was."""
    found = handler(run, child(8, 989), child(9, 988), child(10, 1990), child(11, 990, ppid=3))
    assert found is not None
    assert found.words == (
        ", the handler of SIGCHLD that line 4 sets; process 8 and process 9 had ended with status 0, 0.011 s before"
    )
    assert (found.advice or "").startswith(
        "SIGCHLD comes for each child that ends, and Run._on_sync_exit() does not look which one did"
    )


@pytest.mark.parametrize("asks", ["if self.sync.is_alive(): return", "pid, status = os.waitpid(-1, os.WNOHANG)"])
def test_handler_that_asks_which_child_it_was_is_left_alone(asks: str, run: Path) -> None:
    """Then what it prints is true, as far as is known."""
    found = handler(run, child(8, 989), source=SOURCE.replace("os.write(2", f"{asks}; os.write(2"))
    assert found is not None
    assert found.advice is None


@pytest.mark.parametrize("children", [[], [child(8, -5000)]], ids=["none", "long before"])
def test_child_that_is_not_recorded_may_be_any(children: list[Any], run: Path) -> None:
    """Of subprocess, such as a command."""
    found = handler(run, *children)
    assert found is not None
    assert found.words == ", the handler of SIGCHLD that line 4 sets"
    assert "does not look which one did, so that it may be another one: ask there" in (found.advice or "")


@pytest.mark.parametrize(
    "children", [[child(8, 989, 1)], [child(8, 989, kind="signaled"), child(9, 988)]], ids=["failed", "killed"]
)
def test_child_that_failed_is_a_reason(children: list[Any], run: Path) -> None:
    """The look-alikes: the signal is told, and nothing of what came before."""
    found = handler(run, *children)
    assert found is not None
    assert found.words == ", the handler of SIGCHLD that line 4 sets"
    assert found.advice is None


def test_handler_of_another_signal_is_told_without_children(run: Path) -> None:
    """SIGALRM: the program's own limit."""
    found = handler(run, child(8, 989), source=SOURCE.replace("SIGCHLD", "SIGALRM"))
    assert found is not None
    assert found.words == ", the handler of SIGALRM that line 4 sets"


@pytest.mark.parametrize(
    "changed",
    [
        {"native": ("os__exit", "_PyEval_EvalFrameDefault")},  # the program calls it itself
        {"source": SOURCE.replace("self._on_sync_exit)", "self._on_other)")},
        {"source": SOURCE.replace("signal.SIGCHLD", "self.number")},
    ],
    ids=["called", "another function", "which signal"],
)
def test_function_that_is_called_otherwise_is_no_handler(changed: dict[str, Any], run: Path) -> None:
    """The look-alikes."""
    assert handler(run, child(8, 989), **changed) is None
