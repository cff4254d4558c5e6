"""Weights of a recurrent layer that are smaller than its hidden size, and layers that are whole."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.operators import recurrent_weights
from pytracer.analyze.evidence.operators.recurrent_weights import cut_weight
from pytracer.decode.types.snapshot import Holder, PythonFrame

RNN = "/usr/lib/python3/site-packages/torch/nn/modules/rnn.py"


@pytest.fixture(autouse=True)
def _line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent_weights, "line_words", lambda view: "line 15")
    monkeypatch.setattr(recurrent_weights, "python_frames", lambda view: view.crash.python_stack)
    monkeypatch.setattr(recurrent_weights, "line_that_made", lambda view, base, **how: "line 26")


def view_of(function: str = "LSTM.forward", file: str = RNN, **elements: int) -> Any:
    frame = PythonFrame(function, file, 1164)
    held = tuple(
        Holder("local", f"self._parameters['{name}']", 0x1000, frame, True, elements=count)
        for name, count in elements.items()
    )
    return SimpleNamespace(crash=SimpleNamespace(python_stack=(frame,), holders=held))


def test_hidden_size_is_told_by_the_biases() -> None:
    view = view_of(weight_ih_l0=400, weight_hh_l0=80, bias_ih_l0=40, bias_hh_l0=40)
    found = cut_weight(view)
    assert found is not None
    assert found.summary == (
        "`weight_hh_l0` of the LSTM that line 15 runs has 80 elements, where its hidden size of 10 takes [40, 10]"
    )
    assert found.advice(view).startswith("Keep `weight_hh_l0`, which line 26 made, at [40, 10] for line 15, which runs")


@pytest.mark.parametrize(
    "how",
    [
        {"weight_hh_l0": 400, "bias_hh_l0": 40},
        {"weight_hh_l0": 300, "bias_hh_l0": 30, "function": "GRU.forward"},
        {"weight_hh_l0": 80, "bias_hh_l0": 40, "weight_hr_l0": 20},
        {"weight_hh_l0": 80},
        {"weight_hh_l0": 80, "bias_hh_l0": 40, "bias_ih_l0": 8},
        {"weight_hh_l0": 80, "bias_hh_l0": 42},
        {"weight_hh_l0": 80, "bias_hh_l0": 40, "file": "/home/me/rnn.py"},
    ],
    ids=["whole", "three gates", "projected", "no biases", "biases differ", "no multiple", "another LSTM"],
)
def test_other_layers_are_not_named(how: dict[str, Any]) -> None:
    assert cut_weight(view_of(**how)) is None
