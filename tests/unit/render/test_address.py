"""The row `memory`: who had freed memory is left out where only a number that is too large led there."""

from __future__ import annotations

import pytest

from pytracer.render.address import memory_text
from pytracer.report import job as r

FREED = r.StorageReport(
    base="0x1000", nbytes=4096, offset_bytes=16, state="freed",
    freed=r.Origin(python=r.PythonFrame(function="step", file="/job/train.py", line=7)),
)  # fmt: skip


def row(confidence: str, *facts: r.Fact, storage: r.StorageReport = FREED) -> str:
    subject = r.ProcessReport(pid=1, fault=r.Fault(kind="freed-storage", storage=storage))
    text = memory_text(subject, r.Verdict(class_="out-of-bounds", confidence=confidence, facts=[*facts]))
    return text.plain if text is not None else ""


LARGE = r.Fact(kind="tensor", tensor="ends", value=48000, limit=1000)


def test_freed_memory_where_a_large_number_led_is_one_line() -> None:
    assert (
        row("certain", LARGE)
        == "freed storage of 4096 bytes at 0x1000, 16 bytes in, where the number that is too large leads"
    )


@pytest.mark.parametrize(
    "facts",
    [(), (r.Fact(kind="tensor", tensor="mean", value=16, limit=1024),), (r.Fact(kind="tensor", tensor="x"),)],
    ids=["none", "a size that is too small", "a tensor without numbers"],
)
def test_who_freed_it_is_told_where_no_number_led_there(facts: tuple[r.Fact, ...]) -> None:
    assert "freed     /job/train.py:7" in row("certain", *facts)


def test_who_freed_it_is_told_where_the_number_is_not_certain() -> None:
    assert "freed     " in row("likely", LARGE)
    assert "leads" not in row("certain", LARGE, storage=r.StorageReport(base="0x1000", nbytes=64, state="live"))


@pytest.mark.parametrize(("kind", "is_said"), [("unmapped", True), ("anonymous", False)])
def test_memory_that_a_living_tensor_claims_and_that_does_not_exist_is_said_to_be_none(
    kind: str, is_said: bool
) -> None:
    live = r.StorageReport(base="0x1000", nbytes=64, offset_bytes=32, state="live")
    fault = r.Fault(kind="in-storage", storage=live, region=r.Region(kind=kind))
    text = memory_text(r.ProcessReport(pid=1, fault=fault), r.Verdict(class_="wild-pointer", confidence="likely"))
    assert text is not None
    assert text.plain.startswith("live storage of 64 bytes at 0x1000, 32 bytes in")
    assert ("no memory is mapped there" in text.plain) == is_said


@pytest.mark.parametrize(("origin", "label"), [("numpy", "made      "), ("blob", "made      "), (None, "allocated ")])
def test_memory_of_others_was_not_allocated_where_the_tensor_was_made(origin: str | None, label: str) -> None:
    made = r.Origin(python=r.PythonFrame(function="decode", file="/job/codec.py", line=66))
    storage = r.StorageReport(
        base="0x368e4710", nbytes=4096, offset_bytes=32, state="live", origin=origin, allocated=made
    )
    assert f"\n{label}/job/codec.py:66" in row("likely", storage=storage)
