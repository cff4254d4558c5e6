"""Each rule about collectives: a case that fires and a look-alike that must not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.collectives.matching import state_of
from pytracer.analyze.engine import build_report
from pytracer.decode.job.merge import load_job
from pytracer.decode.types.journal import HandledException
from pytracer.decode.types.snapshot import Job, Process, PythonFrame, SignalSend
from pytracer.render.text import render_text
from pytracer.report.job import Finding, Report
from tests.support import scenarios as s
from tests.support.collectives import CLOSED, MAX, TIME_OUT, Ranks, call
from tests.support.deaths import advice
from tests.support.scenarios import SCRIPT, TORCH, program_in
from tests.support.synth import MS, Box, Frame, write_run

DONE = call()
OPEN = call(state="failed")
Classes = tuple[str | None, int | None]


def verdict(report: Report) -> Classes:
    assert report.verdict is not None
    return report.verdict.class_, report.verdict.rank


def finding(report: Report, rule: str) -> Finding | None:
    return next((item for item in report.findings or [] if item.id == rule), None)


def summary(report: Report) -> str:
    assert report.verdict is not None
    return report.verdict.summary or ""


def disagree(run: Path, odd: object, common: object = DONE, *, ranks: int = 3) -> Report:
    """The last rank passes something else; all go on to the end."""
    job = Ranks(ranks)
    job.everybody(DONE, DONE)
    for rank in range(ranks):
        job.calls(rank, odd if rank == ranks - 1 else common, first=3)  # type: ignore[arg-type]
    job.done(*range(ranks))
    return build_report(job.job(run))


# collective-mismatch


def test_other_operation_is_named_with_both_lines(run: Path) -> None:
    """The rank in the minority is guilty, also when another one raised first; its time-out is a consequence."""
    job = Ranks(3)
    job.everybody(DONE)
    job.calls(0, call(state="failed", line=44), first=2)
    job.calls(1, call(state="failed", line=44), first=2)
    job.calls(2, call("broadcast_", state="failed", root=0, line=48), first=2)
    for rank, at in ((0, 7000), (1, 7010), (2, 7020)):
        job.raised(rank, at=at)
    report = build_report(job.job(run))
    assert verdict(report) == ("collective-mismatch", 2)
    assert summary(report) == (
        "Rank 2 called broadcast at train.py:48 in step where ranks 0 and 1 called all_reduce "
        "(collective 2 of the default group)."
    )
    assert all(item.primary is not True for item in report.processes or [])
    text = render_text(report)
    assert "ranks 0 and 1  all_reduce float32 [4]" in text
    assert "rank 2         broadcast float32 [4] from rank 0" in text


@pytest.mark.parametrize(
    ("odd", "common", "field", "words"),
    [
        (call(dtype="Int"), DONE, "dtype", "rank 2 passed int32"),
        (call(reduce_op=MAX), DONE, "reduce_op", "rank 2 asked for max"),
        (call("broadcast_", 2, root=0), call("broadcast_", 4, root=0), "size", "rank 2 passed 2 elements [2]"),
        (call("broadcast_", root=1), call("broadcast_", root=0), "root", "rank 2 named rank 1 as root"),
    ],
)
def test_silent_disagreement_is_a_verdict_although_nothing_died(
    run: Path, odd: object, common: object, field: str, words: str
) -> None:
    """gloo completes these with wrong data."""
    report = disagree(run, odd, common)
    assert verdict(report) == ("collective-mismatch", 2)
    assert words in summary(report).lower()
    assert "every rank's call reported success, and the data is corrupt" in summary(report)
    (group,) = (report.collectives.groups if report.collectives else None) or []
    assert group.mismatch is not None
    assert (group.mismatch.field, group.mismatch.odd_ranks, group.mismatch.silent) == (field, [2], True)
    assert sorted(group.mismatch.by_rank or {}) == ["0", "1", "2"]


def misread(run: Path, place: Frame, *more: Any) -> Report:
    """Rank 1 read rank 0's floats as an int64, and raised at that place, after those calls."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, call("broadcast_", 2, root=0, line=51), call("broadcast_", 4, root=0, state="failed"), first=2)
    job.calls(1, call("broadcast_", 1, root=0, line=60, dtype="Long", nbytes=8), *more, first=2)
    job.boxes[1].at(4000).exception("ValueError", "negative size", [place, ("order", SCRIPT, 61)]).exit(1)
    job.endings[1] = {"exit_code": 1}
    job.raised(0, CLOSED, at=5000)
    return build_report(job.job(run))


def test_error_that_a_rank_raised_behind_a_silent_disagreement_is_in_the_headline(run: Path) -> None:
    """Before any other call of the group."""
    said = summary(misread(run, ("empty", SCRIPT, 62)))
    assert "every call reported success with corrupt data, and rank 1 raised ValueError at line 62" in said


@pytest.mark.parametrize(
    ("place", "more"),
    [
        (("broadcast", f"{TORCH}/distributed/distributed_c10d.py", 3151), ()),
        (("empty", SCRIPT, 62), (call("broadcast_", 4, root=0), call("allreduce_", 4))),
    ],
    ids=["in a collective", "after others"],
)
def test_error_of_the_communication_or_of_later_is_not_told_with_it(
    run: Path, place: Frame, more: tuple[Any, ...]
) -> None:
    """The look-alikes."""
    assert "and rank 1 raised" not in summary(misread(run, place, *more))


def test_two_ranks_disagree_and_nobody_is_guilty(run: Path) -> None:
    """There is no majority of two."""
    report = disagree(run, call(dtype="Int"), ranks=2)
    assert verdict(report) == ("collective-mismatch", None)
    assert summary(report).startswith("Ranks disagree in all_reduce")
    found = finding(report, "collective-mismatch")
    assert found is not None and found.ranks == [0, 1]
    assert any("undecidable" in item for item in found.missing or [])


