"""Messages of a rank to itself: by torch's own check, and by the last recorded message, which gloo refused."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

REFUSED = "Invalid destination rank: destination rank should not be the same as the rank of the current process."
GLOO = "[enforce fail at pair.cc:801] state_ >= CONNECTED. 1 vs 4. Pair is not connected ([127.0.0.1]:1$1 <--> [none])"
RING = """\
def shift(x, rank, ring):
    left = (rank - 1) % ring.size
    {0}
    dist.irecv(x, src=left)
shift(1, 0, Ring(1))
"""
BATCH = """\
def swap(x, mine, peers):
    target = peers[(mine + 1) % len(peers)]
    other = peers[0]
    ops = [dist.P2POp(dist.isend, x, target), dist.P2POp(dist.irecv, x, target),
           dist.P2POp(dist.irecv, x, other)]
    dist.batch_isend_irecv(ops)
swap(1, 1, [0, 1])
"""


def said(
    folder: Path, source: str, line: int, message: str, values: dict[str, str], *, own: int = 1, peer: int = 1
) -> Explanation:
    """What is explained where rank `own` failed in a message from `peer` at this line."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    place = SimpleNamespace(file=str(file), line=line, function="shift")
    call = SimpleNamespace(point_to_point=True, state="failed", peer=peer, group="0", place=place)
    group = SimpleNamespace(name="0", own_rank=own, ranks=(0, 1, 2))
    snapshot: Any = SimpleNamespace(
        argv=(), created_wall_ns=time.time_ns() + 10**9, collectives=[call], own_groups=[group]
    )
    name = source.partition("(")[0].removeprefix("def ")
    frames = [
        PythonFrame(function="irecv", file="/x/site-packages/torch/distributed/distributed_c10d.py", line=1),
        PythonFrame(function=name, file=str(file), line=line),
        PythonFrame(function="<module>", file=str(file), line=source.count("\n")),
    ]
    variables = [VariableReport(name=key, value=value) for key, value in values.items()]
    return explained(snapshot, ExceptionReport(type="RuntimeError", message=message, variables=variables), frames)


def test_peer_is_named_with_the_ring_of_one(tmp_path: Path) -> None:
    """The line that computes it, and the recorded size of 1."""
    found = said(tmp_path, RING.format("pass"), 4, GLOO, {"left": "1", "ring.size": "1"})
    assert found.subject == "`left`, the peer of its message, is the rank itself"
    assert found.words is not None and found.words.startswith(
        "Line 4 names `left` as the peer (line 2: `left = (rank - 1) % ring.size`), which is this rank itself: a rank "
        "cannot receive from itself. It comes from `(rank - 1) % ring.size` (line 2), where `ring.size` was 1. "
        "Where `left == dist.get_rank()`, copy the tensor"
    )


def test_operations_of_a_batch_are_chosen_by_their_value(tmp_path: Path) -> None:
    """Of two peers the one that has the number of the rank; both of its lines."""
    found = said(tmp_path, BATCH, 6, GLOO, {"target": "1", "other": "0", "ops": "list of 3"})
    assert found.subject == "`target`, the peer of its message at line 4, is the rank itself"
    assert "cannot send to or receive from itself." in (found.words or "")


def test_check_of_torch_is_explained_without_a_recorded_message(tmp_path: Path) -> None:
    """send() and recv() refuse it before anything is recorded."""
    source = RING.format("dist.send(x, rank)")
    found = said(tmp_path, source, 3, REFUSED, {"rank": "2"}, own=2, peer=0)
    assert found.subject == "`rank`, the peer of its message, is the rank itself"


@pytest.mark.parametrize(("own", "peer"), [(1, 0), (0, 1)])
def test_message_to_another_rank_is_none_to_itself(own: int, peer: int, tmp_path: Path) -> None:
    """The look-alike: the same error of gloo, and another peer."""
    found = said(tmp_path, RING.format("pass"), 4, GLOO, {"left": str(peer)}, own=own, peer=peer)
    assert "is the rank itself" not in (found.subject or "")


CHAIN = """\
def step(x, rank, world):
    before = max(rank - 1, 0)
    dist.recv(x, before)
step(1, 0, 2)
"""


def test_first_of_a_chain_is_told_to_leave_the_message_out(tmp_path: Path) -> None:
    """Found by a twin: it was told to copy what it would have sent to itself."""
    found = said(tmp_path, CHAIN, 3, GLOO, {"before": "0"}, own=0, peer=0)
    assert "`max(rank - 1, 0)` (line 2) gives the first rank itself, which has no neighbour on that" in (
        found.words or ""
    )
    assert "Leave the message out on that rank: `if before != dist.get_rank():`" in (found.words or "")
    assert "copy the tensor" not in (found.words or "")


def test_rank_that_is_not_the_first_has_another_reason(tmp_path: Path) -> None:
    """Found by reviewing: a table gave rank 1 its own number, and max() was in a branch that did not run."""
    found = said(tmp_path, CHAIN, 3, GLOO, {"before": "1"}, own=1, peer=1)
    assert "gives the first rank itself" not in (found.words or "")


@pytest.mark.parametrize("peer", ["max(count, 0)", "(rank - 1) % world", "max(rank - 1, first)"])
def test_other_peers_are_no_ends_of_a_chain(peer: str, tmp_path: Path) -> None:
    found = said(tmp_path, CHAIN.replace("max(rank - 1, 0)", peer), 3, GLOO, {"before": "0"}, own=0, peer=0)
    assert "copy the tensor in place of the message" in (found.words or "")
