"""An address that lost its upper half may be that of a view, which begins inside of its storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.decode.types.snapshot import Argument
from tests.conditions import needs_capstone
from tests.support.deaths import advice, died, summary
from tests.support.synth import Box

BASE, OFFSET = 0x7F50_1234_5040, 768  # in float32
VIEW = Argument(
    BASE ^ 0xFF, BASE, 768, OFFSET, (256, 3), 2, "float32", "cpu", minimum=None, maximum=None, frame=None,
    outer_frame=None, register=None, how="held", strides=(3, 1),
)  # fmt: skip


@needs_capstone
@pytest.mark.parametrize(("skipped", "cut"), [(OFFSET * 4, True), (OFFSET, False), (OFFSET * 4 + 4, False)])
def test_half_of_the_address_of_a_view_is_known(skipped: int, cut: bool, run: Path) -> None:
    """The look-alikes: its offset in elements, and the element behind its first one."""
    value = (BASE + skipped) % (1 << 32)
    report = died(
        run, box=Box(pid=101).alloc(BASE, 4 << 20), addr=value, registers={"rdi": value}, arguments=(VIEW,),
        code_bytes=bytes.fromhex("488b1f"),
    )  # fmt: skip
    assert ("the lower 32 bits of the address of a tensor" in summary(report)) == cut
    assert ("argtypes" in advice(report)) == cut
