"""Variables of the frame that an exception left: shapes, lengths and numbers, and no contents."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pytest

from pytracer.record.torch.frame_variables import variables_of


class Odd:
    """Its attributes run code of the program's own."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")

    def __len__(self) -> int:
        raise AssertionError("its length was asked for")


class Loader:
    """A class with state."""

    def __init__(self) -> None:
        self.count = 3
        self.secret = "hidden"

    def step(self, rows: list[int], name: str, odd: Odd) -> None:
        """Raises."""
        nothing = None
        ratio = 0.5
        big = 1 << 70
        raise ValueError(self.count, rows, name, odd, nothing, ratio, big)


class Missing(Odd):
    """As Odd, as `self`."""

    def step(self) -> None:
        """Raises."""
        raise ValueError(self)


def trace_of(function: Callable[..., object], *arguments: object) -> TracebackType | None:
    """The traceback of what it raises."""
    try:
        function(*arguments)
    except ValueError as error:
        return error.__traceback__
    return None


def test_types_lengths_and_numbers_are_kept() -> None:
    """A str has a length only, and other objects nothing."""
    found = variables_of(trace_of(Loader().step, [1, 2], "password", Odd()))
    assert {item["name"]: item["value"] for item in found} == {
        "rows": "list of 2", "name": "str of 8", "nothing": "None", "ratio": "0.5", "self.count": "3"
    }  # fmt: skip


def test_numbers_are_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Off with --no-values."""
    monkeypatch.setenv("PYTRACER_NO_VALUES", "1")
    names = [item["name"] for item in variables_of(trace_of(Loader().step, [1], "x", Odd()))]
    assert names == ["rows", "name", "nothing"]


def test_no_code_of_the_program_is_run() -> None:
    """Not even __getattr__ of `self`."""
    assert variables_of(trace_of(Missing().step)) == []


def test_shapes_of_tensors_and_layers() -> None:
    """Also of parameters that the method's code names."""
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(4, 2)
            self.scale = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: object) -> None:
            raise ValueError(self.fc, self.scale, x)

    found = variables_of(trace_of(Net().forward, torch.zeros(5, 4, dtype=torch.float64)))
    assert {item["name"]: item["value"] for item in found} == {
        "x": "[5, 4] float64", "self.fc.weight": "[2, 4] float32", "self.scale": "[3] float32"
    }  # fmt: skip


def test_frame_of_a_library_is_not_the_program_s() -> None:
    """The program's innermost one counts."""
    made: dict[str, Any] = {}
    code = "def fails(n):\n    inner = 1\n    raise ValueError(n)\n"
    exec(compile(code, "/x/site-packages/library.py", "exec"), made)  # noqa: S102

    def caller(n: int) -> None:
        outer = [n]
        made["fails"](outer)

    assert [item["name"] for item in variables_of(trace_of(caller, 7))] == ["n", "outer", "made"]


def test_nothing_without_a_traceback() -> None:
    """As of an exception that was never raised."""
    assert variables_of(None) == [] and sys.exc_info() == (None, None, None)
