"""ended-itself: the caller of a process's exit, and look-alikes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import Job
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import PID, advice, finding, summary, verdict
from tests.support.synth import Box, Frame
from tests.support.synth_threads import OtherThread

EXIT = 6  # CrashState
CORE, FFI = "/venv/lib/pytracer/libpytracer_core.so", "/usr/lib/libffi.so.8"
TRAIN: list[Frame] = [("train", s.SCRIPT, 12)]
LAUNCH: list[Frame] = [("_launch", "/usr/lib/python3.11/multiprocessing/popen_fork.py", 71), *TRAIN]


def ended(
    run: Path,
    native: Sequence[str],
    python: Sequence[Frame] = (),
    code: int = 3,
    exception: tuple[str, str] | None = None,
    **crash: Any,
) -> Report:
    """The report about a process that called exit under these images and Python frames."""
    box = Box(pid=PID, ppid=99).at(500)
    if exception is not None:
        box.exception(*exception, TRAIN)
    stack = [(image, 0x1000 + 16 * number) for number, image in enumerate(native)]
    box.crash(0, code=0, state=EXIT, python=python, native=stack, **crash)
    return build_report(s.load(run, box.exit(code)))


@pytest.mark.parametrize(
    ("native", "python", "says"),
    [
        ((CORE, s.PYTHON), TRAIN, "os._exit() was called at train.py:12 in train"),
        ((CORE, s.LIBC, s.PYTHON), TRAIN, "exit() was called at train.py:12 in train"),
        ((CORE, s.LIBC, FFI, s.PYTHON), TRAIN, "exit() was called at train.py:12 in train"),
        ((CORE, s.LIBC, s.VICTIM, s.PYTHON), TRAIN, "exit() was called in libvictim.so+0x"),
        ((CORE, s.VICTIM, s.PYTHON), TRAIN, "_exit() was called in libvictim.so+0x"),
        ((CORE, s.LIBC), (), "exit() was called on a thread without Python"),
    ],
)
def test_caller_is_told_by_the_images_below(native: Sequence[str], python: list[Frame], says: str, run: Path) -> None:
    """The C library and the interpreter only pass the call on."""
    report = ended(run, native, python)
    assert verdict(report) == ("exit", "certain")
    assert f"ended itself with exit status 3: {says}" in summary(report)


def test_exception_that_reached_the_top_is_the_cause(run: Path) -> None:
    """A later exit is a consequence."""
    report = ended(run, (CORE, s.PYTHON), TRAIN, 1, ("ValueError", "shard 3 has 0 rows"))
    assert verdict(report)[0] == "python-exception"
    assert finding(report, "ended-itself") is None


@pytest.mark.parametrize("asked", [True, False])
def test_exit_from_the_handler_of_a_request_to_end_is_not_its_own(asked: bool, run: Path) -> None:
    """Ray's dashboard calls os._exit(15) at SIGTERM. The look-alike: SIGTERM to itself is no request of others."""
    box = Box(pid=PID, ppid=99).at(500).signal_seen(15, 99 if asked else PID, ["driver"], handled=True)
    box.crash(0, code=0, state=EXIT, python=TRAIN, native=[(CORE, 0x1000), (s.PYTHON, 0x1010)])
    report = build_report(s.load(run, box.exit(15)))
    assert verdict(report) == (("external-kill", "likely") if asked else ("exit", "certain"))
    assert ("received SIGTERM, sent by its parent, process 99" in summary(report)) == asked


def test_child_of_multiprocessing_ends_in_order(run: Path) -> None:
    """It is ended by os._exit(), under the frames of its parent's start()."""
    report = ended(run, (CORE, s.PYTHON), LAUNCH)
    assert finding(report, "ended-itself") is None
    assert verdict(report)[0] == "unknown"


@pytest.mark.parametrize(
    ("native", "python"),
    [
        ((CORE, s.PYTHON), TRAIN),  # os._exit(0)
        ((CORE, s.LIBC, "/usr/lib/libQt5Core.so.5"), TRAIN),
        ((CORE, s.LIBC, "/venv/lib/python3.11/site-packages/ray/_raylet.so"), TRAIN),
        ((CORE, s.LIBC, s.VICTIM), ()),  # a thread of its own, or behind the last line
    ],
)
def test_status_zero_is_no_death(native: Sequence[str], python: list[Frame], run: Path) -> None:
    """A library that ends the process in this way has its stacks shown, and is not blamed."""
    assert verdict(ended(run, native, python, 0)) == ("clean", "certain")


@pytest.mark.parametrize("code", [0, 3])
def test_native_code_of_the_program_may_not_end_it_in_mid_work(code: int, run: Path) -> None:
    """What is behind the line that called it never ran."""
    report = ended(run, (CORE, s.LIBC, s.VICTIM, s.PYTHON), TRAIN, code)
    assert verdict(report) == ("exit", "likely" if code == 0 else "certain")
    assert "an error, such as a null pointer or a negative number, that line 12 makes an exception of" in advice(report)
    assert ("takes that for a failure" in advice(report)) == (code == 0)


@pytest.mark.parametrize(("behind", "told"), [("", False), ("save(model)\n", True)])
def test_last_line_of_a_program_may_end_it(behind: str, told: bool, run: Path) -> None:
    """Nothing was left to run."""
    script = run / "train.py"
    script.write_text(f"lib = load()\nlib.finish(0)\n{behind}", encoding="utf-8")
    os.utime(script, (0, 0))
    report = ended(run, (CORE, s.LIBC, s.VICTIM, s.PYTHON), [("<module>", str(script), 2)], 0)
    assert verdict(report)[0] == ("exit" if told else "clean")


