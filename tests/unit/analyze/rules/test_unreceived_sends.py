"""Messages that isend() had begun, and whose sender ended, or went on, without waiting for the Work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import CLOSED, Ranks, call
from tests.support.deaths import advice, summary
from tests.support.scenarios import TORCH, program_in

SENDS = """\
def feed(batches):
    for batch in batches:
        {0}
def take():
    recv()
{1}
"""
FEED, TAKE = 3, 5
LOST = "dropped the Work of isend() at program.py:3 in feed, and had ended with status 0 before this message was sent"


def reported(
    run: Path, sends: str, *, more: str = "", status: int = 0, sent: int = 2, tag: int = 0, line: int = FEED
) -> Report:
    """Rank 0 begins some messages to rank 1, at `line`, and ends; rank 1 fails in its second receive."""
    program = program_in(run, SENDS.format(sends, more))
    job = Ranks(2)
    job.everybody(call())
    for rank, function, at, op in ((0, "feed", line, "send"), (1, "take", TAKE, "recv_")):
        box = job.boxes[rank]
        by = box.site(("isend", f"{TORCH}/distributed/distributed_c10d.py", 2700), (function, str(program), at))
        for number in range(1, (sent if rank == 0 else 2) + 1):
            state = "failed" if rank == 1 and number == 2 else "completed"
            of_rank = tag if rank == 0 else 0
            group = job.groups[rank]["0"]
            box.collective(
                op, sequence_nr=number, state=state, peer=1 - rank, tag=of_rank, flags=1, nbytes=16, group=group, by=by
            )
    if status == 0:
        job.done(0)
    else:
        job.boxes[0].at(5000).exception("ValueError", "bad", [("feed", str(program), FEED)]).exit(status)
        job.endings[0] = {"exit_code": status}
    stack = [("recv", f"{TORCH}/distributed/distributed_c10d.py", 2796), ("take", str(program), TAKE)]
    job.boxes[1].at(7000).exception("RuntimeError", CLOSED, stack).exit(1)
    job.endings[1] = {"exit_code": 1}
    return build_report(job.job(run))


def test_dropped_work_of_a_rank_that_ended_well_is_the_cause(run: Path) -> None:
    """With the line of the sender, and what to keep there."""
    report = reported(run, "dist.isend(batch, 1)")
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.confidence) == ("python-exception", "certain")
    assert f"at program.py:5 in take: rank 0 {LOST}." in summary(report)
    assert advice(report).startswith(
        "At program.py:3 in feed (`dist.isend(batch, 1)`) keep each Work and its tensor "
        "(`works.append((dist.isend(t, 1), t))`), and call wait() on all before rank 0 ends"
    )


def test_work_that_is_kept_and_never_waited_for_is_likely(run: Path) -> None:
    """Nothing in the file waits."""
    report = reported(run, "self.works.append(dist.isend(batch, 1))")
    assert report.verdict is not None and report.verdict.confidence == "likely"
    assert "rank 0 never waited for the Work of isend() at program.py:3 in feed" in summary(report)
    assert advice(report).startswith("Call wait() on each Work that program.py:3 in feed")


def test_work_of_the_last_round_that_only_the_next_one_would_wait_for(run: Path) -> None:
    """Each round waits for the Work of the one before; behind the loop nothing does."""
    report = reported(run, "self.work and self.work.wait(); self.work = dist.isend(batch, 1)")
    assert "without waiting for its last Work" not in summary(report)  # one line: which comes first is not known
    source = "if self.work: self.work.wait()\n        self.work = dist.isend(batch, 1)"
    report = reported(run, source, line=4)
    assert "rank 0 ended behind isend() at program.py:4 in feed without waiting for its last Work" in summary(report)
    assert advice(report).startswith("Call wait() on the last Work that program.py:4 in feed")


@pytest.mark.parametrize(
    ("sends", "how"),
    [
        ("dist.send(batch, 1)", {}),
        ("works.append(dist.isend(batch, 1))", {"more": "def end(works):\n    works[0].wait()"}),
        ("dist.isend(batch, 1)", {"status": 1}),
        ("dist.isend(batch, 1)", {"sent": 1}),
        ("dist.isend(batch, 1)", {"tag": 4}),
        ("dist.isend(batch, 1).wait()", {}),
    ],
    ids=["send", "kept", "crashed", "never-sent", "other-tag", "waited"],
)
def test_other_ends_of_the_sender_are_no_dropped_work(sends: str, how: dict[str, Any], run: Path) -> None:
    """The look-alikes: one that waits, one that is kept, a sender that crashed, and a message that was never sent."""
    said = summary(reported(run, sends, **how))
    assert "dropped the Work" not in said and "never waited for" not in said and "without waiting" not in said


def test_receiver_whose_sender_waits_elsewhere_is_told_of_the_dropped_work(run: Path) -> None:
    """Rank 0 lives on, in a barrier: rank 1 did not enter it, and will not have its message."""
    program = program_in(run, SENDS.format("dist.isend(batch, 1)", ""))
    job = Ranks(2)
    for rank, function, line, op in ((0, "feed", FEED, "send"), (1, "take", TAKE, "recv_")):
        box, torch = job.boxes[rank], f"{TORCH}/distributed/distributed_c10d.py"
        by = box.site(("isend", torch, 2700), (function, str(program), line))
        state = "failed" if rank == 1 else "completed"
        group = job.groups[rank]["0"]
        box.collective(op, sequence_nr=1, state=state, peer=1 - rank, tag=0, flags=1, nbytes=16, group=group, by=by)
    job.calls(0, call("barrier", state="failed"))
    job.raised(0, at=7000)
    stack = [("recv", f"{TORCH}/distributed/distributed_c10d.py", 2796), ("take", str(program), TAKE)]
    job.boxes[1].at(7010).exception("RuntimeError", CLOSED, stack).exit(1)
    job.endings[1] = {"exit_code": 1}
    report = build_report(job.job(run))
    assert "; rank 1 was in recv at program.py:5 in take, for the message of rank 0 whose Work" in summary(report)
    assert advice(report).startswith("At program.py:3 in feed (`dist.isend(batch, 1)`) keep each Work")


@pytest.mark.parametrize(("state", "told"), [("started", True), ("failed", False)])
def test_rank_that_waits_for_itself_is_in_no_cycle(state: str, told: bool, run: Path) -> None:
    """It says whose peer it is; where gloo refused the message, nobody waited, and the exception says it all."""
    job = Ranks(2)
    job.everybody(call())
    job.calls(0, call("recv_", state=state, peer=0, tag=0, flags=1, line=44))
    job.raised(0, at=7000)
    report = build_report(job.job(run))
    said = " ".join(item.summary or "" for item in report.findings or ())
    assert "cycle" not in said
    assert ("the peer of that message is the rank itself" in said) == told


@pytest.mark.parametrize(
    ("how", "state"),
    [({}, "not received"), ({"sent": 1}, "completed"), ({"tag": 4}, "not received")],
    ids=["not-received", "received", "other-tag"],
)
def test_send_that_its_receiver_never_had_is_not_completed(how: dict[str, Any], state: str, run: Path) -> None:
    """gloo completes it when isend() returns; the receiver completed only the first one."""
    report = reported(run, "dist.isend(batch, 1)", **how)
    sender = next(item for item in report.processes or () if item.rank == 0)
    assert sender.last_collective is not None and sender.last_collective.state == state
    spans = sender.timeline.collectives or [] if sender.timeline is not None else []
    assert [item.state for item in spans if item.op == "send"][-1] == state


def test_receiver_that_takes_from_any_rank_may_have_it(run: Path) -> None:
    """The look-alike: its receive names no sender."""
    program = program_in(run, SENDS.format("dist.isend(batch, 1)", ""))
    job = Ranks(2)
    for rank, (op, peer) in enumerate((("send", 1), ("recv_any_source_", -1))):
        box = job.boxes[rank]
        by = box.site(("isend", f"{TORCH}/distributed/distributed_c10d.py", 2700), ("feed", str(program), FEED))
        group = job.groups[rank]["0"]
        box.collective(op, sequence_nr=1, state="completed", peer=peer, tag=0, flags=1, group=group, by=by)
    job.done(0, 1)
    report = build_report(job.job(run))
    sender = next(item for item in report.processes or () if item.rank == 0)
    assert sender.last_collective is not None and sender.last_collective.state == "completed"
