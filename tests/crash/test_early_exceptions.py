"""Exceptions that end a Python program which has not imported torch, or never does: the core records them itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytracer.decode.types.journal import ExitRequest, ThreadException, UncaughtException
from tests.conditions import needs_core, needs_torch, python_or_skip
from tests.support.crash import Ended, ended, environment, preloaded, traced_run
from tests.support.deaths import summary, verdict

pytestmark = needs_core

PROGRAM = """\
import sys
class Wrong(ValueError):
    pass
def configure(name):
    raise Wrong("no optimizer \\"%s\\"\\n\\u20ac \\udc80" % name)
def main():
    configure("adamx")
{call}
"""


def written(tmp_path: Path, code: str) -> Path:
    """A program of the test."""
    path = tmp_path / "train.py"
    path.write_text(code)
    return path


def uncaught(done: Ended) -> list[UncaughtException]:
    """All that the run recorded."""
    return [fact.data for box in done.boxes for fact in box.recorded(UncaughtException)]


def ended_threads(done: Ended) -> list[ThreadException]:
    """All exceptions that ended a thread."""
    return [fact.data for box in done.boxes for fact in box.recorded(ThreadException)]


def exits(done: Ended) -> list[ExitRequest]:
    """All requests to end by SystemExit."""
    return [fact.data for box in done.boxes for fact in box.recorded(ExitRequest)]


def run_it(tmp_path: Path, code: str, python: str = sys.executable) -> Ended:
    """Preloaded, as below a launcher."""
    return ended([python, written(tmp_path, code)], preloaded(tmp_path / "run"), tmp_path / "run")


def run_untraced(tmp_path: Path, python: str = sys.executable) -> tuple[int, str, str]:
    """Status and output of the same program."""
    plain = subprocess.run(
        [python, tmp_path / "train.py"], env=environment(), capture_output=True, text=True, check=False,
        errors="replace",
    )  # fmt: skip
    return plain.returncode, plain.stdout, plain.stderr


THREADS = """\
import sys, threading
class Wrong(ValueError):
    pass
def scale(step):
    try:
        {}[step]
    except KeyError:
        raise Wrong("no scale of step \u20ac %d" % step)
def run(target, **named):
    thread = threading.Thread(target=target, **named)
    thread.start()
    thread.join()
run(lambda: scale(3), name="prefetch \u20ac")
run(sys.exit)
print(threading.excepthook is threading.__excepthook__)
try:
    threading.excepthook("no arguments")
except TypeError as error:
    print(error)
