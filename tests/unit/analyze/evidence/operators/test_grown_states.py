"""A parameter that has more rows than when its states were saved, and states that are of another one."""

from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.operators import grown_states

STATE, PARAMETER, OTHER = 0x1000, 0x2000, 0x3000


def grown(monkeypatch: pytest.MonkeyPatch, **shapes: tuple[int, ...]) -> Any:
    places = {"state": STATE, "parameter": PARAMETER, "other": OTHER}
    tensors = [SimpleNamespace(item=SimpleNamespace(base=places[name], sizes=sizes)) for name, sizes in shapes.items()]
    monkeypatch.setattr(grown_states, "find_operator", lambda view: SimpleNamespace(tensors=tensors))
    named = {base: [SimpleNamespace(base=base, role="parameter")] for base in (PARAMETER, OTHER)}
    view: Any = SimpleNamespace(process=SimpleNamespace(snapshot=SimpleNamespace(named=named)))
    return grown_states.grown_parameter(view, "embed.weight", (STATE, PARAMETER))


def test_rows_that_were_added_ask_for_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    found = grown(monkeypatch, state=(2923, 64), parameter=(180878, 64), other=(64, 64))
    said = found.advice(" (line 109)", "")
    assert said.startswith("embed.weight has 180878 rows, and 2923 when its states were saved.")
    assert "up with zeros to [180878, 64]" in said


@pytest.mark.parametrize(
    "shapes",
    [
        {"state": (2923, 64), "parameter": (180878, 32)},
        {"state": (2923,), "parameter": (180878, 64)},
        {"state": (180878, 64), "parameter": (2923, 64)},
        {"state": (2923, 64), "parameter": (180878, 64), "other": (2923, 64)},
        {"parameter": (180878, 64)},
    ],
    ids=["other columns", "other dimensions", "fewer rows", "the state of another one", "not known"],
)
def test_other_states_are_not_of_a_parameter_that_grew(
    shapes: dict[str, tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert grown(monkeypatch, **shapes) is None
