"""A forked child that numba's GNU OpenMP ended."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import NativeFrame
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import EXIT
from tests.support.synth import Box, Frame

MP = "/usr/lib/python3.11/multiprocessing"
SITE = "/opt/env/lib/python3.11/site-packages"
NUMBA = f"{SITE}/numba/_dispatcher.cpython-311-x86_64-linux-gnu.so"
UMATH = f"{SITE}/numpy/core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so"
OTHER = f"{SITE}/fast/_fast.so"
Native = Sequence[tuple[str | None, str | None]]
RAISED: Native = [("__pthread_kill_implementation", s.LIBC), ("raise", s.LIBC)]
KERNEL: Native = [*RAISED, (None, None), (None, None), ("Dispatcher_call", NUMBA), ("_PyEval", s.PYTHON)]
UFUNC: Native = [*RAISED, (None, None), ("generic_wrapped_legacy_loop", UMATH), ("_PyEval", s.PYTHON)]
MAIN = """from kern import row_sums
def item(rows):
    return row_sums(rows)
def main(rows):
    {before}
    child = Process(target=item, args=(rows,))
    child.start()
"""
KERN = """import numba as nb
@{mark}
def row_sums(rows):
    return rows.sum(1)
"""


def read(
    run: Path, native: Native, mark: str = "nb.njit(parallel=True)", before: str = "item(rows)", *, forked: bool = True
) -> Report:
    """A child that was ended by a signal of its own, at line 3 of the program."""
    own, kern = run / "train.py", run / "kern.py"
    own.write_text(MAIN.format(before=before))
    kern.write_text(KERN.format(mark=mark))
    for path in (own, kern):
        os.utime(path, (0, 0))
    inner: list[Frame] = [("item", str(own), 3), ("BaseProcess._bootstrap", f"{MP}/process.py", 314)]
    outer: list[Frame] = [("Popen._launch", f"{MP}/popen_fork.py", 71), ("main", str(own), 7)]
    child = Box(pid=102, ppid=101, created_ns=6_000_000_000).at(-500 if forked else 100).versions(torch="2.13.0")
    child.at(100).mark("begin").at(5_000).signal_seen(15, 102, code=-6)
    child.crash(0, code=0, state=EXIT, python=[*inner, *outer], native=[(s.LIBC, 0x10)] * len(native))
    root = Box(pid=90, ppid=80, argv=["bash"]).at(6_000).wait(101, exit_code=1).exit(1)
    job = s.load(
        run, root, Box(pid=101, ppid=90).versions(torch="2.13.0").at(5_010).wait(102, signal=15).exit(1), child
    )
    frames = tuple(NativeFrame(n, image, n, None, "unwound", name) for n, (name, image) in enumerate(native))
    changed = []
    for item in job.processes:
        end = item.snapshot.ending
        if end is not None:
            item = replace(item, snapshot=replace(item.snapshot, ending=replace(end, native_stack=frames)))
        changed.append(item)
    return build_report(replace(job, processes=tuple(changed)))


def test_forked_child_that_calls_a_parallel_kernel_is_ended_by_numba(run: Path) -> None:
    """The kernel, where it is made, and the call that ran it in the parent."""
    report = read(run, KERNEL)
    assert verdict(report) == ("misuse", "certain")
    assert summary(report) == (
        "Process 102 (train.py) sent SIGTERM to itself: numba's GNU OpenMP ends a forked process that calls the "
        "parallel kernel `row_sums`, at train.py:3 in item; it was forked at train.py:7 in main from its parent, "
        "which had run such kernels before (`item(rows)` at train.py:5 in main)."
    )
    assert "Take `parallel=True` out of `row_sums` (kern.py:2: `@nb.njit(parallel=True)`)" in advice(report)
    assert "NUMBA_THREADING_LAYER=workqueue" in advice(report)


def test_ufunc_of_numba_is_called_by_numpy(run: Path) -> None:
    """Its code lies in no image, and the program compiles it for several threads."""
    report = read(run, UFUNC, "nb.vectorize(['f4(f4)'], target='parallel')")
    assert verdict(report) == ("misuse", "certain")
    assert 'Take `target="parallel"` out of `row_sums`' in advice(report)


def test_kernel_of_a_library_is_not_named(run: Path) -> None:
    """The program has no such function."""
    report = read(run, KERNEL, "nb.njit")
    assert verdict(report) == ("misuse", "likely")
    assert "calls a parallel kernel, at train.py:3 in item" in summary(report)


def test_call_in_the_parent_may_not_be_known(run: Path) -> None:
    """It may lie in a library."""
    assert summary(read(run, KERNEL, before="pass")).endswith("from its parent, which had run such kernels before.")


@pytest.mark.parametrize(
    ("native", "mark", "forked"),
    [
        ([("kill", s.LIBC), ("os_kill", s.PYTHON)], "nb.njit(parallel=True)", True),
        ([*RAISED, ("stop", OTHER), ("Dispatcher_call", NUMBA)], "nb.njit(parallel=True)", True),
        (UFUNC, "nb.njit", True),
        (KERNEL, "nb.njit(parallel=True)", False),
    ],
)
def test_signal_that_a_process_sends_itself_otherwise_is_not_numbas(
    native: Native, mark: str, forked: bool, run: Path
) -> None:
    """The look-alikes: os.kill(), another library's raise(), generated code of another compiler, and no fork."""
    assert "numba" not in summary(read(run, native, mark, forked=forked))
