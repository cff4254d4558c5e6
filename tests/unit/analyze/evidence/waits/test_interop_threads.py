"""A forked child that waits for inter-op threads of torch, which its parent alone has, and what looks like one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.waits.interop_threads import (
    interop_advice,
    lacks_interop_threads,
    started_words,
    waits_for_task,
)
from pytracer.report.job import NativeFrame, PythonFrame
from tests.support.scenarios import program_in

WAIT = "std::condition_variable::wait(std::unique_lock<std::mutex>&)"
RUN = "torch::jit::InterpreterState::run(std::vector<c10::IValue, std::allocator<c10::IValue> >&)"
SERVES = "c10::ThreadPool::main_loop(unsigned long)"
SOURCE = """@torch.jit.script
def views(wave):
    return torch.jit.wait(torch.jit.fork(shift, wave))
class Waves:
    def __init__(self):
        self.channels = views(self.items[0]).shape[0]
    def __getitem__(self, place):
        return views(self.items[place]), torch.ones(2)
"""


def native(*names: str | None) -> list[NativeFrame]:
    """Innermost first."""
    return [NativeFrame(function=name, image="/opt/torch/lib/libtorch_cpu.so") for name in names]


@pytest.mark.parametrize(
    ("names", "waits"),
    [
        (["pthread_cond_wait", WAIT, RUN], True),
        (["pthread_cond_wait", WAIT, "c10::ivalue::Future::wait()"], True),
        ([RUN], False),  # it runs the graph itself
        (["pthread_cond_wait", WAIT, "gloo::Barrier::run()"], False),
        ([RUN, WAIT], False),
    ],
)
def test_wait_of_torchscript_for_a_task(names: list[str], waits: bool) -> None:
    """Only where what waits is the interpreter, or a Future of it."""
    assert waits_for_task(native(*names)) == waits


@pytest.mark.parametrize(("stack", "lacks"), [([WAIT, SERVES], False), ([WAIT, RUN], True), ([], True)])
def test_child_with_threads_of_its_own_lacks_none(stack: list[str], lacks: bool) -> None:
    """A child that made the pool itself has its threads."""
    end: Any = SimpleNamespace(threads=[SimpleNamespace(native_stack=native(*stack))])
    assert lacks_interop_threads(end) == lacks


def view(run: Path, source: str = SOURCE) -> tuple[Any, PythonFrame]:
    at = PythonFrame(function="Waves.__getitem__", file=str(program_in(run, source)), line=8)
    snapshot = SimpleNamespace(argv=(), created_wall_ns=1 << 62, pid=7)
    return SimpleNamespace(process=SimpleNamespace(snapshot=snapshot)), at


def test_line_that_started_the_threads_in_the_parent_is_named(run: Path) -> None:
    """The one other call of the function; calls of torch's own functions are none."""
    assert started_words(*view(run)) == "; line 6 (`views(self.items[0])`) may have started them there"
    assert "Leave line 6 to the children" in interop_advice(*view(run))


@pytest.mark.parametrize(
    "source",
    [
        SOURCE.replace("self.channels = views(self.items[0]).shape[0]", "self.channels = 3"),
        SOURCE.replace("self.channels = ", "self.first = views(self.items[1]); self.channels = "),
    ],
)
def test_no_line_is_named_of_none_or_several(source: str, run: Path) -> None:
    """The look-alikes."""
    assert started_words(*view(run, source)) == ""
    assert "Run none before the children start" in interop_advice(*view(run, source))