def test_two_ranks_at_different_lines_are_both_named(run: Path) -> None:
    """Without a majority, too: the lines are what the reader compares."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, call("barrier", state="failed", line=35), first=2)
    job.calls(1, call(state="failed", line=23), first=2)
    for rank, at in ((0, 7000), (1, 7010)):
        job.raised(rank, at=at)
    report = build_report(job.job(run))
    assert "rank 0 called barrier at train.py:35 in step; rank 1 called all_reduce at train.py:23" in summary(report)


def test_two_ranks_at_one_line_share_it(run: Path) -> None:
    report = disagree(run, call(dtype="Int"), ranks=2)
    assert summary(report).count("train.py:") == 1


def test_aborted_receiver_is_not_guilty(run: Path) -> None:
    """gloo aborts the receiver of the larger message; the majority identifies the sender."""
    job = Ranks(3)
    job.everybody(DONE)
    job.calls(0, call("allreduce_", 10, state="started"), first=2)
    job.calls(1, call("allreduce_", 1000, state="failed"), first=2)
    job.calls(2, call("allreduce_", 10, state="failed"), first=2)
    job.aborted(0)
    job.raised(1, CLOSED, at=6050)
    job.raised(2, CLOSED, at=6060)
    report = build_report(job.job(run))
    assert verdict(report) == ("collective-mismatch", 1)
    evidence = report.verdict.evidence if report.verdict else None
    assert any("rank 0 aborted" in item and "not to blame" in item for item in evidence or [])
    assert finding(report, "abort") is None


@pytest.mark.parametrize(
    "calls",
    [
        [call("alltoall_base_", n + 1) for n in range(3)],
        [call("gather_", n + 1, root=0) for n in range(3)],
        [call("allgather_", n + 1, output=(64, 6, 24)) for n in range(3)],
        [call("barrier", n + 1) for n in range(3)],
        [call("allreduce_", 6), call("allreduce_", 2, 3), call("allreduce_", 6, 1)],
    ],
)
def test_uneven_sizes_that_are_legal_do_not_fire(run: Path, calls: list[object]) -> None:
    """all_to_all, gather, lists that add up, barriers, and views of the same elements."""
    job = Ranks(3)
    for rank in range(3):
        job.calls(rank, DONE, calls[rank])  # type: ignore[arg-type]
    job.done(0, 1, 2)
    report = build_report(job.job(run))
    assert (verdict(report), report.findings) == (("clean", None), [])


def test_own_fault_beside_a_mismatch_stays_the_verdict(run: Path) -> None:
    """A rank that faults by itself is the cause; the silent disagreement is a second finding."""
    job = Ranks(3)
    for rank in range(3):
        job.calls(rank, DONE, call(dtype="Int") if rank == 2 else DONE)
    job.boxes[1].at(6000).crash()
    job.endings[1] = {"signal": 11}
    job.raised(0, CLOSED, at=6100)
    job.raised(2, CLOSED, at=6200)
    report = build_report(job.job(run))
    assert verdict(report) == ("null-dereference", 1)
    assert finding(report, "collective-mismatch") is not None


# collective-missing-rank


def test_rank_whose_collective_failed_is_not_absent_from_the_next(run: Path) -> None:
    """Rank 1 is killed inside a collective: rank 0 fails in it, rank 2 got through it and waits in the next one."""
    job = Ranks(3)
    job.everybody(DONE)
    job.calls(0, call(state="failed"), first=2)
    job.calls(1, call(state="started"), first=2)
    job.calls(2, DONE, call(state="failed"), first=2)
    job.raised(0, CLOSED, at=3000)
    job.raised(2, CLOSED, at=3010)
    job.endings[1] = {"signal": 9}
    report = build_report(job.job(run))
    assert verdict(report)[1] == 1
    assert [item.ranks for item in report.findings or [] if item.id == "collective-missing-rank"] == [[1]]


def late(ranks: int = 3, *, boxes: bool = True) -> Ranks:
    """Rank 1 never enters the second all-reduce; the others time out; the agent ends rank 1."""
    job = Ranks(ranks)
    job.everybody(DONE)
    for rank in range(ranks):
        if rank != 1:
            job.calls(rank, OPEN, first=2)
            job.raised(rank, at=7000 + rank)
    job.terminated(1)
    return job


BARRIER = {
    "all": "[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 6000 ms",
    "first": "Rank 1 timed out in monitoredBarrier after 6000 ms.\n"
    " No ranks successfully processed in monitoredBarrier.",
    "noticed": "Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
    f"rank 0. Please check rank 0 logs for faulty rank.\n Original exception: \n{CLOSED}",
}


def at_monitored_barrier(end: str, said: str = "all") -> Ranks:
    """Rank 0 gives up waiting for rank 1, and rank 2 loses rank 0."""
    job = Ranks(3)
    job.everybody(DONE)
    for rank in (0, 2):
        job.calls(rank, call("monitored_barrier_", state="failed"), first=2)
    box = job.boxes[1]
    if end == "terminated":
        box.at(7500).signal_seen(15, 100, ["torchrun"])
        job.terminated(1)
    else:
        box.at(500).exception("ValueError", "no such shard", [("load", SCRIPT, 12)]).exit(1)
        job.endings[1] = {"exit_code": 1}
    job.raised(0, BARRIER[said])
    job.raised(2, BARRIER["noticed"], at=7010)
    return job


@pytest.mark.parametrize("said", ["all", "first"])
def test_rank_that_does_not_come_to_a_monitored_barrier_is_the_verdict(said: str, run: Path) -> None:
    """Not rank 0, whose exception names it."""
    report = build_report(at_monitored_barrier("terminated", said).job(run))
    assert verdict(report) == ("missing-rank", 1)
    assert summary(report).startswith("Rank 1 did not enter monitored_barrier (collective 2 of the default group)")
    text = render_text(report)
    whys = [item.why for item in report.processes or [] if item.rank in (0, 2)]
    assert whys == ["waited in vain for rank 1"] * 2  # rank 2 lost the connection to rank 0
    assert "errors followed" not in text and "no collective" not in text and "init_process_group" not in text


def test_rank_that_raised_before_a_monitored_barrier_is_told_by_its_exception(run: Path) -> None:
    """The look-alike: its absence only followed; the others were in a collective, and it was in none."""
    report = build_report(at_monitored_barrier("raised").job(run))
    assert verdict(report) == ("python-exception", 1)
    text = render_text(report)
    assert "rank 1 was in no collective" in text and "no collective was open" not in text


@pytest.mark.parametrize(("failed", "said"), [(True, False), (False, True)])
def test_a_collective_that_failed_is_not_told_as_none(failed: bool, said: bool, run: Path) -> None:
    """Only of a rank that was in none."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, OPEN if failed else DONE, first=2)
    job.raised(0, "expected scalar type Half but found Float", at=3000)
    job.terminated(1)
    assert ("rank 0 was in no collective" in render_text(build_report(job.job(run)))) is said


def test_late_rank_is_the_verdict(run: Path) -> None:
    """Not the ranks that raised, and not SIGTERM."""
    report = build_report(late().job(run))
    assert verdict(report) == ("missing-rank", 1)
    assert summary(report).startswith("Rank 1 did not enter all_reduce (collective 2 of the default group)")
    (group,) = (report.collectives.groups if report.collectives else None) or []
    assert (group.missing_ranks, group.missing_sequence_nr) == ([1], 2)
    assert group.last == {"0": 2, "1": 1, "2": 2}


def test_absent_rank_that_waits_for_a_thread_names_the_exception_that_ended_it(run: Path) -> None:
    """Its loader thread died; it waits for the next batch in Queue.get()."""
    report = build_report(late_by([("Queue.get", "/usr/lib/python3.11/queue.py", 171), ("step", SCRIPT, 41)]).job(run))
    assert verdict(report) == ("missing-rank", 1)
    assert summary(report).endswith(": its thread Thread-1 (write) had died of KeyError: 2 at train.py:8 in load.")
    assert advice(report).startswith("Look at KeyError: 2 at train.py:8 in load first")


def test_absent_rank_at_work_is_not_kept_by_its_dead_thread(run: Path) -> None:
    """The look-alike: it computes, or sleeps."""
    report = build_report(late_by([("save", SCRIPT, 41)]).job(run))
    assert verdict(report) == ("missing-rank", 1)
    assert "KeyError" not in summary(report)


def late_by(stack: Sequence[Frame]) -> Ranks:
    """As `late`, of two ranks; rank 1 had lost a thread and was below `stack` when it was ended."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, OPEN, first=2)
    job.boxes[1].at(500).thread_exception("KeyError", "2", [("load", SCRIPT, 8)])
    job.raised(0, at=7000)
    job.terminated(1)
    job.boxes[1].crash(0, code=0, state=6, python=stack, native=[("/usr/lib/libc.so.6", 0x10)])
    return job


EXIT = 6  # CrashState
QUEUE: Frame = ("Queue.get", "/usr/lib/python3.11/queue.py", 171)


PREFETCH = """\
class Prefetch:
    def fill(self, shards):
        for name in shards:
            self.ready.put(name){more}

    def __next__(self):
        return self.ready.get()
