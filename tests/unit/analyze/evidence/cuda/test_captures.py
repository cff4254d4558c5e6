"""Captures of CUDA graphs that broke: which call, on which thread; and errors that are not about captures."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.analyze.evidence.cuda.refused_calls import refused_call
from pytracer.report.job import PythonFrame
from tests.support import scenarios as s
from tests.support.deaths import advice, evidence, summary, verdict
from tests.support.synth import Box

ERROR = "torch.AcceleratorError"
SECOND = "CUDA error: operation failed due to a previous error during capture\nSearch for"
REFUSED = "CUDA error: operation not permitted when stream is capturing\nSearch for"
END = ("CUDAGraph.capture_end", "/x/site-packages/torch/cuda/graphs.py", 126)
LOADER = [("fetch", s.SCRIPT, 15), ("_WorkItem.run", "/usr/lib/python3.12/concurrent/futures/thread.py", 58)]


def box_of_capture() -> Box:
    """A capture failed, which began at line 38."""
    box = Box(pid=101, ppid=99)
    box.devices.graph(1, box.code("main", s.SCRIPT, 38), state=3, captured_ns=box.at(480).now)
    return box


def ended(run: Path, box: Box, message: str, **more: Any) -> Any:
    box.at(500).exception(ERROR, message, [END, ("main", s.SCRIPT, 38)], **more).exit(1)
    return build_report(s.load(run, box, launcher={"child_pid": 101, "exit_code": 1, "ended_mono_ns": box.now}))


def handled(message: str, stack: list[tuple[str, str, int]] | None = None) -> dict[str, Any]:
    frames = [{"function": f, "file": p, "line": n} for f, p, n in stack or [("forward", s.SCRIPT, 23)]]
    return {"type": ERROR, "message": message, "python_stack": frames}


def test_broken_capture_is_told_by_the_error_that_came_first(run: Path) -> None:
    """The second one only says that there was a first."""
    report = ended(run, box_of_capture(), SECOND, context=[handled(REFUSED)])
    assert verdict(report) == ("cuda-error", "certain")
    assert "operation not permitted when stream is capturing: the call at train.py:23 in forward" in summary(report)
    assert "during the capture of the CUDA graph at train.py:38 in main" in summary(report)
    assert "what ended the process came of it" in evidence(report) and "train.py:23 in forward" in advice(report)


def test_broken_capture_names_the_thread_whose_task_was_refused(run: Path) -> None:
    """result() raises it in the capturing thread, too: its innermost line is the thread's."""
    box = box_of_capture()
    frames = [{"function": f, "file": p, "line": n} for f, p, n in LOADER]
    box.at(470).exception(ERROR, REFUSED, LOADER, thread="ThreadPoolExecutor-0_0", on_its_way="task")
    report = ended(run, box, SECOND, context=[{"type": ERROR, "message": REFUSED, "python_stack": frames}])
    assert "train.py:15 in fetch, on thread ThreadPoolExecutor-0_0, came during" in summary(report)
    assert 'capture_error_mode="thread_local"' in advice(report)


def test_broken_capture_finds_a_thread_that_ended_by_it(run: Path) -> None:
    """Nobody asked for its result."""
    box = box_of_capture()
    box.at(470).thread_exception(ERROR, REFUSED, [("pin", s.SCRIPT, 9)], thread="pinner")
    report = ended(run, box, SECOND)
    assert "the call at train.py:9 in pin, on thread pinner, came during" in summary(report)


def test_thread_that_failed_in_an_earlier_capture_is_not_named(run: Path) -> None:
    """Another capture has ended since."""
    box = Box(pid=101, ppid=99)
    box.at(100).thread_exception(ERROR, REFUSED, [("pin", s.SCRIPT, 9)], thread="pinner")
    box.devices.graph(1, box.code("main", s.SCRIPT, 30), state=3, captured_ns=box.at(200).now)
    box.devices.graph(2, box.code("main", s.SCRIPT, 38), state=3, captured_ns=box.at(480).now)
    report = ended(run, box, SECOND)
    assert "pinner" not in summary(report) and "by a call whose error is not recorded" in summary(report)


def test_exception_of_the_program_is_not_what_broke_the_capture(run: Path) -> None:
    """A ValueError does not invalidate a capture."""
    report = ended(run, box_of_capture(), SECOND, context=[handled("no such key")])
    assert "whose error is not recorded" in summary(report) and "train.py:23" not in summary(report)


def test_library_at_its_first_use_is_to_be_warmed_up(run: Path) -> None:
    """cuBLAS makes its handle then."""
    message = "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"
    report = ended(run, box_of_capture(), SECOND, context=[handled(message)])
    assert "CUBLAS_STATUS_NOT_INITIALIZED" in summary(report) and "some times before the capture" in advice(report)


def test_check_of_torch_s_own_has_the_advice_of_its_message(run: Path) -> None:
    """It is no error of CUDA's, and still the first."""
    message = "Offset increment outside graph capture encountered unexpectedly."
    report = ended(run, box_of_capture(), SECOND, context=[handled(message)])
    assert "Offset increment outside graph capture" in summary(report)
    assert "Random numbers are drawn at train.py:23 in forward" in advice(report)


def test_unjoined_stream_has_its_own_advice(run: Path) -> None:
    """capture_end() says it itself."""
    report = ended(run, box_of_capture(), "CUDA error: capturing stream has unjoined work\nSearch for")
    assert "wait_stream(side)" in advice(report) and "came of it" not in evidence(report)


def test_other_errors_are_not_about_the_capture(run: Path) -> None:
    """An illegal access, although a capture had failed before."""
    report = ended(run, box_of_capture(), "CUDA error: an illegal memory access was encountered\nCUDA")
    assert "capture" not in summary(report).replace("CUDAGraph.capture_end", "")


@pytest.mark.parametrize(
    ("line", "named", "words", "reason"),
    [
        ("    if c.item() > 0.9:\n        pass", True, "`c.item()`", "waits for the device"),
        ("    y = x[m.nonzero()]", True, "`m.nonzero()`", "to know how many elements"),
        ("    torch.cuda.synchronize()", True, "`torch.cuda.synchronize()`", "waits for the device"),
        ("    x = x.to('cuda')", True, "`x.to('cuda')`", "was refused"),
        ("    if c:\n        pass", True, "the condition `c`", "was refused"),
        ("    y = x[m]", True, "`y = x[m]`", ""),
        ("    y = model(x).item()", False, "`y = model(x).item()`", ""),  # refused below model()
        ("    y = a.item() + b.item()", True, "`y = a.item() + b.item()`", ""),  # either
    ],
)
def test_call_that_a_capture_refuses(tmp_path: Path, line: str, named: bool, words: str, reason: str) -> None:
    """By the name of what the line calls, where only one call can be meant."""
    file = tmp_path / "train.py"
    file.write_text(f"def forward(x, c, m, a, b):\n{line}\n", encoding="utf-8")
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    found = refused_call(snapshot, PythonFrame(function="forward", file=str(file), line=2), named=named)
    assert found is not None and found.words == words
    assert reason in found.reason and bool(found.reason) == bool(reason)
