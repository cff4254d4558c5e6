"""Exceptions of the thread that sends what was put into a queue: recorded, and told by multiprocessing as before."""

from __future__ import annotations

import multiprocessing
import multiprocessing.queues
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.record.torch import exceptions


def test_what_cannot_be_sent_is_recorded(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """With the traceback on stderr as without pytracer; then the class is as it was."""
    told: list[tuple[str, object]] = []

    def hook() -> None:
        pass

    def write(_box: object, error: BaseException, _trace: object, *, on_its_way: str | None = None) -> None:
        told.append((type(error).__name__, on_its_way))

    before = multiprocessing.queues.Queue.__dict__["_on_queue_feeder_error"]
    monkeypatch.setattr(exceptions, "_installed", hook)
    monkeypatch.setattr(exceptions, "write", write)
    box: Any = SimpleNamespace(recording=True)
    exceptions._wrap_queues(box, hook)
    try:
        queue: Any = multiprocessing.get_context("fork").Queue()
        for _ in range(exceptions.MOST_OF_QUEUES + 2):
            queue.put(lambda: None)
        queue.put(1)
        assert queue.get(timeout=20) == 1
        queue.close()
        queue.join_thread()
    finally:
        exceptions._patches.put_back()
    assert told == [(told[0][0], "feed")] * exceptions.MOST_OF_QUEUES
    assert capfd.readouterr().err.count("Traceback") == exceptions.MOST_OF_QUEUES + 2
    assert multiprocessing.queues.Queue.__dict__["_on_queue_feeder_error"] is before


def test_exception_that_a_pool_hands_over_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its traceback, which the process that asked gets as a text only; then the class is as it was."""
    import multiprocessing.pool

    told: list[tuple[str, object]] = []

    def hook() -> None:
        pass

    def write(_box: object, error: BaseException, _trace: object, *, on_its_way: str | None = None) -> None:
        told.append((type(error).__name__, on_its_way))

    kind: Any = multiprocessing.pool.ExceptionWithTraceback  # type: ignore[attr-defined]
    before = kind.__init__
    monkeypatch.setattr(exceptions, "_installed", hook)
    monkeypatch.setattr(exceptions, "write", write)
    exceptions._wrap_pool(SimpleNamespace(recording=True), hook, "multiprocessing.pool", "ExceptionWithTraceback")  # type: ignore[arg-type]
    try:
        for _ in range(exceptions.MOST_OF_QUEUES + 1):
            try:
                raise KeyError("a")
            except KeyError as error:
                made = kind(error, error.__traceback__)
                assert made.exc is error
                assert "KeyError: 'a'" in made.tb
    finally:
        exceptions._patches.put_back()
    assert told == [("KeyError", "fetch")] * exceptions.MOST_OF_QUEUES
    assert kind.__init__ is before
