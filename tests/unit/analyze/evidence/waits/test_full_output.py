"""A child that waits until its parent reads what it prints."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.waits import full_output
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import EXIT, TIMEOUT, ended, parent, stopped
from tests.support.synth import Box, Frame

RECV: Frame = ("Connection._recv", "/usr/lib/python3.11/multiprocessing/connection.py", 395)
EMIT: Frame = ("StreamHandler.emit", "/usr/lib/python3.11/logging/__init__.py", 1113)
CLIENT = """import subprocess
class Service:
    def __init__(self, command):
        self.proc = subprocess.Popen(command, {0})
    def features(self, texts):
        return self.conn.recv()
"""
PIPED = "stdout=subprocess.PIPE, stderr=subprocess.STDOUT"
WRITES = ("__write", "_Py_write", "_io_FileIO_write")


def reported(
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: str = PIPED,
    native: tuple[str, ...] = WRITES,
    inner: Frame = EMIT,
) -> Report:
    """The parent waits for an answer; its child was in these native functions below its own line."""
    client, server = run / "client.py", run / "service.py"
    client.write_text(CLIENT.format(given))
    server.write_text("def serve(conn):\n    log.info('served')\n")
    for path in (client, server):
        os.utime(path, (0, 0))
    frames: Any = [SimpleNamespace(function=name) for name in native]
    monkeypatch.setattr(full_output, "main_native", lambda view: frames)
    asks = stopped(parent(), [RECV, ("Service.features", str(client), 6)])
    child = Box(pid=102, ppid=101).at(60_001).signal_seen(15, 90, TIMEOUT)
    child.crash(0, code=0, state=EXIT, python=[inner, ("serve", str(server), 2)], native=[(s.LIBC, 0x10)])
    return ended(run, asks, child)


def test_log_of_a_service_that_nobody_reads(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child leads, with its line; the next step names the line that makes the pipe."""
    report = reported(run, monkeypatch)
    assert verdict(report) == ("hang", "likely")
    assert "waited to write to its standard output, a pipe that is not read, at service.py:2 in serve" in summary(
        report
    )
    assert "its parent (pid 101) waited at client.py:6" in summary(report)
    assert "is a pipe, which line 4 makes: it holds 64 KiB" in advice(report)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"given": "stdout=subprocess.DEVNULL"}, id="no pipe"),
        pytest.param({"given": "env=variables"}, id="inherited"),
        pytest.param({"native": ("read", "_Py_read")}, id="reads"),
        pytest.param({"native": ("__write", "uv_write")}, id="not of Python's"),
        pytest.param({"inner": ("Session.post", "/opt/lib/python3.11/site-packages/http.py", 9)}, id="of a library"),
    ],
)
def test_child_at_work_is_not_told_as_unread(how: dict[str, Any], run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the output is no pipe of the parent's, or the child writes something else."""
    assert "standard output" not in summary(reported(run, monkeypatch, **how))
