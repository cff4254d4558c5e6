"""What a process is to its framework, from stacks, notes, thread names and command lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import ProcessReport
from tests.support import scenarios as s
from tests.support.synth import Box, Frame

SITE = "/env/lib/python3.11/site-packages"
LOOP = ("Worker.main_loop", f"{SITE}/ray/_private/worker.py", 1069)
SPAN = ("_resume_span", f"{SITE}/ray/util/tracing/tracing_helper.py", 487)
METHOD = ("make.<locals>.actor_method_executor", f"{SITE}/ray/_private/function_manager.py", 740)
PROCESS = ("BaseProcess.run", "/usr/lib/python3.11/multiprocessing/process.py", 108)
TEST = ("pytest_runtest_call", f"{SITE}/_pytest/runner.py", 178)
HOOK = ("_multicall", f"{SITE}/pluggy/_callers.py", 121)


def ended(directory: Path, box: Box) -> ProcessReport:
    """The process's part of the report."""
    (process,) = build_report(s.load(directory, box)).processes or []
    return process


def name_of(directory: Path, box: Box) -> tuple[str | None, str | None]:
    process = ended(directory, box)
    return process.name, process.name_found


@pytest.mark.parametrize(
    ("stack", "name"),
    [
        ([("die", "job.py", 5), LOOP], "Ray task die"),
        ([("Trainer.step", "job.py", 5), SPAN, METHOD, LOOP], "Ray actor Trainer"),
        ([("string_at", "ctypes.py", 5), ("Net.forward", "net.py", 1), ("Trainer.step", "job.py", 5), METHOD, LOOP],
         "Ray actor Trainer"),
        ([("step", "job.py", 5), METHOD, LOOP], "Ray actor"),  # CPython 3.10 has no qualified names
        ([LOOP], None),
        ([("a", "a.py", 5), ("subprocess_started", f"{SITE}/uvicorn/_subprocess.py", 80), PROCESS], "uvicorn worker"),
        ([("subprocess_started", "mine.py", 80)], None),
        ([("init_process", f"{SITE}/gunicorn/workers/base.py", 140)], "gunicorn worker"),
        ([("EngineCoreProc.run_engine_core", f"{SITE}/vllm/v1/engine/core.py", 9), PROCESS], "vLLM engine core"),
        ([("work", "job.py", 5), PROCESS], "multiprocessing process running work"),
        ([("work", "job.py", 5), ("_process_worker", "/usr/lib/python3.11/concurrent/futures/process.py", 2), PROCESS],
         "process pool worker"),
        ([("test_a", "test_x.py", 5), HOOK, TEST, ("<module>", f"{SITE}/xdist/remote.py", 420)], "pytest-xdist worker"),
        ([("main", "train.py", 5)], None),
    ],
)  # fmt: skip
def test_stack_names_the_process(stack: list[Frame], name: str | None, tmp_path: Path) -> None:
    """By the function and the file of a framework that runs in it, never by one of them alone."""
    assert name_of(tmp_path, Box().crash(python=stack)) == (name, "Python stack" if name else None)


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("ray::Trainer.st", "Ray actor Trainer"),
        ("ray::train", "Ray worker train"),
        ("ray::ALongNameT", "Ray worker ALongNameT..."),
        ("ray::IDLE", None),
        ("VLLM::EngineCor", "vLLM engine core"),
        ("python", None),
    ],
)
def test_title_of_the_process_names_it(title: str, name: str | None, tmp_path: Path) -> None:
    """The kernel keeps 15 bytes of it; what is cut off shows."""
    box = Box(pid=101).thread(101, title).crash(signal=11, tid=101)
    assert name_of(tmp_path, box) == (name, "thread name" if name else None)


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (("python", f"{SITE}/ray/_private/workers/default_worker.py", "--x"), "Ray worker"),
        (("python", "-u", "-m", "submitit.core._submit", "/jobs"), "submitit job"),
        (("python", "-m", "ipykernel_launcher", "-f", "x.json"), "Jupyter kernel"),
        (("grep", "ipykernel_launcher.txt"), None),
    ],
)
def test_command_line_names_what_left_no_stack(argv: tuple[str, ...], name: str | None, tmp_path: Path) -> None:
    """After a SIGKILL, for example."""
    assert name_of(tmp_path, Box(argv=argv)) == (name, "command line" if name else None)


def test_multiprocessings_name_is_noted_by_the_process(tmp_path: Path) -> None:
    """The stack would have the function only; the name of the parent, which a fork inherits, is none of its own."""
    box = Box().doing("name", "multiprocessing process Loader-1").crash(python=[("work", "job.py", 5), PROCESS])
    assert name_of(tmp_path / "own", box) == ("multiprocessing process Loader-1", "recorded")
    forked = Box(pid=101).doing("name", "multiprocessing process Loader-1").later(5).fork(102)
    assert name_of(tmp_path / "forked", forked) == (None, None)


def test_number_of_an_xdist_worker_is_noted_by_the_plugin(tmp_path: Path) -> None:
    """The stack shows that it is one."""
    stack = [("test_a", "test_x.py", 5), HOOK, TEST, ("<module>", f"{SITE}/xdist/remote.py", 420)]
    box = Box().doing("name", "pytest-xdist worker gw3").crash(python=stack)
    assert name_of(tmp_path, box) == ("pytest-xdist worker gw3", "Python stack")


def test_last_thing_noted_is_what_it_was_doing(tmp_path: Path) -> None:
    """The journal has the whole text; when it is full, the records of the thread have the beginning."""
    box = (
        Box()
        .at(1)
        .doing("test", "test_x.py::test_a[" + "1" * 150 + "] (call)")
        .mark("test: test_x.py::test_a[" + "1" * 90)
    )
    whole = ended(tmp_path / "whole", box.crash()).doing
    assert whole is not None
    assert (whole.kind, whole.text) == ("test", "test_x.py::test_a[" + "1" * 150 + "] (call)")
    full = Box().at(1).doing("test", "test_x.py::test_a (call)").at(2).mark("test: test_x.py::test_b (call)")
    later = ended(tmp_path / "full", full.crash()).doing
    assert later is not None
    assert later.text == "test_x.py::test_b (call)"


def test_mark_of_the_program_is_no_test(tmp_path: Path) -> None:
    """pytracer.mark() is free text, and an ended test leaves an empty one."""
    assert ended(tmp_path / "mark", Box().mark("epoch 3 begins").crash()).doing is None
    assert ended(tmp_path / "over", Box().at(1).doing("test", "t (call)").at(2).doing("test", "").crash()).doing is None


def test_stack_of_a_test_is_named_without_the_plugin(tmp_path: Path) -> None:
    """The outermost frame of the program below pytest's phase; parameters are not known."""
    stack = [("read", "/x/lib.py", 3), ("test_a", "/x/test_x.py", 5), HOOK, TEST, HOOK]
    doing = ended(tmp_path, Box().crash(python=stack)).doing
    assert doing is not None
    assert (doing.kind, doing.text, doing.since) == ("test", "test_a in test_x.py (call)", None)


def test_headline_has_the_name(tmp_path: Path) -> None:
    """A process that is no rank is introduced by what it is."""
    report = build_report(s.load(tmp_path, Box(pid=7).crash(python=[("Trainer.step", "job.py", 5), METHOD, LOOP])))
    assert report.verdict is not None
    assert (report.verdict.summary or "").startswith("Ray actor Trainer (pid 7) ")
