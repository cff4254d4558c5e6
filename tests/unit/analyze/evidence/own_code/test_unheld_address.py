"""An address of a tensor that only an attribute or an element holds, which another thread may replace."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.evidence.own_code.unheld_address import unheld_address
from tests.unit.analyze.evidence.lifetime.test_where_made import view_of

RUN = "def run(self, lib):\n    pointer, count = {taken}, 4\n    lib.checksum(pointer, count)\n"


@pytest.mark.parametrize("owner", ["self.state['weights']", "self.weights"])
def test_the_address_of_what_an_object_holds(owner: str, tmp_path: Path) -> None:
    found = unheld_address(view_of(tmp_path, RUN.replace("{taken}", f"{owner}.data_ptr()"), 3))
    assert found is not None and (found.owner, found.line, found.used) == (owner, 2, 3)
    assert f"`held = {owner}` before line 2" in found.advice


@pytest.mark.parametrize("taken", ["held.data_ptr()", "self.address", "self.weights.numel()"])
def test_a_tensor_that_a_variable_holds_stays(taken: str, tmp_path: Path) -> None:
    assert unheld_address(view_of(tmp_path, RUN.replace("{taken}", taken), 3)) is None


def test_of_two_addresses_neither_is_named(tmp_path: Path) -> None:
    source = "lib.copy(self.a.data_ptr(), self.b.data_ptr())\n"
    assert unheld_address(view_of(tmp_path, source, 1)) is None
