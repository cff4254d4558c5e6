"""cuda-error: the launch that is far likelier than the other suspects, and look-alikes of which none is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from tests.support import scenarios as s
from tests.support.deaths import advice, evidence, summary
from tests.support.synth import Box

DEVICE, MIB = 0x7F60_0000_0000, 1 << 20
ILLEGAL = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported"
MISALIGNED = "CUDA error: misaligned address\nCUDA kernel errors might be asynchronously reported"
ASSERT = "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported"
SOURCE = "import torch\nimport triton\n" + "pass\n" * 60
OWN = (
    "probably launched by triton::scale at model.py:20 in step (of the 3 lines that may have launched it, the only one"
)
XID = "NVRM: Xid (PCI:0000:01:00): 31, pid=101, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS "
FAULT = XID + "GPC1 GPCCLIENT_T1_0 faulted @ 0x7ff0_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
ASYNC = "_assert_async_cuda_kernel: block: [0,0,0], thread: [0,0,0] Assertion `probability tensor contains"
PRINTED = (
    f"/pytorch/aten/src/ATen/native/cuda/TensorCompare.cu:109: {ASYNC} either `inf`, `nan` or element < 0` failed."
)


@pytest.fixture
def script(tmp_path: Path) -> str:
    """The program, older than its process."""
    return written(tmp_path, SOURCE)


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "model.py"
    path.write_text(text, encoding="utf-8")
    os.utime(path, (1, 1))
    return str(path)


def started(script: str) -> Box:
    """A block of 4 MiB, of line 10."""
    box = Box(pid=101, ppid=99)
    box.devices.segment(DEVICE, 20 * MIB)
    box.devices.alloc(DEVICE, 4 * MIB, box.code("step", script, 10), box.epoch)
    return box


def launched(
    script: str, *, own: str = "triton::scale", torchs: str = "aten::mul", given: int = DEVICE, other: int = DEVICE
) -> Box:
    """Three launches, of which the second is not torch's."""
    box = started(script)
    box.device_op("aten::add", box.code("step", script, 15), [DEVICE])
    box.device_op(own, box.code("step", script, 20), [given])
    return box.device_op(torchs, box.code("step", script, 30), [other])


