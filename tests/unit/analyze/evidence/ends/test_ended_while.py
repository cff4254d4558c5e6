"""What a process was at when a time limit ended it: only what the stack of its main thread shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import below, ended, parent, stopped
from tests.support.synth import Frame
from tests.support.synth_threads import OtherThread

MAIN: list[Frame] = [("pairwise", s.SCRIPT, 9), ("main", s.SCRIPT, 14)]
IMPORT: list[Frame] = [
    ("<module>", f"{s.TORCH}/_dynamo/__init__.py", 3),
    ("_find_and_load", "<frozen importlib._bootstrap>", 1176),
    ("main", s.SCRIPT, 13),
]
BLAS = "/venv/lib/python3.11/site-packages/scipy_openblas64/lib/libscipy_openblas64_.so"
SUBPROCESS = "/usr/lib/python3.11/subprocess.py"
PACK = "/home/user/job/libpack.so"
EVALUATES = ("_PyEval_EvalFrameDefault", s.PYTHON)


@pytest.mark.parametrize(("image", "named"), [(BLAS, False), (PACK, True)])
def test_function_of_an_installed_library_is_no_loop_of_the_program(image: str, named: bool, run: Path) -> None:
    """The reader cannot look at the loops of BLAS; those of native code of his own he can."""
    report = below(run, stopped(parent(), MAIN), native=[("exec_work", image), EVALUATES])
    assert verdict(report)[0] == "external-kill"
    assert ("it was in exec_work" in summary(report)) is named
    assert ("look at the loops of exec_work" in advice(report)) is named
    assert ("it was at train.py:9 in pairwise" in summary(report)) is not named


def test_end_of_an_import_is_told_as_such(run: Path) -> None:
    """A short limit meets the imports of torch, below any line of the program: that line itself is not slow."""
    report = ended(run, stopped(parent(), IMPORT))
    assert "it was still importing modules at train.py:13 in main" in summary(report)
    assert advice(report).startswith("Raise the time limit if the program needs longer; it was still importing")


def test_thread_of_a_pool_that_took_the_signal_does_not_wait_for_the_program(run: Path) -> None:
    """Threads of BLAS wait in futex() for work; the main thread's line did not call that."""
    box = parent().at(60_000).signal_seen(15, 90, ["timeout", "60", "python", "train.py"])
    main = box.threads[0].pthread
    box.crash(
        0, code=0, state=6, tid=600, python_matched=False, native=[(s.LIBC, 0x10)],
        threads=[OtherThread(101, pthread=main)], other_python={main: MAIN},
    )  # fmt: skip
    report = below(run, box, native=[("__futex_abstimed_wait_common", s.LIBC), ("blas_thread_server", BLAS)])
    assert verdict(report)[0] == "external-kill"
    assert "futex" not in summary(report) + advice(report)
    assert "it was at train.py:9 in pairwise" in summary(report)


def test_child_that_had_not_ended_may_only_be_slow(run: Path) -> None:
    """That it waits for an input is one reason of two, and not known."""
    script = str(s.program_in(run, "import subprocess\nsubprocess.run(['export_model', 'm.pt'], check=True)\n"))
    report = ended(run, stopped(parent(), [("Popen._try_wait", SUBPROCESS, 2011), ("<module>", script, 2)]))
    assert "waited for a child process at program.py:2" in summary(report)
    assert "which had not ended: run it by hand" in advice(report)
    assert "never comes" not in advice(report)
