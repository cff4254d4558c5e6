"""`pytest --pytracer`: a crash of the tests names test, phase and parameters, and is explained.

pytest starts again below `pytracer run`, with the same command line, and pytest-xdist's workers are recorded with it.
Without the option, nothing is imported and no hook is registered.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import pytest

_SCALARS = (bool, int, float, str, bytes, type(None))
_MOST_CHARACTERS = 40  # of one parameter


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("pytracer")
    group.addoption("--pytracer", action="store_true", help="record the tests, and explain a crash")
    group.addoption("--pytracer-dir", metavar="DIR", help="record into DIR, not below runs/")


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Starts pytest again below `pytracer run`, before anything of the tests is imported."""
    options = early_config.known_args_namespace
    if not getattr(options, "pytracer", False) or _is_recorded() or not _is_the_program():
        return
    capture = early_config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()  # standard streams are those of the command again
    _run(options.pytracer_dir)


def pytest_configure(config: pytest.Config) -> None:
    """Begins to note tests."""
    if not config.getoption("pytracer"):
        return
    if not _is_recorded():  # a program that calls pytest.main(), or workers on another host
        import pytracer

        pytracer.enable(config.getoption("pytracer_dir"))
    config.pluginmanager.register(_Tests(config), "pytracer-tests")
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(_Workers(), "pytracer-workers")


def pytest_report_header(config: pytest.Config) -> str | None:
    """Where a process records that has no launcher, which would print it."""
    if not config.getoption("pytracer") or _is_recorded():
        return None
    from pytracer.record.core import core

    return f"pytracer: recording into {os.path.relpath(core().directory)}"


def _is_recorded() -> bool:
    return "PYTRACER_LAUNCHER" in os.environ


def _is_the_program() -> bool:
    """Whether this process was started to run pytest, and nothing else came before."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return os.path.basename(sys.argv[0]) in ("pytest", "py.test") or getattr(main, "name", "") == "pytest.__main__"


def _run(directory: str | None) -> NoReturn:
    package = Path(__file__).resolve().parents[1]
    start = f"import sys; sys.path.insert(0, {str(package)!r}); from pytracer.cli import main; sys.exit(main())"
    into = ["-o", directory] if directory else []
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-c", start, "run", *into, "--", *sys.orig_argv])


class _Tests:
    """Notes which test runs in this process, in which phase."""

    def __init__(self, config: pytest.Config) -> None:
        from pytracer.record.doing import doing

        self._doing = doing
        worker = getattr(config, "workerinput", None)
        if worker is not None:
            doing("name", f"pytest-xdist worker {worker['workerid']}")

    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """The test."""
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        words = ", ".join(f"{name}={_value(value)}" for name, value in parameters.items())
        self._doing("test", f"{item.nodeid}: {words}" if words else item.nodeid)

    def pytest_runtest_setup(self) -> None:
        """Its fixtures are set up."""
        self._doing("phase", "setup", lasting=False)

    def pytest_runtest_call(self) -> None:
        """It runs."""
        self._doing("phase", "call", lasting=False)

    def pytest_runtest_teardown(self) -> None:
        """Its fixtures are torn down."""
        self._doing("phase", "teardown", lasting=False)

    def pytest_runtest_logfinish(self) -> None:
        """It is over."""
        self._doing("test", "")


def _value(value: object) -> str:
    """Short; of objects only the class, because their repr() is the program's code."""
    text = repr(value) if type(value) in _SCALARS else f"<{type(value).__name__}>"
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


class _Workers:
    """In the process that started pytest-xdist's workers: adds the explanation to the line about a crashed one."""

    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """See xdist's newhooks.py: `report` may be changed."""
        try:
            line = _explanation(crashitem)
        except Exception as error:  # the line of xdist is worth more
            line = f"no explanation: {type(error).__name__}: {error}"
        if line is not None:
            report.longrepr = f"{report.longrepr}\npytracer: {line}"


def _explanation(crashitem: str) -> str | None:
    """The verdict about the worker that last ran a test, if it crashed."""
    from dataclasses import replace

    from pytracer._printable import one_line, shell_command
    from pytracer.analyze.engine import build_report
    from pytracer.decode.job.load import load_runs
    from pytracer.record.core import core

    directory = core().directory
    job = load_runs(directory, light=True)
    reports = build_report(job).processes or []
    died = [
        (process, item)
        for process, item in zip(job.processes, reports, strict=True)
        if item.doing is not None and (item.doing.text or "").startswith(crashitem) and process.status_kind != "running"
    ]
    if not died:
        return None
    process, item = died[-1]
    others = [p for p in job.processes if p is process or p.status_kind == "running"]
    verdict = build_report(replace(job, processes=tuple(others))).verdict
    if verdict is None or verdict.pid != item.pid or item.doing is None:
        return None
    inspect = shell_command("pytracer", "inspect", os.path.relpath(directory))
    return one_line(f"{(verdict.summary or '').rstrip('.')}; {item.doing.text}; `{inspect}` has the report")
