"""Connections of multiprocessing between processes of different authentication keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, evidence, summary

LIB = "/usr/lib/python3.11/multiprocessing"
TYPE = "multiprocessing.context.AuthenticationError"
SENT, RECEIVED = "digest sent was rejected", "digest received was wrong"
ASKS = [
    ("answer_challenge", f"{LIB}/connection.py", 775),
    ("Client", f"{LIB}/connection.py", 524),
]
SHARES = [
    ("_ResourceSharer.get_connection", f"{LIB}/resource_sharer.py", 86),
    ("rebuild_storage_fd", "/usr/lib/python3.11/site-packages/torch/multiprocessing/reductions.py", 538),
]
SERVES = [
    ("deliver_challenge", f"{LIB}/connection.py", 761),
    ("_ResourceSharer._serve", f"{LIB}/resource_sharer.py", 138),
]
LOAD = [("load", s.SCRIPT, 7), ("<module>", s.SCRIPT, 40)]


def refused(
    run: Path,
    *,
    error: tuple[str, str] = (TYPE, SENT),
    stack: list[tuple[str, str, int]] = [*ASKS, *SHARES],  # noqa: B006
    refusing: int = 1,
    raised_at: int = 1000,
) -> Report:
    """Rank 0 raised; the thread of others that sends descriptors had refused it."""
    asks = s.rank(0).at(raised_at).exception(*error, [*stack, *LOAD]).exit(1)
    others = []
    for number in range(1, 3):
        box = s.rank(number, world_size=3) if number > 1 else s.rank(1)
        if number <= refusing:
            box.at(990).exception(TYPE, RECEIVED, SERVES, thread="Thread-1 (_serve)")
        others.append(box.at(25_000).exit(0))
    ends = ((box.pid, {"exit_code": code}) for box, code in [(asks, 1), *((item, 0) for item in others)])
    return build_report(s.load(run, s.agent(*ends, at=26_000), asks, *others))


def test_rank_that_asked_another_one_for_a_descriptor_is_told_of_both_keys(run: Path) -> None:
    """With what makes them equal: each rank of torchrun has its own."""
    report = refused(run)
    assert (
        "its multiprocessing authkey is not that of rank 1, whose descriptors of shared memory it asks for: each rank "
        "that torchrun starts makes a random one"
    ) in summary(report)
    assert "bytes(multiprocessing.current_process().authkey)" in advice(report)
    assert "broadcast_object_list()" in advice(report)
    assert "a thread of rank 1 that sends file descriptors refused it" in evidence(report)


@pytest.mark.parametrize(
    "how", [{"refusing": 0}, {"refusing": 2}, {"raised_at": 20_000}], ids=["none", "two", "long ago"]
)
def test_other_end_that_is_not_known_is_not_named(how: dict[str, int], run: Path) -> None:
    """It may have no recording."""
    said = summary(refused(run, **how))  # type: ignore[arg-type]
    assert "its multiprocessing authkey is not that of the process whose descriptors" in said


def test_client_of_a_server_needs_its_key(run: Path) -> None:
    """No descriptors: a manager, or Client() and Listener()."""
    report = refused(run, stack=ASKS)
    assert "its authkey is not that of the other end of the connection" in summary(report)
    assert "at line 7" in advice(report)


@pytest.mark.parametrize(
    "how",
    [{"error": (TYPE, "challenge too large")}, {"error": ("jwt.AuthenticationError", SENT), "stack": []}],
    ids=["message", "library"],
)
def test_other_authentication_is_left_alone(how: dict[str, object], run: Path) -> None:
    """Another message, another library."""
    assert "authkey" not in summary(refused(run, **how))  # type: ignore[arg-type]
