"""A tensor that a line made, took the address of, and let go of."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.address_of_temporary import TemporaryAddress, address_of_temporary
from pytracer.report.job import PythonFrame
from tests.unit.analyze.evidence.lifetime.test_where_made import view_of

BANK = "def load(self, x):\n    {line}\ndef query(self, q):\n    self.lib.nearest(self.rows, q.data_ptr())\n"


def found(folder: Path, line: str, made: int = 2, freed: int = 2) -> TemporaryAddress | None:
    """Of memory that these lines made and freed."""
    view: Any = view_of(folder, BANK.format(line=line), 4)
    file = view.crash.python_stack[0].file
    at = {
        number: SimpleNamespace(place=PythonFrame(function="load", file=file, line=number)) for number in (made, freed)
    }
    view.storage = SimpleNamespace(allocated=at[made], freed=at[freed])
    return address_of_temporary(view)


@pytest.mark.parametrize("temporary", ["x.t().contiguous()", "x.float()", "torch.cat([x, x])", "x * 2"])
def test_temporary_whose_address_is_kept_is_named_with_its_line(temporary: str, tmp_path: Path) -> None:
    line = f"self.rows = ({temporary}).data_ptr()"
    item = found(tmp_path, line)
    assert item is not None
    assert item.summary == f"`self.rows` has kept the address of `{temporary}`, a temporary of line 2"
    assert item.advice.startswith(f"Hold the tensor at line 2: `held = {temporary}` (an attribute")
    assert ("returns the tensor itself" in item.advice) == temporary.endswith(("contiguous()", "float()"))


def test_temporary_that_is_passed_ends_before_the_call(tmp_path: Path) -> None:
    item = found(tmp_path, "self.lib.fill(x.float().data_ptr(), 4)")
    assert item is not None
    assert item.summary == "the address that line 2 passes is of `x.float()`, a temporary that ends before the call"


@pytest.mark.parametrize(
    ("line", "freed"),
    [
        ("self.rows = x.data_ptr()", 2),  # x is held
        ("self.rows = x.float().numel()", 2),
        ("self.lib.add(x.float().data_ptr(), x.long().data_ptr())", 2),  # which of them?
        ("self.rows = x.float().data_ptr()", 4),  # freed later: somebody held it
    ],
)
def test_nothing_is_said_of_a_tensor_that_something_held(line: str, freed: int, tmp_path: Path) -> None:
    assert found(tmp_path, line, freed=freed) is None