"""


@pytest.mark.parametrize(
    ("more", "other", "said"),
    [("", False, True), ("", True, False), ("\n        self.ready.put(None)", False, False)],
    ids=["nobody left", "a thread is left", "two lines fill it"],
)
def test_absent_rank_that_waits_for_an_own_queue_names_the_line_that_filled_it(
    more: str, other: bool, said: bool, run: Path
) -> None:
    """Its thread had put all that it had, and ended. The look-alikes: it may still run, or more than one line fills."""
    program = program_in(run, PREFETCH.format(more=more))
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, OPEN, first=2)
    job.raised(0, at=7000)
    job.terminated(1)
    line = 7 + more.count("\n")
    stack: list[Frame] = [QUEUE, ("__next__", str(program), line)]
    others: dict[int, list[Frame]] = {8: [("fill", str(program), 3)]} if other else {}
    native = [("/usr/lib/libc.so.6", 0x10)]
    job.boxes[1].crash(0, code=0, state=EXIT, python=stack, native=native, other_python=others)
    told = advice(build_report(job.job(run)))
    assert ("Line 4 in Prefetch.fill fills `self.ready`, and no thread is left that does" in told) is said
    assert ("(the loop of line 3)" in told) is said


@pytest.mark.parametrize(
    "stack, native, words",
    [
        (
            [QUEUE, ("next_shard", s.SCRIPT, 19)],
            "pthread_cond_wait",
            "rank 1 waited for a queue at train.py:19 in next_shard.",
        ),
        ([("step", s.SCRIPT, 21)], "time_sleep", "rank 1 slept at train.py:21 in step."),
        ([("step", s.SCRIPT, 21)], "_PyEval_EvalFrameDefault", "rank 1 was at train.py:21 in step."),
    ],
)
def test_late_rank_is_named_with_what_it_did(stack: list[Frame], native: str, words: str, run: Path) -> None:
    """The stacks of the moment at which the agent ended it."""
    job = late()
    job.boxes[1].at(7900).signal_seen(15, 99).crash(0, code=0, state=EXIT, python=stack, native=[(s.PYTHON, 0x1000)])
    loaded = job.job(run)
    rank = next(item for item in loaded.processes if item.rank == 1)
    ending = rank.snapshot.ending
    assert ending is not None
    frames = tuple(replace(frame, function=native) for frame in ending.native_stack)
    snapshot = replace(rank.snapshot, ending=replace(ending, native_stack=frames))
    processes = tuple(replace(rank, snapshot=snapshot) if item is rank else item for item in loaded.processes)
    assert summary(build_report(replace(loaded, processes=processes))).endswith(f"; when it ended, {words}")


def test_while_loop_of_the_rank_that_works_alone_is_looked_at_before_the_time_out(run: Path) -> None:
    """It may never end: a larger time-out helps only if it does."""
    loop = "while len(kept) > limit:\n            kept.remove(pick(kept))"
    program = program_in(run, f"def prepare(kept, limit):\n    if rank == 1:\n        {loop}\n    barrier()\n")
    job = late()
    stack = [("prepare", str(program), 4)]
    job.boxes[1].at(7900).signal_seen(15, 99).crash(0, code=0, state=EXIT, python=stack, native=[(s.PYTHON, 0x1000)])
    told = advice(build_report(job.job(run)))
    assert "See whether `while len(kept) > limit` (line 3) ever ends" in told
    assert told.index("ever ends") < told.index("a larger timeout=")


@pytest.mark.parametrize("test", ["rank == 1", "not os.path.exists(path)"])
def test_late_rank_below_a_branch_on_the_rank_had_work_of_its_own(test: str, run: Path) -> None:
    """The branch and the others' time-out are told; another branch may be one that all ranks came to."""
    program = program_in(run, f"def prepare(path):\n    if {test}:\n        tokenize(path)\n    barrier()\n")
    job = late()
    stack = [("tokenize", s.SCRIPT, 21), ("prepare", str(program), 3)]
    job.boxes[1].at(7900).signal_seen(15, 99).crash(0, code=0, state=EXIT, python=stack, native=[(s.PYTHON, 0x1000)])
    told = advice(build_report(job.job(run)))
    branch = (
        "program.py:3 in prepare is below `if rank == 1:` (line 2): the others waited for what rank 1 did there until "
    )
    assert told.startswith(f"{branch}their time-out of 6 s.") == ("rank" in test)
    assert told.startswith("Look at train.py:21 in tokenize, where rank 1 was when it was ended") == (
        "rank" not in test
    )


JOIN: list[Frame] = [("Popen.poll", "/usr/lib/python3.11/multiprocessing/popen_fork.py", 27), ("step", s.SCRIPT, 21)]
FEEDER: list[Frame] = [("Queue._finalize_join", "/usr/lib/python3.11/multiprocessing/queues.py", 199)]


@pytest.mark.parametrize("stack, unread", [(FEEDER, True), ([("work", s.SCRIPT, 8)], False)])
def test_late_rank_that_joins_a_child_is_told_what_the_child_waits_for(
    stack: list[Frame], unread: bool, run: Path
) -> None:
    """As where no collective waits; the look-alike's child works."""
    job = late()
    native = [("/usr/lib/libc.so.6", 0x10)]
    job.boxes[1].at(7900).signal_seen(15, 99).crash(0, code=0, state=EXIT, python=JOIN, native=native)
    child = Box(pid=150, ppid=job.boxes[1].pid).at(7900).signal_seen(15, 99)
    job.boxes.append(child.crash(0, code=0, state=EXIT, python=stack, native=native))
    report = build_report(job.job(run))
    assert "waited for a child process at train.py:21 in step" in summary(report)
    assert ("which cannot end before its queue is read" in summary(report)) == unread
    assert ("before join()" in advice(report)) == unread


def test_late_rank_that_goes_on_is_named_with_what_it_did_when_it_was_asked_to_end(run: Path) -> None:
    """Lightning handles SIGTERM and stays."""
    job = late()
    stack: list[Frame] = [("next_shard", s.SCRIPT, 19)]
    job.boxes[1].at(7900).signal_seen(15, 99, handled=True)
    job.boxes[1].crash(0, code=0, state=EXIT, python=stack, native=[(s.PYTHON, 0x1000)])
    loaded = job.job(run)
    rank = next(item for item in loaded.processes if item.rank == 1)
    ending = rank.snapshot.ending
    assert ending is not None
    snapshot = replace(rank.snapshot, ending=None, live=replace(ending, signal=15))
    alive = replace(rank, snapshot=snapshot, status_kind="running", exit_code=None, signal=None)
    processes = tuple(alive if item is rank else item for item in loaded.processes)
    report = build_report(replace(loaded, processes=processes))
    assert verdict(report) == ("missing-rank", 1)
    assert summary(report).endswith("; when it was asked to end, rank 1 was at train.py:19 in next_shard.")


def running(job: Job, seconds: float) -> Job:
    """The job while it runs, as `pytracer digest` in a sidecar sees it after so many seconds."""
    processes = (
        replace(
            item, status_kind="running", exit_code=None, signal=None, exception=None, ended_mono_ns=None,
            running_mono_ns=item.snapshot.created_mono_ns + int(seconds * 1e9),
        )
        for item in job.processes
    )  # fmt: skip
    return replace(job, launcher=None, processes=tuple(processes))


@pytest.mark.parametrize(("seconds", "confidence"), [(20, "possible"), (700, "likely")])
def test_rank_of_a_job_that_runs_may_be_on_its_way(seconds: float, confidence: str, run: Path) -> None:
    """What has not happened so far is no certain cause."""
    job = Ranks(3)
    job.everybody(DONE)
    for rank in (0, 2):
        job.calls(rank, call(state="started"), first=2)
    report = build_report(running(job.job(run), seconds))
    assert verdict(report) == ("missing-rank", 1)
    assert report.verdict is not None and report.verdict.confidence == confidence
    assert summary(report).startswith("Rank 1 has not entered all_reduce") and "have waited " in summary(report)
    assert "pytracer attach" in (report.verdict.advice or "")


def test_late_rank_leads_although_a_helper_was_asked_to_end(run: Path) -> None:
    """Ray's driver ends its services, too: their exit statuses are no causes."""
    job = late()
    job.boxes[1].at(7900).signal_seen(15, 99)
    helper = Box(pid=300, ppid=100, argv=["python", "agent.py"]).at(8100).signal_seen(15, 100, ["driver"], handled=True)
    helper.crash(0, code=0, state=EXIT, python=[("sigterm_handler", "/x/agent.py", 5)], native=[(s.PYTHON, 0x10)]).exit(
        15
    )
    job.boxes.append(helper)
    report = build_report(job.job(run))
    assert verdict(report) == ("missing-rank", 1)
    assert finding(report, "ended-itself") is None


