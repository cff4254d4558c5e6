"""CUDA errors: reported after they occur, and what a core dump of the device adds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cuda.jobs import finding, line_of, only_victim, program

pytestmark = pytest.mark.fake_cuda


def test_an_error_is_raised_later_than_its_cause(run: Path) -> None:
    """The report names the line that raised, and states that it need not be the cause."""
    done = program("late_error", run=run)
    assert done.status == 1
    report = done.report
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.confidence) == ("cuda-error", "certain")
    found = finding(report, "cuda-error")
    assert found is not None and found.summary is not None and found.evidence is not None
    assert (
        f"at late_error.py:{line_of('late_error', '# told here')} in main, the first call that met it" in found.summary
    )
    assert any("that line need not be the one whose kernel failed" in item for item in found.evidence)
    assert found.missing == ["which kernel failed: `pytracer run --gpu-core` shows it"]
    assert only_victim(report).gpu_core is None


def test_level_ops_names_the_lines_that_may_have_launched_the_kernel(run: Path) -> None:
    """Nothing has waited for either."""
    done = program("late_error", run=run, options=("--level", "ops"))
    found = finding(done.report, "cuda-error")
    assert found is not None and found.evidence is not None
    lines = [line_of("late_error", text) for text in ("weight.mul_(2)", "weight.add_(1)")]
    first, second = f"aten::mul_ at late_error.py:{lines[0]}", f"aten::add_ at late_error.py:{lines[1]}"
    kernel = "(kernel vectorized_elementwise_kernel)"  # of torch for CUDA 13
    words = f"may have been launched by {first} in main {kernel}, {second} in main {kernel}"
    assert any(words in item for item in found.evidence), found.evidence


def test_the_core_dump_of_a_device_is_read_and_mapped(run: Path) -> None:
    """`--gpu-core` sets the driver's path; kernel, place and tensors are in the finding."""
    done = program("late_error", "core", run=run, options=("--gpu-core",))
    assert done.status == 1, done.stderr
    wish = json.loads((run / "run.json").read_text(encoding="utf-8"))["gpu_core"]
    assert wish["file"] is None and wish["set"]["CUDA_COREDUMP_FILE"] == f"{run}/gpu-cores/%h.%p.nvcudmp"
    found = finding(done.report, "cuda-error")
    assert found is not None and found.summary is not None and found.evidence is not None
    assert "by kernel scatter_add at late_error.py" in found.summary and found.missing == []
    told = "\n".join(found.evidence)
    assert "register R0 points 4096 bytes into a live block of 4.0 MiB on cuda:0" in told
    assert "parameter at 0x8 points 0 bytes into a live block of 4.0 MiB on cuda:0" in told
    core = only_victim(done.report).gpu_core
    assert core is not None and core.problem is None and core.exceptions is not None
    assert (core.exceptions[0].kernel, core.exceptions[0].offset) == (
        "scatter_add(float*, long const*, float const*, int)", 0x1A0,
    )  # fmt: skip
    assert "scatter_add" in done.stderr


def test_workers_forked_after_cuda_was_used_are_named_as_that(run: Path) -> None:
    """torch refuses CUDA in the child; the verdict names the cause and the next step, not the exception alone."""
    done = program("forks_after_cuda", run=run)
    assert done.status == 1
    verdict = done.report.verdict
    assert verdict is not None and verdict.class_ == "python-exception"
    assert "CUDA was used in a child of fork()" in (verdict.summary or ""), verdict.summary
    assert "spawn or forkserver" in (verdict.advice or "")


def test_what_a_kernels_assertion_printed_is_recorded(run: Path) -> None:
    """CUDA's calls return a number; the driver prints kernel and condition, and that stays on stderr as it was."""
    done = program("assertion", run=run, options=("--level", "ops"))
    assert done.status == 1
    printed = (
        "Loss.cu:245: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], thread: [3,0,0] Assertion `t >= 0 &&"
    )
    assert done.stderr.count(printed) == 1
    found = finding(done.report, "cuda-error")
    assert found is not None and found.summary is not None and found.evidence is not None
    assert "nll_loss_forward_reduce_cuda_kernel_2d" in found.summary
    assert f"launched by aten::nll_loss_forward at assertion.py:{line_of('assertion', '# the cause')}" in found.summary
    assert found.missing == []
