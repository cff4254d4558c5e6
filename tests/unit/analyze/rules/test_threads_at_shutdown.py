"""abort: which thread was inside torch when the interpreter shut down, by its storages and the program's lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.journal import CppException
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import LIBC_SO, STDCPP, TORCH_PYTHON, advice, died, evidence, summary, verdict
from tests.support.synth import Box

THREAD = 108
STACK: list[tuple[str | None, str | None]] = [
    (LIBC_SO, "abort"),
    (STDCPP, "std::terminate()"),
    (STDCPP, "__gxx_personality_v0"),
    ("/lib/libgcc_s.so.1", "_Unwind_ForcedUnwind"),
    (LIBC_SO, "pthread_exit"),
    (s.PYTHON, "PyThread_exit_thread"),
    (s.PYTHON, "PyEval_RestoreThread"),
    (TORCH_PYTHON, "torch::autograd::THPVariable_linear(_object*, _object*, _object*)"),
]
RUNS_PYTHON: list[tuple[str | None, str | None]] = [*STACK, (s.PYTHON, "_PyEval_EvalFrameDefault")]
TARGET = """import threading
def refresh(net):
    while True:
        net(torch.ones(4))
def main(net):
    worker = threading.Thread(target=refresh, args=(net,), daemon=True)
    worker.start()
    train(net)
"""
CLASS = """from threading import Thread
class Monitor(Thread):
    def __init__(self, net):
        super().__init__(daemon=True)
    def run(self):
        while True:
            self.net(torch.ones(4))
monitor = Monitor(net)
monitor.start()
train(net)
"""


def shut_down(run: Path, program: str, function: str, line: int, stack: Any = RUNS_PYTHON, tid: int = THREAD) -> Report:
    """A thread made a tensor at this line, and was inside torch at the end."""
    script = str(s.program_in(run, program))
    box = Box(pid=101, ppid=99).versions(torch="2.13.0")
    box.at(100).alloc(0x7F0000000000, 64, box.site((function, script, line)), tid=tid)
    box.at(200).alloc(0x7F0000001000, 64, box.site(("train", script, 1)))
    how: dict[str, Any] = {"signal": 6, "code": -6, "sender_pid": 101, "tid": THREAD, "python": []}
    return died(run, box=box, **how, stack_of=stack, cpp_exceptions=[CppException(tid=THREAD, type="", what="")])


def test_target_of_a_daemon_thread_is_named_with_its_lines(run: Path) -> None:
    report = shut_down(run, TARGET, "refresh", 4)
    assert verdict(report) == ("abort", "certain")
    assert "the daemon thread that runs refresh() (line 6: `threading.Thread(" in summary(report)
    assert "it last made or freed a tensor at program.py:4 in refresh" in summary(report)
    assert advice(report).startswith("Line 6 makes that thread a daemon and line 7 starts it (`worker.start()`)")
    assert "let `while True` (line 3) in refresh() ask an Event" in advice(report)
    assert "at the end of main() (line 8)" in advice(report)
    assert "pytorch/pytorch#38228" in evidence(report)


def test_threads_of_a_loop_are_all_to_be_joined(run: Path) -> None:
    """And what the one that ended called of torch."""
    program = TARGET.replace("    worker = ", "    for net in nets: worker = ")
    report = shut_down(run, program, "refresh", 4)
    assert "one of the daemon threads that run refresh() (line 6: " in summary(report)
    assert "was inside torch (`linear`) while the interpreter was shutting down" in summary(report)
    assert advice(report).startswith("Line 6 makes each such thread a daemon and line 7 starts each")
    assert "`join()` of each thread" in advice(report)


def test_run_of_a_thread_class_is_named(run: Path) -> None:
    report = shut_down(run, CLASS, "Monitor.run", 7)
    assert "the daemon thread that runs Monitor.run() (line 8: `Monitor(net)`)" in summary(report)
    assert advice(report).startswith("Line 4 makes that thread a daemon and line 9 starts it")


def test_daemon_by_an_attribute_is_one(run: Path) -> None:
    program = TARGET.replace(", daemon=True)\n", ")\n    worker.daemon = True\n")
    assert advice(shut_down(run, program, "refresh", 4)).startswith("Line 7 makes that thread a daemon")


def test_lines_of_what_the_only_thread_calls_are_enough(run: Path) -> None:
    """Its own function makes no tensor that is left."""
    report = shut_down(run, TARGET, "Net.forward", 1)
    assert "the daemon thread that runs refresh()" in summary(report)


@pytest.mark.parametrize(
    "program",
    [
        TARGET + "    pool = ThreadPool(2)\n",
        TARGET + "    threading.Thread(target=main).start()\n",
    ],
)
def test_thread_that_may_be_another_one_is_not_named(program: str, run: Path) -> None:
    """The look-alikes: a pool's thread, or one of two, whose functions are not among its lines."""
    report = shut_down(run, program, "Net.forward", 1)
    assert "aborted: a Python thread was inside torch" in summary(report)
    assert "it last made or freed a tensor at program.py:1 in Net.forward" in summary(report)