@pytest.mark.parametrize("waits", [True, False])
def test_helper_that_a_time_limit_ended_is_never_certain_while_ranks_wait(waits: bool, run: Path) -> None:
    """Ray's raylet ends its workers without a word. The look-alike: no rank waited for another one."""
    job = Ranks(2)
    job.everybody(DONE)
    if waits:
        job.calls(0, call(state="started"), first=2)
    limit = Box(pid=99, ppid=98, argv=["timeout", "60", "python", "driver.py"]).at(61_000).exit(124)
    helper = Box(pid=300, ppid=100, argv=["python", "log_monitor.py"]).at(60_000)
    helper.signal_seen(15, 99, ["timeout", "60", "python"])
    helper.crash(0, code=0, state=EXIT, python=[("watch", s.SCRIPT, 5)], native=[(s.LIBC, 0x10)])
    write_run(run, *job.boxes, limit, helper)
    report = build_report(load_job(run, symbols=False))
    found = next(item for item in report.findings or [] if "(log_monitor.py) was ended" in (item.summary or ""))
    assert found.confidence == ("likely" if waits else "certain"), found.summary


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("asked", [True, False])
def test_driver_that_aborts_on_its_way_out_is_not_the_cause(asked: bool, again: bool, run: Path) -> None:
    """Ray's, after SIGTERM, which Abseil's handler raises `again`. The look-alike: nobody asked it to end."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, call(state="started"), first=2)
    for box in job.boxes:
        box.at(60_000).signal_seen(15, 99, ["timeout", "60", "python"], handled=True)
    driver = Box(pid=300, ppid=100, argv=["python", "driver.py"]).at(60_000)
    if asked:
        driver.signal_seen(15, 99, ["timeout", "60", "python"], handled=True)
    if again:
        driver.at(60_010).signal_seen(15, 300, ["python", "driver.py"], code=-6, handled=True)
    driver.at(61_000).crash(signal=6, code=-6, sender_pid=300, python=[("shutdown", s.SCRIPT, 5)], native=[(s.LIBC, 1)])
    write_run(run, *job.boxes, driver)
    report = build_report(load_job(run, symbols=False))
    assert (verdict(report) == ("missing-rank", 1)) == asked, summary(report)


@pytest.mark.parametrize("asked", [True, False])
def test_ranks_that_handled_a_request_to_end_and_vanished_are_not_the_cause(asked: bool, run: Path) -> None:
    """SIGKILL follows unseen, as after Lightning's and Ray's handlers. The look-alike: nobody asked them."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, call(state="started"), first=2)
    for box in job.boxes:
        box.at(60_000).mark("waits")
        if asked:
            box.signal_seen(15, 99, ["timeout", "60", "python"], handled=True)
    write_run(run, *job.boxes)
    report = build_report(load_job(run, symbols=False))
    assert (verdict(report) == ("missing-rank", 1)) == asked, summary(report)


@pytest.mark.parametrize("seconds", [60, 4])
def test_collective_that_a_signal_handler_called_is_not_what_the_others_waited_for(seconds: int, run: Path) -> None:
    """Lightning's handler of SIGTERM broadcasts. The look-alike: a job at work that saves what it has when asked to."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, call(state="started"), first=2)
    for box in job.boxes:
        box.at(1000 * seconds).signal_seen(15, 99, ["timeout", "60", "python"], handled=True)
    job.boxes[1].at(1000 * seconds + 10)
    job.calls(1, call("broadcast_", state="started", root=0, line=90), first=2)
    write_run(run, *job.boxes, Box(pid=99, ppid=98, argv=["python", "main.py"]).at(70_000).exit(0))
    report = build_report(load_job(run, symbols=False))
    groups = (report.collectives.groups if report.collectives is not None else None) or []
    if seconds == 60:
        assert verdict(report) == ("missing-rank", 1), summary(report)
        assert groups[0].mismatch is None
    else:
        assert groups[0].mismatch is not None and groups[0].mismatch.field == "op"


@pytest.mark.parametrize(("seconds", "late"), [(60, True), (4, False)], ids=["stood", "at work"])
def test_rank_that_leaves_its_group_when_it_is_asked_to_end_did_not_finish(seconds: int, late: bool, run: Path) -> None:
    """Jupyter interrupts a kernel, whose ranks leave on their way out. The look-alike was about to leave anyway."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, call(state="started"), first=2)
    for box in job.boxes:
        box.at(1000 * seconds).signal_seen(2, 99, ["jupyter"], handled=True)
    job.boxes[1].rank(1, left="destroy_process_group")
    for box in job.boxes:
        box.at(1000 * seconds + 30).signal_seen(15, 99, ["jupyter"])
    job.terminated(0, 1)
    report = build_report(job.job(run, ended_at=1000 * seconds + 50))
    assert ("did not enter" in summary(report)) == late, summary(report)
    assert (verdict(report) == ("missing-rank", 1)) == late


@pytest.mark.parametrize("gone", [False, True])
def test_rank_that_outlived_the_job_is_where_the_job_stood(gone: bool, run: Path) -> None:
    """A time limit ends Ray's driver; its workers go on for a while. The look-alike: one whose end the launcher saw."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, call(state="started"), first=2)
    ended = job.boxes[0].created_ns + 20_000 * MS
    seen = [{"pid": b.pid, "start_ticks": b.start_ticks, "first_mono_ns": 1, "alive_mono_ns": ended} for b in job.boxes]
    if gone:
        seen[1]["gone_mono_ns"] = ended
    witness = {"before": {"mono_ns": 1}, "ended": True, "samples": [{"mono_ns": ended + MS}], "processes": seen}
    driver = Box(pid=100, ppid=99, argv=["python", "main.py"]).at(20_000).signal_seen(15, 98, ["timeout"], handled=True)
    launcher = {"ended_mono_ns": ended + 2 * MS, "exit_code": 1, "witness": witness, "child_pid": 100}
    write_run(run, driver.exit(1), *job.boxes, launcher=launcher)
    loaded = load_job(run, symbols=False)
    assert [item.status_kind for item in loaded.ranks] == ["running", "vanished" if gone else "running"]
    report = build_report(loaded)
    if not gone:
        assert verdict(report) == ("missing-rank", 1)
        assert "Rank 1 did not enter all_reduce" in summary(report)
        assert "rank 0 waited" in summary(report)


def test_thread_that_trains_is_shown_when_the_main_thread_only_waits(run: Path) -> None:
    """Ray Train runs the loop in a thread of its own; a main thread with a line of the program is shown itself."""
    for name, main in (("library", QUEUE), ("program", ("main", SCRIPT, 99))):
        job = Ranks(2)
        job.calls(0, call(state="started"))
        box = job.boxes[1].thread(150, "trains")
        by = box.site(("step", SCRIPT, 40))
        box.collective("allreduce_", group=job.groups[1]["0"], by=by, tid=150, sequence_nr=0, state="completed")
        trains = {box.threads[-1].pthread: [("next_shard", SCRIPT, 19)]}
        box.at(60_000).crash(0, code=0, state=EXIT, python=[main], other_python=trains, native=[(s.PYTHON, 0x10)])
        job.terminated(0, 1)
        report = build_report(job.job(run / name, ended_at=60_000))
        place = "train.py:19 in next_shard" if name == "library" else "train.py:99 in main"
        assert place in summary(report), summary(report)


def test_late_rank_that_raised_is_not_named_with_a_place(run: Path) -> None:
    """The look-alike: its exception came of its peers' end."""
    job = late()
    job.raised(1, CLOSED, at=7900)
    assert "when it ended" not in summary(build_report(job.job(run)))


def test_rank_without_a_box_is_unknown_not_late(run: Path) -> None:
    """Missing data does not prove absence."""
    report = build_report(late().job(run, without=[1]))
    assert verdict(report)[0] != "missing-rank"
    (group,) = (report.collectives.groups if report.collectives else None) or []
    assert (group.missing_ranks, group.unknown_ranks) == ([], [1])


def test_dead_rank_is_missing_as_a_consequence(run: Path) -> None:
    """It died by SIGSEGV: that is the headline."""
    job = late()
    job.boxes[1].at(2000).crash()
    job.endings[1] = {"signal": 11}
    report = build_report(job.job(run))
    assert verdict(report) == ("null-dereference", 1)
    found = finding(report, "collective-missing-rank")
    assert found is not None and "died and never entered" in (found.summary or "")


@pytest.mark.parametrize(("ended", "late"), [(20_000, True), (3_000, False)])
def test_rank_without_any_collective_that_a_time_limit_ended_with_the_others(ended: int, late: bool, run: Path) -> None:
    """It had not come for 18 s. The look-alike was ended long before the others, which then waited for nobody."""
    job = Ranks(2)
    job.boxes[0].at(2_000)
    job.calls(0, call(state="started"))
    for rank, at in ((0, 20_000), (1, ended)):
        box = job.boxes[rank].at(at).signal_seen(15, 90, ["timeout", "20", "python"])
        box.crash(0, code=0, state=EXIT, python=[("wait", s.SCRIPT, 12)], native=[("/usr/lib/libc.so.6", 0x10)])
        job.endings[rank] = {"signal": 15}
    found = finding(build_report(job.job(run, ended_at=20_100)), "collective-missing-rank")
    assert found is not None
    assert ("Rank 1 did not enter" in (found.summary or "")) == late
    assert ("Rank 1 died and never entered" in (found.summary or "")) != late


def test_rank_that_came_in_the_end_is_not_missing(run: Path) -> None:
    """Late, but in time."""
    job = Ranks(3)
    job.everybody(DONE, DONE)
    job.done(0, 1, 2)
    report = build_report(job.job(run))
    assert (verdict(report), report.findings) == (("clean", None), [])


# Calls that matched, and should not have


