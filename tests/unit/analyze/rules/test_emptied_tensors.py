"""Tensors whose storage was resized to 0, where compiled code or a layer of torch reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.decode.types.snapshot import Holder, PythonFrame
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, died, summary, verdict

pytestmark = needs_capstone

LOAD = bytes.fromhex("c5fa1002")  # vmovss xmm0, dword ptr [rdx]
KERNEL = [("/tmp/torchinductor_me/ab/cabc.main.so", "kernel"), (s.PYTHON, "_PyEval_EvalFrameDefault")]
RUNNER = ("call", "/tmp/torchinductor_me/ab/cabc.py", 95)
FORWARD = PythonFrame("forward", s.SCRIPT, 41)


def crashed(run: Path, *holders: Holder, compiled: bool = True) -> Report:
    python = [*([RUNNER] if compiled else []), ("forward", s.SCRIPT, 41)]
    return died(
        run, addr=0, stack_of=KERNEL, python=python, registers={"rdx": 0}, code_bytes=LOAD, holders=holders,
        mappings=[PROGRAM],
    )  # fmt: skip


def held(name: str, elements: int) -> Holder:
    return Holder("local", name, 0, FORWARD, True, elements=elements)


def test_compiled_code_that_reads_a_tensor_without_memory(run: Path) -> None:
    """Its kernels know no tensors; the variable of the function does."""
    report = crashed(run, held("self._buffers['gamma']", 2048))
    assert verdict(report)[0] == "null-dereference"
    assert "`self.gamma` in forward() has 2048 elements and no memory: its storage was resized to 0." in summary(report)


@pytest.mark.parametrize(("elements", "compiled"), [(0, True), (2048, False)], ids=["empty", "not compiled"])
def test_a_tensor_that_may_not_be_read_is_not_named(elements: int, compiled: bool, run: Path) -> None:
    """No kernel is made for one of 0 elements; a foreign function may be given anything."""
    assert "gamma" not in summary(crashed(run, held("self._buffers['gamma']", elements), compiled=compiled))


def test_several_are_named_as_the_program_writes_them(run: Path) -> None:
    """With the function of a library."""
    layer = PythonFrame("LSTM.forward", "/usr/lib/python3/site-packages/torch/nn/modules/rnn.py", 1170)
    names = ("self._parameters['weight_ih_l0']", "self._parameters['bias_ih_l0']")
    holders = [Holder("local", name, 0, layer, True, elements=64) for name in names]
    python = [RUNNER, (layer.function, layer.file, layer.line), ("forward", s.SCRIPT, 41)]
    report = died(
        run, addr=0, stack_of=KERNEL, python=python, registers={"rdx": 0}, code_bytes=LOAD, holders=tuple(holders),
        mappings=[PROGRAM],
    )  # fmt: skip
    assert ": `self.weight_ih_l0` and `self.bias_ih_l0` in LSTM.forward() have no memory." in summary(report)
