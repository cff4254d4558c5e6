"""Whether the thread flushes subnormal numbers to 0 is recorded, and nothing where it does not."""

from __future__ import annotations

import threading

import pytest

from pytracer.record.torch.subnormals import subnormals_at

torch = pytest.importorskip("torch")
FLUSHED = [{"name": "subnormal numbers", "value": "flushed to 0"}]


@pytest.fixture
def flushing() -> object:
    """The mode, for one test."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no such mode")
    yield
    torch.set_flush_denormal(False)


def test_flushing_is_a_mode_of_the_thread(flushing: object) -> None:
    """Recorded of the thread that asks, as long as it is on."""
    assert subnormals_at() == FLUSHED
    torch.set_flush_denormal(False)
    assert subnormals_at() == []


def test_nothing_is_recorded_where_subnormal_numbers_are_kept() -> None:
    """As they are in each thread by default."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(subnormals_at()))
    thread.start()
    thread.join()
    assert subnormals_at() == [] and found == [[]]