def paired(run: Path, *, line: int = 41, steps: tuple[int, int] = (1, 1), first_line: int = 40) -> str:
    """The evidence, when rank 1 called the third one from `line`, in its own step; the fourth differs in size."""
    job = Ranks(2)
    for rank, step in enumerate(steps):
        job.calls(rank, call(line=first_line if rank else 40))
        job.boxes[rank].at(100).step(1)
        job.calls(rank, DONE, first=2)
        job.boxes[rank].at(200).step(step)
        job.calls(rank, call(line=line if rank else 40), first=3)
    job.calls(0, call(state="failed"), first=4)
    job.calls(1, call("allreduce_", 9, state="failed", line=50), first=4)
    for rank in (0, 1):
        job.raised(rank)
    found = finding(build_report(job.job(run)), "collective-mismatch")
    assert found is not None
    return "\n".join(line for line in found.evidence or [] if "had matched although" in line)


def test_matched_calls_of_other_lines_are_told(run: Path) -> None:
    """Before the visible mismatch, the backend added what was not meant to be added."""
    assert paired(run) == (
        "all_reduce #3 of the default group had matched although rank 0 called it at train.py:40 in step and rank 1 at "
        "train.py:41 in step"
    )


def test_matched_calls_of_other_steps_are_told(run: Path) -> None:
    """The same line in another step."""
    assert "although rank 0 was in step 1 and rank 1 in step 2 at train.py:40" in paired(run, line=40, steps=(1, 2))


def test_matched_calls_that_are_alike_tell_nothing(run: Path) -> None:
    """Lines and steps agree until the mismatch."""
    assert paired(run, line=40) == ""


def test_ranks_that_run_other_code_from_the_beginning_tell_nothing(run: Path) -> None:
    """Rank 0 of a pipeline has lines of its own."""
    assert paired(run, first_line=90) == ""


# unrecorded-ranks


@pytest.mark.parametrize("silent", [False, True])
def test_ranks_without_a_recording_are_named_when_all_others_only_noticed(silent: bool, run: Path) -> None:
    """A node that went down took its recordings along."""
    job = Ranks(6)
    job.everybody(DONE, OPEN)
    for rank in (0, 1, 4, 5):
        job.raised(rank, TIME_OUT if silent else CLOSED)
    report = build_report(job.job(run, without=(2, 3)))
    assert verdict(report) == ("unknown", None)
    did = "ended or stood still" if silent else "ended"
    assert summary(report).startswith(f"Ranks 2 and 3 probably {did} first: they are in no recording, and the 4 ranks")
    assert report.verdict is not None and "ranks 2 and 3" in (report.verdict.advice or "")


def test_own_fault_leads_although_ranks_were_not_recorded(run: Path) -> None:
    job = Ranks(3)
    job.everybody(DONE, OPEN)
    job.raised(1, CLOSED)
    job.boxes[0].at(2000).crash()
    job.endings[0] = {"signal": 11}
    report = build_report(job.job(run, without=(2,)))
    assert verdict(report) == ("null-dereference", 0)
    assert finding(report, "unrecorded-ranks") is None


@pytest.mark.parametrize("later", [False, True])
def test_rank_that_went_on_with_the_result_of_a_mismatch_is_its_consequence(later: bool, run: Path) -> None:
    """gloo completed the call on one rank and aborted the other one; after a further call its error is its own."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, call("allgather_", sizes=[12], nbytes=48), first=2)
    job.calls(1, call("allgather_", sizes=[10], nbytes=40, state="started"), first=2)
    if later:
        job.calls(0, DONE, first=3)
    job.raised(0, "operands could not be broadcast together", at=5990, type_name="ValueError")
    job.aborted(1)
    assert verdict(build_report(job.job(run)))[0] == ("python-exception" if later else "collective-mismatch")


COMPARED = "Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(...)"


@pytest.mark.parametrize(
    ("message", "first"),
    [(COMPARED, "collective-mismatch"), (f"assertion failed; see: {COMPARED}", "python-exception")],
)
def test_comparison_by_torch_itself_is_a_symptom_of_the_mismatch(message: str, first: str, run: Path) -> None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL raises on all ranks; the look-alike only quotes it."""
    job = Ranks(2)
    job.everybody(DONE)
    for rank, size in ((0, 80), (1, 79)):
        job.calls(rank, call("_allgather_base_", sizes=[size], nbytes=4 * size, state="failed"), first=2)
        job.raised(rank, message)
    assert verdict(build_report(job.job(run)))[0] == first


# uneven-inputs


def test_rank_that_left_before_its_first_collective_gets_no_advice_about_batches(run: Path) -> None:
    """It never trained: an early return, or a branch on the rank."""
    job = Ranks(2)
    job.calls(0, call(state="started"))
    job.raised(0)
    job.done(1)
    report = build_report(job.job(run))
    assert verdict(report) == ("missing-rank", 1)
    assert "Rank 1 finished before its first collective and left" in summary(report)
    assert report.verdict is not None and "batches" not in (report.verdict.advice or "")
    assert "early return" in (report.verdict.advice or "")


@pytest.mark.parametrize(("function", "named"), [("train", True), ("<module>", False)])
def test_rank_that_left_by_sys_exit_is_named_with_its_line(function: str, named: bool, run: Path) -> None:
    """The end of a program, `sys.exit(main())`, is no place that says why."""
    job = Ranks(2)
    job.calls(0, call(state="started"))
    job.raised(0)
    job.boxes[1].exit_request(0, [(function, SCRIPT, 16), ("<module>", SCRIPT, 30)])
    job.done(1)
    assert ("and left by SystemExit at train.py:16 in train, while" in summary(build_report(job.job(run)))) == named


def test_rank_that_left_early_is_named_with_join(run: Path) -> None:
    """It ended with status 0 while others waited."""
    job = Ranks(3)
    job.everybody(DONE, DONE)
    for rank in (0, 2):
        job.calls(rank, OPEN, first=3)
        job.raised(rank, CLOSED)
    job.done(1)
    report = build_report(job.job(run))
    assert verdict(report) == ("missing-rank", 1)
    assert "finished after 2 collectives and left" in summary(report)
    assert "join()" in (report.verdict.advice or "" if report.verdict else "")


def test_rank_that_leaves_when_nobody_waits_is_fine(run: Path) -> None:
    """The root of a broadcast may be done first."""
    job = Ranks(2)
    job.calls(0, call("broadcast_", root=0))
    job.done(0, 1)
    report = build_report(job.job(run))
    assert (verdict(report), report.findings) == (("clean", None), [])


@pytest.mark.parametrize("asked", [True, False])
def test_rank_that_left_because_it_was_asked_to_is_told_as_that(run: Path, asked: bool) -> None:
    """A handler that sets a flag ends one rank only. Asked after the others had failed, it is no reason."""
    job = Ranks(2)
    job.everybody(DONE, DONE)
    job.boxes[1].at(3000 if asked else 7500).signal_seen(15, 77, ["sh"], handled=True)
    job.calls(0, OPEN, first=3)
    job.raised(0, CLOSED)
    job.done(1, at=4000 if asked else 7600)
    report = build_report(job.job(run))
    assert verdict(report) == ("missing-rank", 1)
    assert ("after SIGTERM, sent by process 77 (sh)" in summary(report)) == asked
    assert ("asked it to" in advice(report)) == asked


# what to do where ranks are at different lines


def apart(run: Path, first: int, second: int, rounds: tuple[int, int] = (3, 4), both: bool = False) -> str:
    """The advice: rank 0 calls all_reduce from line `second` when rank 1 is in one more from line `first`."""
    job = Ranks(2)
    before = [call("broadcast_", root=0, line=first)] * rounds[0]
    if both:
        before = [call(line=second), *before]
    job.everybody(*before)
    job.calls(0, call(state="failed", line=second), first=len(before) + 1)
    job.calls(1, call("broadcast_", root=0, state="failed", line=first), first=len(before) + 1)
    for rank in (0, 1):
        job.raised(rank)
    return advice(build_report(job.job(run)))


def test_rounds_of_a_loop_are_counted_for_both_ranks(run: Path) -> None:
    """One rank may have more of them, or the other line lies in a branch: both are named."""
    said = apart(run, 40, 48)
    assert "train.py:40 in step had called collectives 3 times on rank 0 and 4 times so far on rank 1" in said
    assert "If rank 0 alone comes to train.py:48 in step" in said
    assert "DistributedDataParallel" not in said


