"""polled-work: a loop on is_completed() of a send or receive of gloo, which only wait() completes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import Ranks, call
from tests.support.deaths import advice, evidence, summary, verdict
from tests.support.scenarios import LIBC, PYTHON, TORCH, program_in

POLLS = """\
import time, torch.distributed as dist
def serve(buffer):
    {0}
    {1}
        {3}
    return buffer
def work(grad):
    dist.send(grad, dst=0)
    dist.recv(grad, src=0)
{2}
"""
ONE = ("request = dist.irecv(buffer, src=1)", "while not request.is_completed():")
SEVERAL = ("works = [dist.irecv(buffer, src=1)]", "while not all(w.is_completed() for w in works):")
DISTRIBUTED = f"{TORCH}/distributed/distributed_c10d.py"
GLOO = "in its wait(), although rank 1 has sent the message (line 8)"


def reported(
    run: Path,
    lines: tuple[str, str] = ONE,
    *,
    more: str = "",
    sent: bool = True,
    tag: int = 0,
    open_too: bool = False,
    until: float = 60_000,
    name: str = "recv_",
    inside: str = "time.sleep(0.1)",
    **other: Any,
) -> Report:
    """Rank 0 has begun to receive and is in a loop; rank 1 has sent, and waits for the answer."""
    program = str(program_in(run, POLLS.format(*lines, more, inside)))
    job = Ranks(2)
    job.everybody(call())
    master, worker = job.boxes
    of_master = {"sequence_nr": 1, "peer": 1, "tag": 0, "flags": 1, "nbytes": 16, **other}
    if name != "recv_":
        of_master = {"sequence_nr": 2, "nbytes": 16}
    by = master.site(("irecv", DISTRIBUTED, 2700), ("serve", program, 3))
    master.collective(name, state="started", group=job.groups[0]["0"], by=by, **of_master)
    if open_too:
        job.calls(0, call(state="started"), first=2)
    of_worker: dict[str, Any] = {"sequence_nr": 1, "peer": 0, "flags": 1, "nbytes": 16, "group": job.groups[1]["0"]}
    if sent:
        by = worker.site(("isend", DISTRIBUTED, 2650), ("work", program, 8))
        worker.collective("send", state="completed", tag=tag, by=by, **of_worker)
    by = worker.site(("irecv", DISTRIBUTED, 2700), ("work", program, 9))
    worker.collective("recv_", state="started", tag=0, by=by, **of_worker)
    stacks = [
        [("serve", program, 5), ("main", program, 10)],
        [("recv", DISTRIBUTED, 2799), ("work", program, 9), ("main", program, 10)],
    ]
    for box, stack in zip(job.boxes, stacks, strict=True):
        box.at(until).crash(signal=15, code=0, sender_pid=100, python=stack, native=[(LIBC, 0x10), (PYTHON, 0x20)])
    job.terminated(0, 1)
    return build_report(job.job(run, ended_at=until + 10))


def test_polled_receive_whose_message_was_sent_is_the_cause(run: Path) -> None:
    """With the loop, the line that began it, and the rank that waits for it in turn."""
    report = reported(run)
    assert verdict(report) == ("hang", "certain")
    assert report.verdict is not None and report.verdict.rank == 0
    said = summary(report)
    assert said.startswith("Rank 0 never leaves the loop `while not request.is_completed()` (program.py:4 in serve)")
    assert f"gloo completes the Work of irecv() (line 3) only {GLOO}; rank 1 waits in recv from rank 0" in said
    assert advice(report).startswith("Call `request.wait()` in place of the loop of line 4.")
    assert "rank 1 its counterpart at program.py:8 in work" in evidence(report)
    assert "point-to-point-unmatched" not in {item.id for item in report.findings or ()}


def state_of_send(report: Report) -> str | None:
    """In the list of its sender's calls."""
    sender = next(item for item in report.processes or () if item.rank == 1)
    spans = sender.timeline.collectives or [] if sender.timeline is not None else []
    return next(item.state for item in spans if item.op == "send")


@pytest.mark.parametrize(
    ("lines", "how", "state"),
    [
        (ONE, {}, "receive begun"),
        (ONE, {"until": 5_000}, "receive begun"),
        ((ONE[0], "while busy():"), {}, "receive begun"),  # it came to no wait yet
        (ONE, {"inside": "request.wait()"}, "not received"),
        (ONE, {"tag": 4}, "not received"),
    ],
    ids=["polls", "shortly", "elsewhere", "waits", "other-tag"],
)
def test_send_whose_receiver_did_not_wait_for_it_may_have_come(
    lines: tuple[str, str], how: dict[str, Any], state: str, run: Path
) -> None:
    """Only wait() of the receiver completes the receive: without that nobody recorded whether it has the message."""
    assert state_of_send(reported(run, lines, **how)) == state


def test_list_of_works_is_followed_to_what_made_them(run: Path) -> None:
    """The advice is of each of them."""
    report = reported(run, SEVERAL)
    assert "`while not all(w.is_completed() for w in works)` (program.py:4 in serve)" in summary(report)
    assert advice(report).startswith("Call wait() of each of these Works (`for work in works: work.wait()`)")


def test_function_that_only_answers_is_followed(run: Path) -> None:
    """It returns what is_completed() of its argument does."""
    more = "def ready(work):\n    return work.is_completed()"
    report = reported(run, (ONE[0], "while not ready(request):"), more=more)
    assert verdict(report) == ("hang", "certain")
    assert "which ends only by `ready(request)`, that is, is_completed() (line 11)" in summary(report)
    assert advice(report).startswith(
        "Call wait() of the Work that `ready(request)` asks in place of the loop of line 4."
    )
    late = more.replace("completed()", "completed() or late()")
    assert "gloo completes" not in summary(reported(run, (ONE[0], "while not ready(request):"), more=late))


@pytest.mark.parametrize(
    ("lines", "how"),
    [
        (ONE, {"sent": False}),
        (ONE, {"tag": 4}),
        (ONE, {"open_too": True}),
        (ONE, {"until": 5_000}),
        (ONE, {"name": "allreduce_"}),
        ((ONE[0], "while not request.is_completed() and time.time() < END:"), {}),
        ((ONE[0], "while not download.is_completed():"), {}),
        ((ONE[0], "while not request.done():"), {}),
    ],
    ids=["never-sent", "other-tag", "a-collective-too", "just-begun", "collective", "deadline", "other", "method"],
)
def test_other_loops_are_no_polled_work(lines: tuple[str, str], how: dict[str, Any], run: Path) -> None:
    """The look-alikes: a message that never came, a Work that gloo completes itself, a loop that ends otherwise."""
    report = reported(run, lines, **how)
    assert "polled-work" not in {item.id for item in report.findings or ()}
    assert "gloo completes" not in summary(report)
