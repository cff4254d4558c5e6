"""What processes are, with the real frameworks; and the line about each while a server goes on."""

from __future__ import annotations

import contextlib
import functools
import http.client
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pytracer
from tests.conditions import needs_core
from tests.homes.environments import installed, python_of
from tests.homes.homes import PROGRAMS
from tests.support.crash import environment

pytestmark = [needs_core, pytest.mark.slow, pytest.mark.timeout(200)]


@pytest.mark.skipif(not installed("pools"), reason="build/homes/pools is not installed: make test-homes")
def test_workers_of_pools_are_named(tmp_path: Path) -> None:
    """Those of submitit, loky and concurrent.futures."""
    python = python_of("pools")
    done = subprocess.run(
        [python, "-m", "pytracer", "run", "-o", "run", "--", python, PROGRAMS / "dying_pools.py"],
        env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=150, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["UncompletedJobError", "TerminatedWorkerError", "BrokenProcessPool"]
    processes = pytracer.inspect(str(tmp_path / "run")).processes or []
    names = {item.name for item in processes if item.signal is not None and item.signal.name == "SIGSEGV"}
    assert names == {"submitit job", "loky worker", "process pool worker"}


@contextlib.contextmanager
def server(directory: Path, log: Path) -> Iterator[int]:
    """uvicorn with two workers below `pytracer run`; yields its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    python = python_of("server")
    command = [
        str(python),
        "-m",
        "uvicorn",
        "dying_server:app",
        "--app-dir",
        str(PROGRAMS),
        "--workers",
        "2",
        "--port",
        str(port),
    ]
    with (
        open(log, "w") as stderr,
        subprocess.Popen(
            [str(python), "-m", "pytracer", "run", "-o", "run", "--", *command], env=environment(), cwd=directory,
            stdout=subprocess.DEVNULL, stderr=stderr,
        ) as process,
    ):  # fmt: skip
        try:
            wait_for(lambda: answer(port, "/good") == 200)
            yield port
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def answer(port: int, path: str) -> int | None:
    """The status of the answer; None when there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def found(line: re.Pattern[str], log: Path) -> bool:
    return line.search(log.read_text()) is not None


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.skipif(not installed("server"), reason="build/homes/server is not installed: make test-homes")
def test_server_that_goes_on_tells_each_death(tmp_path: Path) -> None:
    """uvicorn replaces its workers and answers on; without the lines nobody would know before it ends."""
    log = tmp_path / "stderr"
    with server(tmp_path, log) as port:
        for path, function in (("/bad", "bad"), ("/thread", "thread")):
            assert answer(port, path) is None
            line = re.compile(
                rf"^pytracer: process \d+ \(uvicorn worker\) died of SIGSEGV at dying_server.py:\d+ in {function}; "
                r"`pytracer inspect run` has the report$", re.M,
            )  # fmt: skip
            wait_for(functools.partial(found, line, log))
            wait_for(lambda: answer(port, "/good") == 200)