def test_line_that_both_ranks_had_reached_is_no_branch_on_the_rank(run: Path) -> None:
    """One of them skipped it this time: an early return."""
    said = apart(run, 40, 48, both=True)
    assert "train.py:48 in step had called collectives 2 times so far on rank 0 and 1 time on rank 1" in said
    assert "see whether rank 1 skips it" in said


def test_lines_that_are_each_one_rank_s_own_are_a_branch(run: Path) -> None:
    """Nothing to count."""
    assert apart(run, 40, 48, rounds=(0, 0)).startswith(
        "Compare the two lines: what led the ranks to different calls is not recorded"
    )


@pytest.mark.parametrize("threads", [True, False])
def test_threads_that_share_a_group_are_told(threads: bool, run: Path) -> None:
    """Each rank calls both lines, one of them from a thread of its own: the order is chance, no rank skips anything."""
    job = Ranks(2)
    job.everybody(DONE)
    for rank, lines in enumerate([(44, 48), (48, 44)]):
        for number, line in enumerate(lines, 2):
            tid = {"tid": 777} if threads and line == 48 else {}
            op = call("broadcast_", state="failed", line=line, root=0, **tid) if line == 48 else None
            job.calls(rank, op or call(state="failed", line=line), first=number)
        job.raised(rank)
    said = advice(build_report(job.job(run)))
    assert ("run in two threads of each rank" in said) == threads


def below_source(run: Path, source: str, function: str, number: int) -> str:
    """The advice where rank 0 came to its all_reduce by a line of this program, and rank 1 is in a broadcast."""
    program = program_in(run, source)
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, call(state="failed", line=44), first=2)
    job.calls(1, call("broadcast_", root=0, state="failed", line=48), first=2)
    torchs = ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252)
    stack = [torchs, ("step", SCRIPT, 44), (function, str(program), number)]
    job.boxes[0].at(7000).exception("RuntimeError", TIME_OUT, stack).exit(1)
    job.endings[0] = {"exit_code": 1}
    job.raised(1)
    return advice(build_report(job.job(run)))


@pytest.mark.parametrize("test", ["rank == 0", "is_main_process()", "epoch % 2 == 0"])
def test_branch_on_the_rank_is_named_by_its_line(run: Path, test: str) -> None:
    """By the source of the lines that led to the call; another condition may only have come out differently."""
    said = below_source(run, f"def fit():\n    if {test}:\n        reduce()\n", "fit", 3)
    assert said.startswith(f"program.py:3 in fit is below `if {test}:` (line 2), ")
    assert ("so that only some ranks call what communicates there" in said) == ("epoch" not in test)
    assert ("and rank 1 never called the all_reduce of train.py:44: see whether that came" in said) == ("epoch" in test)


@pytest.mark.parametrize("test", ["rank != 0", "not batches"])
def test_return_of_other_ranks_before_the_call_is_named(run: Path, test: str) -> None:
    """A rank that returns early decides as much as a branch around the line; by data it may be any of several."""
    said = below_source(run, f"def save():\n    if {test}:\n        return\n    reduce()\n", "save", 4)
    assert ("program.py:4 in save comes after `if rank != 0:` (line 2, which leaves), " in said) == ("rank" in test)


@pytest.mark.parametrize("op", ["_reduce_scatter_base_", "allreduce_"])
def test_sizes_of_a_sharded_layer_speak_of_parameters_that_only_one_rank_used(run: Path, op: str) -> None:
    """FSDP reduces what has a gradient."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, call(op, 8, state="failed", line=44), first=2)
    job.calls(1, call(op, 12, state="failed", line=44), first=2)
    for rank in (0, 1):
        job.raised(rank)
    said = advice(build_report(job.job(run)))
    assert ("communicated for different parameters" in said) == (op != "allreduce_")


# collective-wait


def test_chain_over_two_groups_blames_its_end(run: Path) -> None:
    """Ranks 0 and 1 wait for rank 2, which waits for rank 3 in another group."""
    job = Ranks(4)
    job.group("1", [0, 1, 2], "stage")
    job.group("2", [2, 3], "pair")
    job.everybody(DONE)
    job.calls(0, OPEN, group="1")
    job.calls(1, OPEN, group="1")
    job.calls(2, OPEN, group="2")
    for rank in (0, 1, 2):
        job.raised(rank, at=7000 + rank)
    job.terminated(3)
    report = build_report(job.job(run))
    assert verdict(report) == ("missing-rank", 3)
    found = finding(report, "collective-wait")
    assert found is not None and found.ranks == [3]


def test_one_wait_is_no_chain(run: Path) -> None:
    """The finding about the missing rank covers it."""
    assert finding(build_report(late().job(run)), "collective-wait") is None


@pytest.mark.parametrize(("seconds", "confidence"), [(2, "possible"), (60, "likely")])
def test_circle_of_a_job_that_runs_is_not_certain(seconds: float, confidence: str, run: Path) -> None:
    """Its recordings were read one after another."""
    job = Ranks(2)
    job.group("1", [0, 1], "one")
    job.group("2", [0, 1], "other")
    job.everybody(DONE)
    job.calls(0, call(state="started"), group="1")
    job.calls(1, call(state="started"), group="2")
    report = build_report(running(job.job(run), seconds))
    assert verdict(report)[0] == "hang"
    assert report.verdict is not None and report.verdict.confidence == confidence


# point-to-point-unmatched


@pytest.mark.parametrize(("seconds", "confidence"), [(2, "possible"), (60, "likely")])
def test_circle_of_receives_of_a_job_that_runs_is_not_certain(seconds: float, confidence: str, run: Path) -> None:
    """A message may be on its way."""
    job = Ranks(2)
    job.everybody(DONE)
    for rank in range(2):
        job.calls(rank, call("recv_", state="started", peer=1 - rank, tag=0, flags=1))
    report = build_report(running(job.job(run), seconds))
    assert verdict(report)[0] == "hang"
    assert report.verdict is not None and report.verdict.confidence == confidence


def test_circle_of_receives_is_printed(run: Path) -> None:
    """Each rank waits for the next one."""
    job = Ranks(3)
    job.everybody(DONE)
    for rank in range(3):
        job.calls(rank, call("recv_", state="started", peer=(rank + 1) % 3, tag=0, flags=1))
        job.raised(rank, at=7000 + rank)
    report = build_report(job.job(run))
    assert verdict(report) == ("hang", None)
    assert "(0 -> 1 -> 2 -> 0)" in summary(report)


def test_different_tags_are_named(run: Path) -> None:
    """The messages never meet."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, call("send", state="started", peer=1, tag=1, flags=1))
    job.calls(1, call("recv_", state="started", peer=0, tag=2, flags=1))
    job.raised(0)
    job.raised(1, at=7001)
    report = build_report(job.job(run))
    assert verdict(report) == ("collective-mismatch", None)
    assert "Rank 0 sends with tag 1 at train.py:40 in step, and rank 1 receives with tag 2 at" in summary(report)