threading.excepthook = lambda error: print("mine", error.exc_type.__name__)
run(lambda: scale(4))
threading.excepthook = lambda error: (print("mine"), threading.__excepthook__(error))
run(lambda: scale(5), name="passes on")
"""
MINORS = ["own", "3.10", "3.11", "3.12", "3.13", "3.14"]


@pytest.mark.parametrize("minor", MINORS)
def test_exception_that_ends_a_thread_is_recorded_and_printed_as_untraced(minor: str, tmp_path: Path) -> None:
    """With the thread's name, line, and what was being handled; hooks of the program are called as ever, and
    SystemExit ends a thread quietly.
    """
    python = sys.executable if minor == "own" else python_or_skip(minor)
    done = run_it(tmp_path, THREADS, python)
    assert (done.status, done.stdout, done.stderr) == run_untraced(tmp_path, python)
    first, second = ended_threads(done)
    assert (first.type, first.message, first.thread) == ("Wrong", "no scale of step \u20ac 3", "prefetch \u20ac")
    assert [(frame.function, frame.line) for frame in first.python_stack][:2] == [("scale", 8), ("<lambda>", 13)]
    assert [(item.type, item.message) for item in first.context] == [("KeyError", "3")]
    assert [frame.line for frame in first.context[0].python_stack] == [6]
    assert second.thread == "passes on"
    assert uncaught(done) == []


def test_exceptions_of_threads_are_bounded(tmp_path: Path) -> None:
    """A server whose every request ends a thread: 32 are recorded."""
    code = "import threading\nfor i in range(100): t = threading.Thread(target=int, args='x'); t.start(); t.join()\n"
    assert len(ended_threads(run_it(tmp_path, code))) == 32


@pytest.mark.parametrize("minor", MINORS)
def test_exception_is_recorded_and_printed_as_untraced(minor: str, tmp_path: Path) -> None:
    """Type, message and lines, in each CPython; status and output are those of the untraced program."""
    python = sys.executable if minor == "own" else python_or_skip(minor)
    code = PROGRAM.format(call="main()")
    done = run_it(tmp_path, code, python)
    plain = subprocess.run(
        [python, tmp_path / "train.py"], env=environment(), capture_output=True, text=True, check=False,
        errors="replace",
    )  # fmt: skip
    assert (done.status, done.stdout, done.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    (error,) = uncaught(done)
    assert (error.type, error.message) == ("Wrong", 'no optimizer "adamx"\n\u20ac \\udc80')
    lines = [(frame.function, Path(frame.file).name, frame.line) for frame in error.python_stack]
    assert lines == [("configure", "train.py", 5), ("main", "train.py", 7), ("<module>", "train.py", 8)]
    assert error.thread == "MainThread"


def test_report_names_the_line(tmp_path: Path) -> None:
    """Below `pytracer run`: a verdict that is certain, where "nothing crashed" was printed before."""
    path = written(tmp_path, PROGRAM.format(call="main()"))
    report = traced_run(sys.executable, path, run=tmp_path / "run").report
    assert verdict(report) == ("python-exception", "certain")
    assert summary(report).startswith("Process ") and "at train.py:5 in configure." in summary(report)


@pytest.mark.parametrize(
    ("code", "type_name"),
    [
        ("import no_such_module", "ModuleNotFoundError"),
        ("def broken(:", "SyntaxError"),
        ("import json; json.loads('{')", "json.decoder.JSONDecodeError"),
        ("def deep(): deep()\ndeep()", "RecursionError"),
        ("class E(Exception):\n    def __str__(self): raise SystemExit(3)\nraise E", "E"),
    ],
)
def test_every_kind_of_exception_is_recorded(code: str, type_name: str, tmp_path: Path) -> None:
    """Imports, syntax, a deep stack (its innermost 64 frames), a message that cannot be made."""
    done = run_it(tmp_path, code)
    assert done.status == 1
    (error,) = uncaught(done)
    assert error.type == type_name
    if type_name == "RecursionError":
        assert len(error.python_stack) == 64 and {frame.function for frame in error.python_stack} == {"deep"}
    if type_name == "E":
        assert error.message == "(its message could not be made)"


@pytest.mark.parametrize(
    "code",
    [
        "raise SystemExit(3)",
        "import sys; sys.exit('no')",
        "try: 1 / 0\nexcept ZeroDivisionError: pass",
        "import os; os._exit(1)",
    ],
)
def test_what_is_no_uncaught_exception_is_not_recorded(code: str, tmp_path: Path) -> None:
    """The look-alikes."""
    assert uncaught(run_it(tmp_path, code)) == []


def test_hook_of_the_program_is_kept(tmp_path: Path) -> None:
    """`sys.excepthook` stays the same object; one that the program replaces without going on is not recorded; one that
    goes on is.
    """
    same = "import sys\nprint(sys.excepthook is sys.__excepthook__, sys.excepthook.__name__)\n"
    assert run_it(tmp_path, same).stdout == "True excepthook\n"
    own = "import sys\nsys.excepthook = lambda *error: print('mine')\n1 / 0\n"
    assert run_it(tmp_path, own).stdout == "mine\n"
    further = (
        "import sys\n"
        "def hook(*error):\n"
        "    print('mine')\n"
        "    sys.__excepthook__(*error)\n"
        "sys.excepthook = hook\n"
        "1 / 0\n"
    )
    done = run_it(tmp_path, further)
    assert done.stdout == "mine\n"
    assert uncaught(done)[-1].type == "ZeroDivisionError"


def test_interactive_interpreter_is_bounded(tmp_path: Path) -> None:
    """Each wrong input of an interactive session is printed by the same hook: 32 are recorded, and the end is no
    exception.
    """
    shell = f"for i in {{1..100}}; do echo 1 / 0; done | {sys.executable} -i -q"
    done = ended(["bash", "-c", shell], preloaded(tmp_path / "run"), tmp_path / "run")
    assert done.status == 0
    assert len(uncaught(done)) == 32


@needs_torch
@pytest.mark.parametrize("before", ["import torch", "import pytracer; pytracer.enable('{run}')"])
def test_exception_after_torch_is_recorded_once(before: str, tmp_path: Path) -> None:
    """The Python half records it first."""
    done = run_it(tmp_path, f"{before.format(run=tmp_path / 'run')}\nraise ValueError('once')\n")
    assert [error.message for error in uncaught(done)] == ["once"]


EXITS = """\
import sys
def leave(how, *code):
    try:
        {"sys.exit": sys.exit, "exit": exit}[how](*code)
    except SystemExit as error:
        print(error.code, error.args)
