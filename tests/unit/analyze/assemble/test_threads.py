"""All threads in the report: order, kinds, stacks joined."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.assemble.processes import process_report
from pytracer.analyze.assemble.threads import Threads, thread_kind
from pytracer.analyze.assemble.view import build_view
from pytracer.analyze.engine import build_report
from pytracer.analyze.timeline.clock import RunClock
from pytracer.decode.job.merge import load_job
from pytracer.decode.types.snapshot import Job, NativeFrame, ThreadStackState
from pytracer.render.text import render_text
from pytracer.report import job as r
from tests.support import crash_scenarios as c
from tests.support import scenarios as s
from tests.support.synth import Box, write_run
from tests.support.synth_threads import OtherThread

Stack = tuple[NativeFrame, ...]


def process(job: Job) -> r.ProcessReport:
    return process_report(build_view(0, job.processes[0], RunClock(job)))


def threads(run: Path, box: Box, **crash: Any) -> list[r.ThreadReport]:
    return process(s.load(run, box.at(500).crash(**{"native": s.NATIVE[:1], **crash}))).threads or []


def frames(*functions: str, image: str = "/x/libtorch_cpu.so") -> tuple[NativeFrame, ...]:
    return tuple(NativeFrame(1, image, 1, None, "exact", function) for function in functions)


@pytest.mark.parametrize(
    ("name", "has_python", "stack", "kind"),
    [
        ("python", True, frames("read", image="/x/libc.so.6"), "python"),
        ("python", False, frames("read", image="/x/libc.so.6"), "native"),
        ("pt_autograd_0", True, (), "autograd"),
        ("python", True, frames("x", "torch::autograd::Engine::thread_main(std::shared_ptr<...> const&)"), "python"),
        ("python", False, frames("torch::autograd::Engine::thread_main(...)"), "autograd"),
        ("python", True, frames("torch::autograd::Engine::thread_init(int, ...)", "start_thread"), "autograd"),
        ("python", False, frames("f") + frames("g", image="/x/libgomp-98.so.1"), "openmp"),
        ("python", True, frames("f", image="/x/libiomp5.so") + frames("start_thread", image="/x/libc.so.6"), "openmp"),
        ("python", True, frames("GOMP_parallel", image="/x/libgomp.so.1") + frames("thread_run"), "python"),
        ("python", False, frames("gloo::transport::tcp::Loop::run()"), "gloo"),
        ("pt_nccl_watchdg", False, (), "nccl-watchdog"),
        ("python", False, frames("_Unwind_ForcedUnwind", "pythread_wrapper", "start_thread"), "python"),  # at exit
    ],
)  # fmt: skip
def test_kind_follows_from_name_and_first_functions(
    name: str, has_python: bool, stack: tuple[NativeFrame, ...], kind: str
) -> None:
    """A Python thread that calls backward() or a parallel loop stays a Python thread."""
    assert thread_kind(101, 999, name, has_python, stack) == kind
    assert thread_kind(101, 101, name, has_python, stack) == "main"


def test_crashed_thread_comes_first_then_the_main_one(tmp_path: Path) -> None:
    """Then all others by their id, each once."""
    report = process(c.terminated(tmp_path))
    found = [(item.tid, item.kind, item.crashed) for item in report.threads or []]
    assert found == [
        (555, "native", True),
        (101, "main", False),
        (601, "openmp", False),
        (602, "openmp", False),
        (603, "openmp", False),
        (700, "gloo", False),
    ]
    assert (report.threads_found, report.threads_total) == ("helper (ptrace)", 7)


def test_python_stack_is_joined_by_pthread(tmp_path: Path) -> None:
    """Also for a thread that recorded nothing itself; one without a native stack is kept."""
    frame = [("worker", "w.py", 5)]
    others = [OtherThread(601, native=s.NATIVE[:1], pthread=0x77, syscall=202), OtherThread(602, pthread=0x78)]
    found = threads(
        tmp_path,
        Box(pid=101),
        threads=others,
        threads_how=2,
        python_matched=False,
        other_python={0x77: frame, 0x79: frame},
    )
    by_tid = {item.tid: item for item in found}
    stacks = {tid: [f.function for f in item.python_stack or []] for tid, item in by_tid.items()}
    assert stacks == {101: [], 601: ["worker"], 602: [], None: ["worker"]}
    assert (by_tid[601].kind, by_tid[601].system_call, by_tid[602].kind) == ("python", "futex", "native")


def test_python_stack_of_the_crashed_thread_is_not_told_twice(tmp_path: Path) -> None:
    """Matched by the handler, or by pthread only."""
    for matched in (True, False):
        run = tmp_path / str(matched)
        found = threads(run, Box(pid=101), python=[("f", "f.py", 3)], python_matched=matched, threads=[OtherThread(9)])
        assert [len(item.python_stack or []) for item in found] == [1, 0]


def test_threads_that_only_recorded_are_listed_unless_all_are_known(tmp_path: Path) -> None:
    """A complete list from the helper proves that a thread has ended, even without a record of its end."""
    for total, expected in ((1, [101, 601]), (2, [101, 601, 555])):
        box = Box(pid=101).thread(555, "gone").mark("x", tid=555)
        found = threads(tmp_path / str(total), box, threads=[OtherThread(601)], threads_how=1, threads_total=total)
        assert [item.tid for item in found] == expected


def test_gap_of_a_deep_stack_is_told(tmp_path: Path) -> None:
    """The number of missing frames, and their position."""
    deep = OtherThread(601, native=[(s.VICTIM, 0x10 + n) for n in range(64)], total=1000)
    found = threads(tmp_path, Box(pid=101), threads=[deep])[1]
    assert (len(found.native_stack or []), found.frames_left_out, found.frames_after_gap) == (64, 936, 16)


BODY = (
    "at::internal::invoke_parallel<at::parallel_for<at::Iterator::for_each(long)::{lambda#1}>(long)> [clone ._omp_fn.0]"
)
OTHER = BODY.replace("Iterator", "Reducer")
GOMP = frames("GOMP_parallel", image="/x/libgomp.so.1")
MAIN = [("train", "train.py", 7)]
IN_BODY = (*frames(BODY), *GOMP, *frames("at::native::f"))
WAITS = (*GOMP, *frames("at::Iterator::for_each(long)"))


def opener(run: Path, *others: tuple[int, Stack], state: ThreadStackState = "done") -> object:
    """Who opened the region in which the OpenMP worker 600 crashed; `others`: other threads and their stacks."""
    stacks = [OtherThread(tid, pthread=tid) for tid, _ in others]
    box = Box(pid=101).at(500)
    box.crash(tid=600, threads=stacks, python_matched=False, other_python={101: MAIN})
    snapshot = s.load(run, box).processes[0].snapshot
    assert snapshot.crash is not None
    named = dict(others)
    crash = replace(
        snapshot.crash,
        python_stack=(),
        native_stack=(*frames(BODY), *frames("gomp_thread_start", image="/x/libgomp.so.1")),
        threads=tuple(replace(i, native_stack=named[i.tid], state=state) for i in snapshot.crash.threads),
    )
    found = Threads(snapshot, crash).region_opener()
    return found and (found[0].tid, [frame.function for frame in found[1]])


@pytest.mark.parametrize("stack", [IN_BODY, WAITS, (*GOMP, *frames("kernel_impl"))])
def test_parallel_region_names_the_thread_that_opened_it(stack: Stack, tmp_path: Path) -> None:
    """It works in the region itself, waits for its workers, or is the only one that called OpenMP."""
    assert opener(tmp_path, (101, stack), (602, frames("read"))) == (101, ["train"])


def test_of_two_regions_the_common_body_decides(tmp_path: Path) -> None:
    """The main thread runs a region of its own, the autograd thread this one."""
    assert opener(tmp_path, (101, (*frames(OTHER), *GOMP, *frames("at::Reducer::for_each(long)"))), (602, WAITS)) == (
        602,
        [],
    )


def test_of_two_equal_regions_nobody_is_named(tmp_path: Path) -> None:
    """Two threads run the same operator: whose worker it was is unknown."""
    assert opener(tmp_path, (101, IN_BODY), (602, WAITS)) is None


def test_thread_in_another_region_is_not_named_while_some_stacks_are_missing(tmp_path: Path) -> None:
    """The one that opened the region may be among those whose stacks could not be walked."""
    other = (*GOMP, *frames("kernel_impl"))
    assert opener(tmp_path, (101, other), (602, ()), state="faulted") is None


def test_thread_that_is_no_openmp_worker_has_no_opener(tmp_path: Path) -> None:
    """It opened its region itself."""
    job = s.load(tmp_path, Box(pid=101).at(500).crash(native=s.NATIVE[:1]))
    snapshot = job.processes[0].snapshot
    assert snapshot.crash is not None and Threads(snapshot, snapshot.crash).region_opener() is None


@pytest.mark.parametrize("asked", [True, False])
def test_threads_of_a_process_that_was_asked_to_end_have_their_python_stacks(asked: bool, run: Path) -> None:
    """The main thread, with its native stack, first. The look-alike ended by an exception: its own stack counts."""
    box = Box(pid=101, ppid=99).thread(555, "loader", pthread=0x7000_0555).at(500)
    if not asked:
        box.exception("ValueError", "no labels")
    box.signal_seen(15, 77, ["sh"]).crash(
        0, code=0, state=6, python=[("train", s.SCRIPT, 12)], native=[(s.PYTHON, 0x10)],
        other_python={0x7000_0555: [("load", s.SCRIPT, 30)], 0x7000_0999: [("watch", s.SCRIPT, 40)]},
    )  # fmt: skip
    parent = Box(pid=99, ppid=1, argv=["sh"]).at(600)
    write_run(run, box, parent.wait(101, signal=15) if asked else parent.wait(101, exit_code=1))
    report = build_report(load_job(run, symbols=False))
    (process,) = (item for item in report.processes or () if item.pid == 101)
    threads = process.threads or []
    stacks = [(item.tid, [frame.function for frame in item.python_stack or ()]) for item in threads]
    assert not any(item.crashed for item in threads)
    if asked:
        assert stacks[0] == (101, ["train"])
        assert threads[0].native_stack
        assert (555, ["load"]) in stacks
        assert (None, ["watch"]) in stacks
        assert "thread ? (python)" in render_text(report, everything=True)
    else:
        assert not any(functions for _, functions in stacks)