def ended(run: Path, box: Box, script: str, message: str = ILLEGAL, log: str | None = None) -> Any:
    """With a CUDA error, met at line 40."""
    box.at(500).exception("torch.AcceleratorError", message, [("step", script, 40)]).exit(1)
    launcher: dict[str, Any] = {"child_pid": 101, "exit_code": 1, "ended_mono_ns": box.now}
    if log is not None:
        lines = [{"text": log, "log_us": (box.now - 300_000_000) // 1000, "seen_mono_ns": box.now - 200_000_000}]
        kernel_log = {"readable": True, "lines": lines}
        launcher["witness"] = {"before": {"mono_ns": 1}, "kernel_log": kernel_log, "first_pid_namespace": True}
    return build_report(s.load(run, box, launcher=launcher))


@pytest.mark.parametrize("own", ["triton::scale", "cupy::scale", "torch.cuda::scale", "mine::scale"])
def test_the_only_kernel_that_is_not_torchs_probably_made_an_illegal_access(run: Path, script: str, own: str) -> None:
    """The headline, the advice and the code are about its line."""
    report = ended(run, launched(script, own=own), script)
    assert OWN.replace("triton::scale", own) in summary(report)
    assert "met first at model.py:40" in summary(report)
    assert f"Look at the indices and strides that {own} uses at model.py:20" in advice(report)
    assert "--gpu-core" in advice(report)
    assert f"{own} was probably the one, and was given a block of 4.0 MiB, allocated at model.py:10" in evidence(report)
    assert f"of these, {own} alone is not torch's" in evidence(report)


def test_several_launches_of_one_line_are_one(run: Path, script: str) -> None:
    """Called for two tensors."""
    box = started(script)
    for _ in range(2):
        box.device_op("triton::scale", box.code("step", script, 20), [DEVICE])
    for line in (15, 30):
        box.device_op("aten::mul", box.code("step", script, line), [DEVICE])
    assert OWN in summary(ended(run, box, script))


def test_two_kernels_that_are_not_torchs_are_both_suspects(run: Path, script: str) -> None:
    """Of one line, too."""
    box = launched(script)
    report = ended(run, box.device_op("triton::shift", box.code("step", script, 20), [DEVICE]), script)
    assert "probably" not in summary(report) + evidence(report)


@pytest.mark.parametrize(
    ("own", "torchs", "other"),
    [
        ("triton::triton_poi_fused_add_0", "aten::mul", DEVICE),  # of torch.compile
        ("torchvision::roi_align", "aten::mul", DEVICE),
        ("triton::scale", "aten::_embedding_bag", DEVICE),  # trusts its offsets
        ("triton::scale", "aten::mul", DEVICE + (1 << 40)),  # memory of another library
        ("triton::scale", "aten::mul", 1),  # of a storage that was resized to 0
    ],
)
def test_what_may_explain_the_access_as_well_leaves_it_open(
    run: Path, script: str, own: str, torchs: str, other: int
) -> None:
    """Nothing is told as probable."""
    assert "probably" not in summary(ended(run, launched(script, own=own, torchs=torchs, other=other), script))


@pytest.mark.parametrize(
    "line",
    [
        "import ctypes",
        "import my_extension",
        "import flash_attn",
        "from numba import cuda",
        "from torch.utils.cpp_extension import load",
        "from torch.utils import cpp_extension",
        "module = cupy.RawModule(code='')",
        "module = importlib.import_module(name)",
    ],
)
def test_a_program_that_may_launch_what_no_record_has_leaves_it_open(run: Path, tmp_path: Path, line: str) -> None:
    """A function of an extension launches without a record."""
    script = written(tmp_path, f"{line}\n{SOURCE}")
    assert "probably" not in summary(ended(run, launched(script), script))


def test_a_program_whose_source_is_not_there_leaves_it_open(run: Path) -> None:
    """What it loads is not known."""
    assert "probably" not in summary(ended(run, launched(s.SCRIPT), s.SCRIPT))


def test_dropped_records_leave_it_open(run: Path, script: str) -> None:
    """Another kernel may be among them."""
    box = started(script)
    for _ in range(300):
        box.device_op("aten::mul", box.code("step", script, 15), [DEVICE])
    box.device_op("triton::scale", box.code("step", script, 20), [DEVICE])
    assert "probably" not in summary(ended(run, box, script))


def test_an_assertion_is_of_an_operator_that_checks(run: Path, script: str) -> None:
    """Not of what is not torch's, of which nothing is known."""
    assert "triton::scale" not in summary(ended(run, launched(script, torchs="aten::nll_loss_forward"), script, ASSERT))


def test_an_address_inside_of_a_block_that_is_not_aligned_is_told(run: Path, script: str) -> None:
    """With where it lies."""
    report = ended(run, launched(script, own="cupy::scale", given=DEVICE + 1032), script, MISALIGNED)
    assert OWN.replace("triton", "cupy") in summary(report)
    odd = "1032 bytes into a block of 4.0 MiB, allocated at model.py:10: a multiple of 8, but not of 16"
    assert odd in advice(report)
    assert "let each view begin at a multiple of 16 bytes" in advice(report)


def test_without_such_an_address_the_views_are_to_be_looked_at(run: Path, script: str) -> None:
    """Of a tensor the record has the start of its storage."""
    report = ended(run, launched(script), script, MISALIGNED)
    assert "`x.data_ptr() % 16` of a view or slice need not be 0" in advice(report)


GENERATE = "import torch\n" + "ids = prompts.to(DEVICE)\n" * 30 + "ids.to(DEVICE, non_blocking=True)\n" + "pass\n" * 40


def sampled(script: str, *, copy: int | None, again: bool = False) -> Box:
    """Older records are lost; a copy from the host, and an assertion of line 50."""
    box = started(script)
    for _ in range(300):
        box.device_op("aten::mul", box.code("step", script, 35), [DEVICE])
    for _ in range(2 if again else 1):
        if copy is not None:
            box.device_op(
                "aten::copy_", box.code("step", script, copy), [DEVICE, 0x7F00_0000_0000], host=[0x7F00_0000_0000]
            )
        box.device_op("aten::_assert_async", box.code("step", script, 50), [DEVICE])
    return box.kernel_assertion(PRINTED)


@pytest.mark.parametrize(("copy", "again"), [(10, False), (32, True)])
def test_the_only_line_with_the_assertion_is_the_probable_one_if_what_was_before_is_over(
    run: Path, tmp_path: Path, copy: int, again: bool
) -> None:
    """The host waited for a copy, or a whole round with its batch was recorded."""
    script = written(tmp_path, GENERATE)
    report = ended(run, sampled(script, copy=copy, again=again), script, ASSERT)
    told = "probably launched by aten::_assert_async at model.py:50 in step (the only recorded line whose kernels have"
    assert told in summary(report) and "met first at model.py:40" in summary(report)


@pytest.mark.parametrize(("copy", "again"), [(None, False), (None, True), (32, False)])
def test_the_only_line_left_is_not_named_if_another_may_have_been_dropped(
    run: Path, tmp_path: Path, copy: int | None, again: bool
) -> None:
    """Nothing was waited for: `non_blocking`, or the line of a loop over layers."""
    script = written(tmp_path, GENERATE)
    assert "probably" not in summary(ended(run, sampled(script, copy=copy, again=again), script, ASSERT))


def test_a_replayed_graph_leaves_it_open(run: Path, script: str) -> None:
    """Its kernels leave no record of their own."""
    box = launched(script)
    box.devices.graph(1, box.code("capture", script, 12), replays=9, broken=0, captured_ns=box.now)
    assert "probably" not in summary(ended(run, box, script))


def test_an_xid_far_from_the_given_memory_is_told_in_the_advice(run: Path, tmp_path: Path) -> None:
    """As after an index that is padding. The call has the names of the tensors."""
    lines = [*SOURCE.splitlines()[:19], "scale[grid](x, x.stride(0), BLOCK=BLOCK)", *SOURCE.splitlines()[20:]]
    script = written(tmp_path, "\n".join(lines))
    report = ended(run, launched(script), script, log=FAULT)
    assert "the address of Xid 31, lies 576.0 GiB behind all memory that it was given. `x` may" in advice(report)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("7f5f_80000000", "lies 2.0 GiB before all memory that it was given. An index may be negative"),
        ("7f60_00500000", "lies 1.0 MiB behind all memory that it was given. Its grid may be larger than its memory"),
    ],
)
def test_what_leads_outside_is_told_by_the_distance(run: Path, script: str, page: str, words: str) -> None:
    """Before the memory, or a little behind it."""
    assert words in advice(ended(run, launched(script), script, log=FAULT.replace("7ff0_00000000", page)))


def test_an_address_inside_of_the_given_memory_is_not_called_outside(run: Path, script: str) -> None:
    """The driver may give the start of a page only."""
    report = ended(run, launched(script), script, log=FAULT.replace("7ff0_00000000", "7f60_00001000"))
    assert OWN in summary(report) and "the address of Xid 31" not in advice(report)


def test_the_code_row_is_of_the_probable_line(run: Path, tmp_path: Path) -> None:
    """Not of the line that met the error."""
    body = ["import triton", "def step(x):", *["    pass"] * 15, "    y = x[1:]", "    pass", "    scale[grid](y)"]
    script = written(tmp_path, "\n".join([*body, *["    pass"] * 30]))
    code = ended(run, launched(script), script).verdict.code
    assert [(item.line, item.text) for item in code or []] == [(18, "y = x[1:]"), (20, "scale[grid](y)")]