@pytest.mark.parametrize(
    ("received", "state", "unequal"), [(2, "failed", True), (4, "failed", False), (2, "completed", False)]
)
def test_message_of_another_size_than_its_receiver_asks_for_is_named(
    received: int, state: str, unequal: bool, run: Path
) -> None:
    """gloo aborts the receiver. The look-alikes: equal sizes, and a receive that completed all the same."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, call("send", 4, peer=1, tag=0, flags=1, line=44))
    job.calls(1, call("recv_", received, state=state, peer=0, tag=0, flags=1, line=48))
    job.aborted(1)
    job.raised(0, at=7001)
    report = build_report(job.job(run))
    words = "rank 0 sent 4 elements [4] of float32 at train.py:44 in step; rank 1 receives 2 elements [2]"
    assert (words in summary(report)) == unequal
    if unequal:
        assert verdict(report) == ("collective-mismatch", None)


@pytest.mark.parametrize(
    ("size", "line", "tag", "crossed"), [(2, 45, 0, True), (3, 45, 0, False), (2, 44, 0, False), (2, 45, 1, False)]
)
def test_message_that_is_received_before_the_one_sent_first(
    size: int, line: int, tag: int, crossed: bool, run: Path
) -> None:
    """The look-alikes: a message of a third size, one of the same line in the next round, and one of another tag."""
    job = Ranks(2)
    job.everybody(DONE)
    later = call("send", size, state="failed", peer=1, tag=tag, flags=1, line=line)
    job.calls(0, call("send", 4, peer=1, tag=0, flags=1, line=44), later)
    job.calls(1, call("recv_", 2, state="failed", peer=0, tag=0, flags=1, line=48))
    job.aborted(1)
    job.raised(0, at=7001)
    report = build_report(job.job(run))
    words = "what rank 1 receives there is of the size that rank 0 sends next, at line 45"
    assert (words in summary(report)) is crossed
    assert ("Exchange the two lines on one side" in advice(report)) is crossed


def test_matched_messages_in_another_order_of_tags_are_fine(run: Path) -> None:
    """Tags may be received in any order."""
    job = Ranks(2)
    job.calls(0, *(call("send", peer=1, tag=tag, flags=1) for tag in (1, 2)))
    job.calls(1, *(call("recv_", peer=0, tag=tag, flags=1) for tag in (2, 1)))
    job.done(0, 1)
    report = build_report(job.job(run))
    assert (verdict(report), report.findings) == (("clean", None), [])


@pytest.mark.parametrize(
    ("text", "late_ms", "hung"),
    [(CLOSED, 3, True), (CLOSED, 400, True), ("tensor is not contiguous", 400, False)],
    ids=["at once", "seen late", "another error"],
)
def test_message_that_failed_has_not_completed(text: str, late_ms: int, hung: bool, run: Path) -> None:
    """gloo's receive ends before it throws, and a busy machine sees the exception late: rank 0 had sent one less.

    The look-alike: what was raised long after the receive is none of gloo's.
    """
    job = Ranks(2)
    job.everybody(DONE)
    message: dict[str, Any] = {"tag": 0, "flags": 1}
    job.calls(0, *(call("send", peer=1, line=37, **message) for _ in range(2)))
    job.calls(0, call(state="failed", line=59), first=2)
    box = job.calls(1, *(call("recv_", peer=0, line=34, **message) for _ in range(3)))
    frames = [("recv", f"{TORCH}/distributed/distributed_c10d.py", 2799), ("run", SCRIPT, 34)]
    box.now += late_ms * MS
    box.exception("RuntimeError", text, frames).exit(1)
    job.endings[1] = {"exit_code": 1}
    job.raised(0, at=7000)
    report = build_report(job.job(run))
    waits = "rank 1 waits in recv from rank 0 (train.py:34 in step): message 3, rank 0 had sent 2"
    assert (waits in summary(report)) is hung
    assert ("recv #3 failed" in render_text(report)) is hung


def test_rank_beside_a_circle_did_not_wait_in_it(run: Path) -> None:
    """Rank 2 waits for rank 1, which waits for rank 0, which waits for both."""
    job = Ranks(3)
    job.everybody(DONE)
    job.calls(0, OPEN, first=2)
    for rank in (1, 2):
        job.calls(rank, call("recv_", state="failed", peer=rank - 1, tag=0, flags=1))
    for rank in range(3):
        job.raised(rank, at=7002 - rank)
    whys = {item.rank: item.why for item in build_report(job.job(run)).processes or [] if item.role == "rank"}
    assert whys[0] == "waited in a cycle" and whys[2] == "ranks 0 and 1 waited in a cycle"


@pytest.mark.parametrize("later", ["called", "failed"])
def test_message_before_another_operation_has_completed(later: str, run: Path) -> None:
    """The error is of what rank 1 called afterwards, or of an all-reduce that was under way."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, call("send", peer=1, tag=0, flags=1))
    failed = call(state="failed", line=50)
    box = job.calls(1, *([failed] if later == "failed" else []), first=2)
    job.calls(1, call("recv_", peer=0, tag=0, flags=1, line=34))
    job.calls(1, *([failed] if later == "called" else []), first=2)
    box.now += 400 * MS
    box.exception("RuntimeError", CLOSED, [("step", SCRIPT, 51)]).exit(1)
    job.endings[1] = {"exit_code": 1}
    job.raised(0, at=7000)
    read = job.job(run)
    (rank,) = [process for process in read.ranks if process.rank == 1]
    (receive,) = [item for item in rank.snapshot.collectives if item.point_to_point]
    assert state_of(rank, receive) == "completed"


# group-mismatch


def test_groups_in_another_order_name_the_odd_rank(run: Path) -> None:
    """Rank 1 makes the second group first."""
    job = Ranks(3)
    for only, groups in (([0, 2], ([0, 1], [1, 2])), ([1], ([1, 2], [0, 1]))):
        for number, ranks in enumerate(groups, 1):
            job.group(str(number), ranks, only=only)
    job.everybody(DONE)
    for rank in range(3):
        job.raised(rank, "wait timeout after 6000ms, keys: /default_pg/0//2//cpu//0/0", at=7000 + rank)
    report = build_report(job.job(run))
    assert verdict(report) == ("collective-mismatch", 1)
    assert "in another order" in summary(report)


def test_groups_that_differ_name_the_lines_that_made_them(run: Path) -> None:
    """A group that only rank 0 makes shifts the next one, which the others make at another line."""
    job = Ranks(3)
    job.group("1", [0], only=[0], line=10)
    job.group("2", [0, 1, 2], line=11)
    job.everybody(DONE)
    for rank in range(3):
        job.raised(rank, "wait timeout after 6000ms, keys: /default_pg/0//2//cpu//0/0", at=7000 + rank)
    report = build_report(job.job(run))
    assert verdict(report) == ("collective-mismatch", 0)
    assert "[0] at train.py:10 in setup where ranks 1 and 2 made [0, 1, 2] at train.py:11 in setup" in summary(report)


@pytest.mark.parametrize(("seconds", "leads"), [(20, True), (3, False)], ids=["stood", "ended soon"])
def test_wait_for_others_to_make_a_group_is_the_cause_of_a_job_that_stood(seconds: int, leads: bool, run: Path) -> None:
    """Rank 1 makes no group that rank 0 waits in; who ends a job at once had another reason."""
    job = Ranks(2)
    job.group("1", [0], only=[0])
    for box, ranks in zip(job.boxes, ([0, 1], [0, 1]), strict=True):
        box.at(1000)._json(37, {"begun": True, "ranks": ranks, "description": None})
        box.at((1 + seconds) * 1000).signal_seen(15, 100, ["torchrun"])
    job.terminated(0, 1)
    report = build_report(job.job(run, ended_at=(1 + seconds) * 1000))
    assert verdict(report)[0] == ("collective-mismatch" if leads else "external-kill")
    assert finding(report, "group-mismatch") is not None


def test_different_groups_of_the_same_list_are_fine(run: Path) -> None:
    """Non-members take part without a name."""
    job = Ranks(3)
    job.group("1", [0, 1])
    job.group("2", [1, 2])
    job.everybody(DONE)
    job.done(0, 1, 2)
    report = build_report(job.job(run))
    assert (verdict(report), report.findings) == (("clean", None), [])


# watchdog-abort, connection-lost


def test_watchdog_is_a_follower(run: Path) -> None:
    """NCCL's watchdog aborts the rank that waited; rank 1 is the one that did not enter."""
    job = Ranks(3)
    job.everybody(DONE)
    for rank in (0, 2):
        box = job.calls(rank, call(state="started"), first=2).at(7000 + rank)
        what = "[PG 0 Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE)"
        box.cpp_exception("c10::DistBackendError", what).crash(signal=6, code=-6, sender_pid=box.pid)
        job.endings[rank] = {"signal": 6}
    job.terminated(1)
    report = build_report(job.job(run))
    found = finding(report, "watchdog-abort")
    assert found is not None and found.ranks == [0, 2]
    assert verdict(report) == ("missing-rank", 1)


def test_abort_of_its_own_is_no_watchdog(run: Path) -> None:
    """SIGABRT alone is not enough."""
    job = Ranks(2)
    job.everybody(DONE)
    job.boxes[0].at(3000).crash(signal=6, code=-6, sender_pid=job.boxes[0].pid)
    job.endings[0] = {"signal": 6}
    job.terminated(1)
    report = build_report(job.job(run))
    assert finding(report, "watchdog-abort") is None and verdict(report) == ("abort", 0)


def test_lost_connections_accompany_the_verdict(run: Path) -> None:
    """A time-out means a silent peer."""
    found = finding(build_report(late().job(run)), "connection-lost")
    assert found is not None and found.ranks == [0, 2]
    assert found.summary == "Ranks 0 and 2 noticed that a peer was silent (timed out): consequences."