def test_thread_of_a_library_is_no_python_thread(run: Path) -> None:
    """The look-alike: it runs no Python, and only asked for the GIL."""
    report = shut_down(run, TARGET, "refresh", 4, stack=STACK)
    assert "refresh" not in summary(report)


def test_thread_without_a_line_is_told_as_known(run: Path) -> None:
    report = shut_down(run, TARGET, "refresh", 4, tid=101)
    assert "aborted: a Python thread was inside torch while the interpreter was shutting down" in summary(report)
    assert "it last made" not in summary(report)


ASKS = TARGET.replace("while True", "while not stop.is_set()").replace("import threading", "stop = threading.Event()")


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (
            "",
            "and no call of its set() was found: call it and then `join()` of the thread at the end of main() (line 8)",
        ),
        ("    stop.set()\n", "line 9 sets it (`stop.set()`), but no join() of it was found: call that behind line 9."),
        (
            "    stop.set()\n    stop.clear()\n",
            "line 10 (`stop.clear()`) takes that back before the thread need have seen it: `join()` the thread between",
        ),
        (
            "    stop.set()\n    worker.join(0.1)\n",
            "line 10 waits for the thread (`worker.join(0.1)`): see that both run",
        ),
    ],
)
def test_loop_that_asks_an_event_is_told_what_is_missing(end: str, said: str, run: Path) -> None:
    """It is not told to ask one."""
    told = advice(shut_down(run, ASKS + end, "refresh", 4))
    assert "the loop of refresh() asks `stop` (line 3)" in told
    assert said in told
    assert "ask an Event" not in told


PASSED = (
    "import threading\n"
    "def refresh(stop):\n    while not stop.is_set():\n        step()\n"
    "class Monitor:\n    def __init__(self):\n        self.stop = threading.Event()\n"
    "    def close(self):\n        self.stop.set()\n        self.stop.clear()\n"
    "def main():\n    halt = threading.Event()\n"
    "    worker = threading.Thread(target=refresh, args=({given},), daemon=True)\n    worker.start()\n    {end}\n"
)


@pytest.mark.parametrize(
    ("given", "end", "words"),
    [
        ("halt", "halt.set()", "line 15 sets it (`halt.set()`), but no join() of it was found: call that behind line"),
        ("halt", "pass", "see that it is set, and then call `join()` of the thread"),
        ("make()", "halt.set()", "see that it is set, and then call `join()` of the thread"),
        (
            "halt",
            "halt.set(); [item.join() for item in workers]",
            "see that `join()` of the thread comes behind line 15",
        ),
    ],
)
def test_event_that_is_passed_is_told_from_another_one_of_the_name(given: str, end: str, words: str, run: Path) -> None:
    """Found by reviewing: `stop` was the parameter, and another class sets a `stop` of its own."""
    told = advice(shut_down(run, PASSED.format(given=given, end=end), "refresh", 4))
    assert "the loop of refresh() asks `stop` (line 3)" in told
    assert words in told
    assert "self.stop" not in told
