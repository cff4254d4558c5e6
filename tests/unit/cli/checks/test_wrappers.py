"""`doctor` on DDP and FSDP: the real child, one that fails, and the answer when torch is not as expected."""

from __future__ import annotations

import pytest

from pytracer.cli.checks import wrappers
from pytracer.cli.checks.answer import LIMITED, WORKS
from pytracer.decode.types.journal import Buckets, Fact, Note, Uninterpreted
from tests.conditions import needs_core, needs_native, needs_torch

pytestmark = [needs_core, needs_native, needs_torch]

BUCKETS = Fact(0, 0, "BUCKETS", Buckets(module="Net", generation=0, buckets=()))
UNIT = Fact(0, 0, "UNIT", Uninterpreted(b""))


@pytest.mark.slow
def test_buckets_and_units_are_recorded_here() -> None:
    """A child wraps a layer in each."""
    check = wrappers.check_wrappers()
    assert check.result == WORKS, check.detail


def test_a_child_that_fails_is_told_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch without gloo, for instance."""
    monkeypatch.setattr(wrappers, "_PROGRAM", "raise RuntimeError('no such backend')")
    check = wrappers.check_wrappers()
    assert (check.result, check.detail) == (
        LIMITED,
        "DDP and FSDP could not be tried: RuntimeError: no such backend",
    )


def test_what_has_no_names_is_told_with_the_notes() -> None:
    """Either of them, and why."""
    assert wrappers.wrappers([BUCKETS, UNIT]).result == WORKS
    note = Fact(0, 0, "NOTE", Note("FSDP units could not be noted: no _fqns"))
    check = wrappers.wrappers([BUCKETS, note])
    assert check.result == LIMITED
    assert check.detail == "FSDP's units have no names with this torch: FSDP units could not be noted: no _fqns"
    both = wrappers.wrappers([])
    assert both.detail == "DDP's buckets and FSDP's units have no names with this torch"