def test_exception_about_something_else_is_no_lost_connection(run: Path) -> None:
    """A ValueError is the cause."""
    job = Ranks(2)
    job.everybody(DONE)
    job.raised(1, "shard 3 has 0 rows", type_name="ValueError", at=3000)
    job.terminated(0)
    report = build_report(job.job(run))
    assert finding(report, "connection-lost") is None and verdict(report) == ("python-exception", 1)


SAVE: list[Frame] = [("broadcast", f"{TORCH}/distributed/distributed_c10d.py", 3151), ("step", SCRIPT, 14)]
VALUE_ERROR = {
    "type": "ValueError",
    "message": "dimensions differ",
    "python_stack": [{"function": "train", "file": SCRIPT, "line": 21}],
}


def saves(run: Path, context: list[dict[str, Any]], stack: Sequence[Frame] = SAVE) -> Report:
    """Rank 1 calls broadcast at line 14, while rank 0 is in all_reduce; both give up."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, call(state="failed", line=22), first=2)
    job.calls(1, call("broadcast_", state="failed", root=0, line=14), first=2)
    job.raised(0, at=7001)
    job.boxes[1].at(7000).exception("RuntimeError", TIME_OUT, stack, context=context).exit(1)
    job.endings[1] = {"exit_code": 1}
    return build_report(job.job(run))


def test_exception_that_was_being_handled_is_why_a_rank_called_another_collective(run: Path) -> None:
    """`except: save()` communicates, and the other rank goes on."""
    report = saves(run, [VALUE_ERROR])
    assert verdict(report) == ("collective-mismatch", 1)
    assert summary(report).endswith(", where it was handling ValueError: dimensions differ at train.py:21 in train.")
    assert "except or finally" in advice(report)


@pytest.mark.parametrize(
    "context",
    [
        [],
        [{**VALUE_ERROR, "python_stack": [{"function": "f", "file": f"{TORCH}/utils/x.py", "line": 2}]}],
        [{**VALUE_ERROR, "type": "RuntimeError", "message": TIME_OUT}],
    ],
    ids=["none", "a library's own", "a time-out"],
)
def test_exception_that_is_no_reason_is_not_named(context: list[dict[str, Any]], run: Path) -> None:
    """The look-alikes: nothing was handled; a library had caught it for itself; it was a time-out, too."""
    report = saves(run, context)
    assert verdict(report)[0] == "collective-mismatch"
    assert "handling" not in summary(report)


def test_exception_handled_at_another_line_is_not_why_the_call_was_made(run: Path) -> None:
    """The look-alike: the call that failed is not the one that differs."""
    report = saves(run, [VALUE_ERROR], [SAVE[0], ("close", SCRIPT, 90)])
    assert "handling" not in summary(report)


def test_exception_handled_in_a_call_that_stood_until_the_end_is_why_it_was_made(run: Path) -> None:
    """No call failed: a time limit, or NCCL's watchdog, ended the ranks."""
    report = build_report(stood(run, [SAVE[1]]))
    assert summary(report).endswith(", where it was handling ValueError: dimensions differ at train.py:21 in train.")


def test_exception_handled_beside_the_call_is_not_why_it_was_made(run: Path) -> None:
    """The look-alike: no thread was in that call any more."""
    assert "handling" not in summary(build_report(stood(run, [("close", SCRIPT, 90)])))


def stood(run: Path, stack: Sequence[Frame]) -> Job:
    """As `saves`, and SIGTERM ends both; rank 1 is below `stack` then."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, call(state="started", line=22), first=2)
    job.calls(1, call("broadcast_", state="started", root=0, line=14), first=2)
    job.terminated(0, 1)
    job.boxes[1].at(60_000).crash(0, code=0, state=6, python=stack, native=[("/usr/lib/libc.so.6", 0x10)])
    return handling(job.job(run, ended_at=60_000))


def test_absent_rank_that_handled_an_exception_names_it(run: Path) -> None:
    """`except: upload_logs()` takes longer than the others' time-out."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, OPEN, first=2)
    job.raised(0, at=7000)
    job.terminated(1)
    job.boxes[1].crash(0, code=0, state=6, python=[("upload", SCRIPT, 41)], native=[("/usr/lib/libc.so.6", 0x10)])
    report = build_report(handling(job.job(run)))
    assert verdict(report) == ("missing-rank", 1)
    assert summary(report).endswith(
        "rank 1 was at train.py:41 in upload, handling ValueError: dimensions differ at train.py:21 in train."
    )
    assert advice(report).startswith("Look at ValueError: dimensions differ at train.py:21 in train first: rank 1 was ")
    assert "handling it at train.py:41 in upload when the others gave up." in advice(report)
    assert "a larger timeout= only if it passes by itself" in advice(report)


def handling(job: Job) -> Job:
    """Whoever was ended from outside was handling a ValueError."""
    error = HandledException("ValueError", "dimensions differ", (PythonFrame("train", SCRIPT, 21),))
    processes = [
        replace(item, snapshot=replace(item.snapshot, ending=replace(item.snapshot.ending, handled=error)))
        if item.snapshot.ending is not None
        else item
        for item in job.processes
    ]
    return replace(job, processes=tuple(processes))


@pytest.mark.parametrize(
    ("seconds", "killer", "hang"),
    [(60, 99, True), (4, 99, False), (60, 300, False)],
    ids=["stood", "at work", "killed by another"],
)
def test_ranks_that_stood_and_are_finished_off_by_who_asked_them_to_end(
    seconds: int, killer: int, hang: bool, run: Path
) -> None:
    """`timeout -k 20`: SIGTERM, which Lightning handles, then SIGKILL. Look-alikes: a job at work; another killer."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, call(state="started"), first=2)
    for box in job.boxes:
        box.at(1000 * seconds).signal_seen(15, 99, ["timeout", "-k", "20", "60", "python"], handled=True)
    job.boxes[1].at(1000 * seconds + 10)
    job.calls(1, call("broadcast_", state="started", root=0, line=90), first=2)
    limit = Box(pid=99, ppid=98, argv=["timeout", "-k", "20", "60", "python"]).at(1000 * seconds + 20_000)
    for box in job.boxes:
        limit.wait(box.pid, signal=9)
    other = Box(pid=300, ppid=1, argv=["sh"]).at(1000 * seconds + 30_000).mark("lives")
    write_run(run, *job.boxes, limit.exit(137), other)
    loaded = load_job(run, symbols=False)
    note = {process.snapshot.pid: killed(process, loaded) for process in loaded.processes if process.rank is not None}
    processes = tuple(
        replace(item, snapshot=replace(item.snapshot, sends=tuple(note.values())))
        if item.snapshot.pid == killer
        else item
        for item in loaded.processes
    )
    report = build_report(replace(loaded, processes=processes))
    assert (verdict(report) == ("missing-rank", 1)) == hang, summary(report)
    if hang:
        assert summary(report).startswith("Rank 1 did not enter all_reduce")


def killed(process: Process, job: Job) -> SignalSend:
    """SIGKILL to one process, just before it ended."""
    ended = process.ended_mono_ns
    assert ended is not None, job
    return SignalSend(
        signal=9, target=process.snapshot.pid, to_group=False, result=0, target_ticks=process.snapshot.start_ticks,
        target_state="S", tid=1, mono_ns=ended - 10_000_000, stack=(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("other", "waited_ms", "leads"),
    [
        (call("broadcast_", state="started", root=0, line=14), 3000, True),
        (call("broadcast_", state="started", root=0, line=14), 300, False),
        (call(state="started", sizes=[8], nbytes=32, line=14), 3000, False),
    ],
    ids=["another operation", "only now", "another size"],
)
def test_ranks_that_all_stand_in_different_operations_need_not_have_stood_for_long(
    other: dict[str, Any], waited_ms: int, leads: bool, run: Path
) -> None:
    """They never meet. Look-alikes: ended at once; sizes, of which torch may tell in time."""
    job = Ranks(2)
    job.everybody(DONE)
    job.calls(0, call(state="started", line=22), first=2)
    job.calls(1, other, first=2)
    begun = max(box.now - box.created_ns for box in job.boxes) // MS
    job.terminated(0, 1)
    report = build_report(job.job(run, ended_at=begun + waited_ms))
    assert (verdict(report)[0] == "collective-mismatch") == leads, summary(report)
