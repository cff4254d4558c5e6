"""The key of what torch.load() refused; nothing with `--no-values`, of other exceptions, or of an object in a list."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.record.torch.refused_item import refused_item

torch = pytest.importorskip("torch")


def refused(folder: Path, state: object) -> list[dict[str, str]]:
    """What is recorded when this is loaded."""
    torch.save(state, folder / "a.pt")
    with pytest.raises(Exception, match="Weights only load failed") as caught:
        torch.load(folder / "a.pt", weights_only=True)
    return refused_item(caught.value)


@pytest.mark.parametrize("state", [{"best": Path("x")}, {"epoch": 1, "best": Path("x")}, {"a": {"best": Path("x")}}])
def test_key_is_that_of_the_innermost_dict(state: object, tmp_path: Path) -> None:
    """Of one item, or of several."""
    assert refused(tmp_path, state) == [{"name": "key of the refused object", "value": "best"}]


@pytest.mark.parametrize("state", [{"best": ["x", Path("x")]}, {1: Path("x")}, ["a", "b", Path("x")]])
def test_other_places_have_no_key(state: object, tmp_path: Path) -> None:
    """The look-alikes: a text before it in a list, a number as key."""
    assert refused(tmp_path, state) == []


def test_nothing_is_recorded_without_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--no-values`; and of an exception that followed on nothing."""
    monkeypatch.setattr("pytracer.record.torch.refused_item.records_values", lambda: False)
    assert refused(tmp_path, {"best": Path("x")}) == [] == refused_item(ValueError())