def leave_for(key):
    try:
        {}[key]
    except KeyError:
        sys.exit(300)
leave("sys.exit", 3)
leave("sys.exit")
leave("sys.exit", "no \u20ac")
leave("exit", 4)
leave("sys.exit", 1 << 100)
leave("sys.exit", (1, 2))
leave("sys.exit", True)
for wrong in [(1, 2)], {"code": 1}:
    try:
        sys.exit(*wrong) if isinstance(wrong, tuple) else sys.exit(**wrong)
    except (TypeError, SystemExit) as error:
        print(type(error).__name__)
print(sys.exit, SystemExit.__init__, SystemExit(5).code)
class Own(SystemExit):
    pass
print(Own(6).code)
try:
    leave_for("x")
finally:
    print("finally")
"""


@pytest.mark.parametrize("minor", MINORS)
def test_end_that_the_program_asks_for_is_recorded_and_happens_as_untraced(minor: str, tmp_path: Path) -> None:
    """With its line, status, text, and the error that was being handled; each request once, by whichever way."""
    python = sys.executable if minor == "own" else python_or_skip(minor)
    done = run_it(tmp_path, EXITS, python)
    assert (done.status, done.stdout, done.stderr) == run_untraced(tmp_path, python)
    found = [(item.status, item.message) for item in exits(done)]
    expected = [(3, ""), (0, ""), (1, "no \u20ac"), (4, ""), (255, ""), (1, ""), (1, "")]
    assert [item for item in found if item not in ((5, ""), (6, ""))][:7] == expected
    last = exits(done)[-1]
    assert (done.status, last.status) == (300 & 0xFF, 300 & 0xFF)
    assert [(frame.function, frame.line) for frame in last.python_stack] == [("leave_for", 11), ("<module>", 29)]
    (error,) = last.context
    assert (error.type, error.message, [frame.line for frame in error.python_stack]) == ("KeyError", "'x'", [9])
    calls = [item.python_stack[0].line for item in exits(done) if Path(item.python_stack[0].file).name == "train.py"]
    assert calls.count(4) == 6, calls


def test_exit_of_a_thread_is_no_end(tmp_path: Path) -> None:
    """sys.exit() in another thread ends that thread only."""
    code = "import sys, threading\nt = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()\n"
    done = run_it(tmp_path, code)
    assert (done.status, exits(done)) == (0, [])


def test_report_names_the_line_of_sys_exit(tmp_path: Path) -> None:
    """Below `pytracer run`, without torch."""
    code = "import argparse\nargparse.ArgumentParser().parse_args(['--local-rank=0'])\n"
    report = traced_run(sys.executable, written(tmp_path, code), run=tmp_path / "run").report
    assert verdict(report) == ("exit", "certain")
    assert "ended itself with exit status 2: argparse refused the command line at train.py:2" in summary(report)


def test_enabled_program_names_the_line_of_its_exit(tmp_path: Path) -> None:
    """Without a launcher, from enable() on; its status and output are those of the program."""
    code = "import sys, pytracer\npytracer.enable({!r})\ndef main():\n    sys.exit('no data')\nmain()\n"
    run = tmp_path / "run"
    done = ended([sys.executable, written(tmp_path, code.format(str(run)))], environment(), run)
    assert (done.status, done.stderr) == (1, "no data\n")
    assert verdict(done.report) == ("exit", "certain")
    assert "exit status 1: SystemExit, no data, was raised at train.py:4 in main" in summary(done.report)
