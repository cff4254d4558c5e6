"""Weights of an LSTM of another hidden size than its state, and the access behind them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import Argument, Holder, PythonFrame
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary, verdict
from tests.support.synth import Box
from tests.unit.analyze.evidence.preconditions.test_violated import tensor

RNN = """from torch import _VF


class LSTM:
    def forward(self, input, hx):
        return _VF.lstm(input, hx, self._flat_weights, self.bias, 1, 0.0, False, False, False)
"""
NET = """class Net:
    def forward(self, x):
        return self.lstm(x)


def prune(net):
    net.lstm.weight_hh_l0 = smaller(net)


def load(net, state):
    for key, p in net.named_parameters():
        p.data = state[key]
"""
W_IH, W_HH, X, H, C = (0x5581_0010_0000 + at * 0x10_0000 for at in range(5))
STACK = [
    (s.TORCH_CPU, "dnnl::impl::cpu::x64::jit_uni_reorder_t::omp_driver_1d(int)"),
    (s.TORCH_CPU, "std::_Function_handler<void (int)>::_M_invoke(int)"),
    (s.PYTHON, "_PyEval_EvalFrameDefault"),
]


def of_lstm(run: Path, hidden: int = 32, weights: int = 8, inputs: int = 16, behind: int = 4096) -> Report:
    """An LSTM of `hidden` whose weights are those of one of `weights`; the access lies so far behind weight_hh."""
    library = run.parent / run.name / "lib" / "site-packages" / "torch" / "nn" / "modules" / "rnn.py"
    library.parent.mkdir(parents=True)
    library.write_text(RNN, encoding="utf-8")
    script = run / "net.py"
    script.write_text(NET, encoding="utf-8")
    for path in (library, script):
        os.utime(path, (0, 0))
    frame = PythonFrame("LSTM.forward", str(library), 6)
    shapes: dict[int, tuple[int, ...]] = {
        W_IH: (4 * weights, inputs), W_HH: (4 * weights, weights), X: (5, 1, 16), H: (1, 1, hidden), C: (1, 1, hidden),
    }  # fmt: skip
    names = {W_IH: "self._flat_weights[0]", W_HH: "self._flat_weights[1]", X: "input", H: "hx[0]", C: "hx[1]"}
    arguments: list[Argument] = [replace(tensor(base, *sizes), how="held") for base, sizes in shapes.items()]
    elements = {item.base: item.elements for item in arguments}
    held = [Holder("local", name, base, frame, True, elements=elements[base]) for base, name in names.items()]
    held += [
        Holder("local", f"self._parameters['{name}']", base, frame, True, elements=elements[base])
        for base, name in ((W_IH, "weight_ih_l0"), (W_HH, "weight_hh_l0"))
    ]
    box = Box(pid=101)
    for base, count in elements.items():
        box = box.alloc(base, 4 * count, ("prune", str(script), 7))
    addr = W_HH + 4 * elements[W_HH] + behind
    return died(
        run, box=box, python=[("LSTM.forward", str(library), 6), ("Net.forward", str(script), 3)], stack_of=STACK,
        holders=tuple(held), arguments=tuple(arguments), addr=addr, registers={"rdx": addr}, mappings=[PROGRAM],
    )  # fmt: skip


def test_weights_of_a_smaller_hidden_size_are_named_with_the_state(run: Path) -> None:
    """Its list of weights by their own names, and the line that made them."""
    report = of_lstm(run)
    assert verdict(report) == ("out-of-bounds", "certain")
    assert (
        "size 1 of `self.lstm.weight_hh_l0` [32, 8] is 8, where lstm takes at least 32 for granted (the last size of "
        "`hx[0]` [1, 1, 32]): `hidden_size` of the layer, by which its state is made, is larger than that of its "
        "weights"
    ) in summary(report)
    assert advice(report).startswith(
        "Where the weights of the layer are replaced at line 7 in prune, set its `hidden_size`, too, or build a new"
    )


def test_access_beyond_what_the_weights_would_have_is_likely_only(run: Path) -> None:
    """The address of another fault."""
    assert verdict(of_lstm(run, behind=0x5_0000)) == ("out-of-bounds", "likely")


def test_columns_for_fewer_features_than_the_input_has_are_named(run: Path) -> None:
    said = summary(of_lstm(run, weights=32, inputs=8))
    assert "size 1 of `self.lstm.weight_ih_l0` [128, 8] is 8, where lstm takes at least 16 for granted" in said


@pytest.mark.parametrize("how", [{"weights": 32}, {"weights": 64}], ids=["whole", "larger"])
def test_weights_that_reach_are_not_blamed(how: dict[str, Any], run: Path) -> None:
    assert "for granted" not in summary(of_lstm(run, **how))
