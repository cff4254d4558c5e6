"""Slots that are reused while another thread is about to change their old contents."""

from __future__ import annotations

from tests.conditions import needs_core
from tests.native.harness import Native

pytestmark = needs_core


def test_collective_that_the_ring_has_overtaken_ends_no_newer_one(native: Native) -> None:
    """A thread that completes a collective whose slot has just been reused changes nothing."""
    code = "t.testing_overtake_collectives.restype = U64; print(t.testing_overtake_collectives(6, U64(600_000)))"
    done = native.child(code)
    assert (done.status, done.stdout) == (0, "0\n"), done.stderr


def test_number_of_a_freed_storage_frees_no_newer_one(native: Native) -> None:
    """A thread that frees by a number whose slot has just been reused frees nothing."""
    done = native.child("t.testing_free_twice.restype = U64; print(t.testing_free_twice(6, U64(500)))")
    assert (done.status, done.stdout) == (0, "0\n"), done.stderr