def test_child_that_native_code_forked_ends_as_it_is_meant_to(run: Path) -> None:
    """With copies of its parent's frames; what the parent raises later is the verdict."""
    native = [(image, 0x1000 + 16 * number) for number, image in enumerate((CORE, s.LIBC, s.VICTIM, s.PYTHON))]
    child = Box(pid=102, ppid=PID, created_ns=6 * 10**9).at(-1000).doing("cell", "train").at(500)
    child.crash(0, code=0, state=EXIT, python=TRAIN, native=native).exit(0)
    alone = build_report(s.load(run / "alone", Box(pid=PID, ppid=99).at(900).exit(0), child))
    assert verdict(alone)[0] == "clean"
    failed = Box(pid=PID, ppid=99).at(900).exception("ValueError", "later", TRAIN).exit(1)
    assert verdict(build_report(s.load(run / "failed", failed, child)))[0] == "python-exception"


@pytest.mark.parametrize(("code", "passed"), [(139, True), (3, False)])
def test_status_that_passes_on_the_signal_of_a_child_is_not_its_own_reason(code: int, passed: bool, run: Path) -> None:
    """128 + 11, after a child died of SIGSEGV whose recording is gone; any other status is the program's own."""
    box = Box(pid=PID, ppid=99).at(400).wait(102, signal=11).at(500)
    stack = [(image, 0x1000 + 16 * number) for number, image in enumerate((CORE, s.PYTHON))]
    box.crash(0, code=0, state=EXIT, python=TRAIN, native=stack)
    report = build_report(s.load(run, box.exit(code)))
    assert verdict(report) == (("unknown", "unknown") if passed else ("exit", "certain"))
    assert ("its child, process 102, by SIGSEGV" in summary(report)) == passed


@pytest.mark.parametrize(("library", "openmp"), [("/venv/lib/libgomp.so.1", True), (s.VICTIM, False)])
def test_openmp_that_ends_the_process_had_no_thread_to_start(library: str, openmp: bool, run: Path) -> None:
    """Its only calls of exit(); any other library has reasons of its own."""
    report = ended(run, (CORE, s.LIBC, library, s.TORCH_CPU, s.PYTHON), TRAIN, 1)
    assert verdict(report) == ("exit", "certain")
    assert ("cannot create a thread" in summary(report)) == openmp
    assert report.verdict is not None and ("OMP_NUM_THREADS" in (report.verdict.advice or "")) == openmp


LOCK: list[Frame] = [("epoch", s.SCRIPT, 18)]
HOLDER: list[Frame] = [("report", s.SCRIPT, 14)]


@pytest.mark.parametrize("function", ["faulthandler_thread", "watch"])
def test_watchdog_of_faulthandler_is_named_with_what_the_program_did(function: str, run: Path) -> None:
    """dump_traceback_later(exit=True) calls _exit(1) on its thread; another native thread may do so, too."""
    box = Box(pid=PID, ppid=99).thread(205, "python").thread(206, "metrics").at(500)
    others = {box.threads[0].pthread: LOCK, box.threads[2].pthread: HOLDER}
    box.crash(0, code=0, state=EXIT, tid=205, other_python=others, native=[(CORE, 0x1000), (s.PYTHON, 0x2000)])
    job = s.load(run, box.exit(1))
    report = build_report(with_functions(job, {1: function}))
    if function == "watch":
        assert "faulthandler" not in summary(report)
        return
    assert summary(report) == (
        f"Process {PID} (train.py) was ended by faulthandler's watchdog, with exit status 1, while it was at "
        "train.py:18 in epoch."
    )
    assert "Meanwhile the thread metrics was at train.py:14 in report" in advice(report)


def with_functions(job: Job, names: dict[int, str]) -> Job:
    """The stacks of the end with these functions, by number of the frame."""
    changed = []
    for process in job.processes:
        ending = process.snapshot.ending
        if ending is not None:
            frames = tuple(
                replace(frame, function=names.get(at, frame.function)) for at, frame in enumerate(ending.native_stack)
            )
            snapshot = replace(process.snapshot, ending=replace(ending, native_stack=frames))
            process = replace(process, snapshot=snapshot)
        changed.append(process)
    return replace(job, processes=tuple(changed))


@pytest.mark.parametrize(("tid", "named"), [(600, True), (PID, False)])
def test_watchdog_of_the_program_is_told_with_what_the_main_thread_did(tid: int, named: bool, run: Path) -> None:
    """A thread that sees no progress calls os._exit(): why there was none is at the main thread's line."""
    watch: list[Frame] = [("Watchdog.run", s.SCRIPT, 40)]
    main = Box(pid=PID).threads[0].pthread
    others: dict[str, Any] = (
        {"threads": [OtherThread(PID, pthread=main)], "other_python": {main: TRAIN}} if named else {}
    )
    report = ended(run, (CORE, s.PYTHON), watch, 7, tid=tid, **others)
    assert verdict(report) == ("exit", "certain")
    assert "os._exit() was called at train.py:40 in Watchdog.run" in summary(report)
    assert (", while the main thread was at train.py:12 in train" in summary(report)) is named
    assert ("see whether line 12 is slow, or waits for something" in advice(report)) is named
