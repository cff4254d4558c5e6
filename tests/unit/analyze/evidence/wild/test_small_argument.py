"""A tensor that is smaller than another argument of the call."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from pytracer.analyze.evidence.own_code import passed
from pytracer.analyze.evidence.wild.small_argument import small_argument
from tests.unit.analyze.evidence.own_code.test_passed import view_of


@pytest.mark.parametrize(("addr", "found"), [(0x9000, True), (0x1010, False), (0x900000, False)])
def test_a_tensor_that_is_smaller_than_another_argument(
    addr: int, found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address lies behind the small one by less than the large one has; not inside of it, and not far away."""
    monkeypatch.setattr(passed, "find_operator", lambda view: None)
    monkeypatch.setattr(passed, "own_function", lambda view: SimpleNamespace(name="decode"))
    tensors = {"files": (0x1000, 256), "out": (0x100000, 65536)}
    small = small_argument(view_of(tmp_path, "library.decode(files, out)", tensors=tensors, addr=addr))
    assert (small is not None) == found
    if small is not None:
        assert (small.small, small.behind) == ("`files` (64 elements, 256 bytes)", addr - 0x1100)
        assert small.large.startswith("`out`")
