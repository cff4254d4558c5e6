"""The line that sets `.data` of parameters, where a parameter has other memory than before."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.preconditions import replaced
from pytracer.analyze.evidence.preconditions.replaced import replaced_parameters, replaced_words, replacing_line
from pytracer.analyze.naming import LineWords
from pytracer.decode.types.snapshot import NamedTensor

ROWS = "def load(net, state):\n    for key, p in net.named_parameters():\n        {}\n"


def named(name: str, base: int, epoch: int, nbytes: int = 4) -> NamedTensor:
    return NamedTensor(f"parameter {name} of Net", "parameter", base, base, nbytes, epoch, False)


def view_of(monkeypatch: pytest.MonkeyPatch, text: str, *items: NamedTensor) -> Any:
    """A process whose program has that line in a loop over parameters."""
    monkeypatch.setattr(replaced, "program_frames", lambda view: [])
    monkeypatch.setattr(replaced, "program_files", lambda snapshot, frames: {"a.py": ast.parse(ROWS.format(text))})
    monkeypatch.setattr(replaced, "line_text", lambda snapshot, frame: text)
    monkeypatch.setattr(replaced, "place_of", lambda view, file, line: LineWords(f"line {line}", file, line))
    uses = SimpleNamespace(
        of_storage=lambda storage, base: ([item for item in items if item.base == base], []),
        with_name=lambda name: [item for item in items if item.name == name],
    )
    space = SimpleNamespace(live_around=lambda base: object(), uses=SimpleNamespace(named=uses))
    snapshot = SimpleNamespace(named={item.base: [item] for item in items})
    return SimpleNamespace(space=space, process=SimpleNamespace(snapshot=snapshot))


def test_line_that_sets_data_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    view = view_of(monkeypatch, "p.data = state[key]", named("conv.weight_g", 1, 5), named("conv.weight_g", 2, 9))
    assert replacing_line(view, 2) == "line 3 (`p.data = state[key]`)"
    assert replaced_words(view, 2).startswith(" No size is checked where line 3 (`p.data = state[key]`) sets `.data`:")
    assert replaced_parameters(view, 4) == ["conv.weight_g"]


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("p.data = p.data.clamp(0, 1)", [("w", 1, 5), ("w", 2, 9)]),
        ("p.copy_(state[key])", [("w", 1, 5), ("w", 2, 9)]),
        ("p.data = state[key]", [("w", 2, 9)]),
        ("p.data = state[key]", []),
    ],
    ids=["of its own", "checked", "the same memory", "no parameter"],
)
def test_other_lines_and_parameters_are_not_named(
    text: str, items: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert replaced_words(view_of(monkeypatch, text, *(named(*item) for item in items)), 2) == ""
