"""rendezvous-mismatch: calls of init_process_group() that cannot meet, and look-alikes that can."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.job.merge import load_job
from pytracer.report.job import Report
from tests.support.deaths import advice, finding, summary, verdict
from tests.support.scenarios import agent
from tests.support.standing import ended, stopped
from tests.support.synth import Box, write_run

RULE = "rendezvous-mismatch"
LOST = "wait timeout after 6000ms, keys: /default_pg/0//cpu//0/0"
STORE_ERROR = "torch.distributed.DistStoreError"
STACK = [("setup", "/home/user/train.py", 10)]


def rank_of(number: int, *, met: bool = False, error: str | None = LOST, **values: Any) -> Box:
    """A process whose call of init_process_group() timed out, or returned."""
    host = values.pop("host", "node0")
    box = Box(pid=101 + number, ppid=100, host=host, boot_id=f"b0075f00-0000-4000-8000-{host:0>12.12}")
    rank, size = values.pop("rank", number), values.pop("world_size", 3)
    box.at(10).rendezvous(rank, size, **values)
    if met:
        box.at(20).rank(rank, size)
    if error is not None:
        box.at(6000 + number).exception(STORE_ERROR, error, STACK).exit(1)
    return box


def report_of(run: Path, *boxes: Box) -> Report:
    here = [(box.pid, {"exit_code": int(box.exit_code)}) for box in boxes if box.host == "node0"]
    write_run(run, agent(*here, at=8000, code=1), *boxes)
    return build_report(load_job(run, symbols=False))


def _missing(report: Report) -> str:
    found = finding(report, "rendezvous-mismatch")
    assert found is not None
    return " ".join(found.missing or [])


def test_port_of_one_rank_is_named(run: Path) -> None:
    """The rank, the variable, both values, and the line that called."""
    report = report_of(run, rank_of(0), rank_of(1), rank_of(2, master_port=29501))
    assert verdict(report) == ("misuse", "certain")
    assert report.verdict is not None and report.verdict.rank == 2
    assert summary(report) == (
        "Rank 2 called init_process_group() at train.py:10 in setup with MASTER_PORT=29501, ranks 0 and 1 with 29500."
    )
    assert "same MASTER_PORT" in advice(report)


@pytest.mark.parametrize(("passed", "ranks"), [(["rank"], "01"), ([], "01"), (["rank"], "00")])
def test_rank_that_the_program_passes_in_place_of_its_launchers(passed: list[str], ranks: str, run: Path) -> None:
    """The look-alikes: the environment itself had one rank twice."""
    script = run / "train.py"
    script.write_text("def setup(args):\n    dist.init_process_group('gloo', rank=args.local_rank)\n")
    os.utime(script, (0, 0))  # older than the process
    caller = {"function": "setup", "file": str(script), "line": 2}
    boxes = []
    for number, started in enumerate(ranks):
        box = Box(pid=101 + number, ppid=100, environment={"RANK": started})
        box.at(10).rendezvous(0, 2, passed=passed, caller=caller)
        boxes.append(box.at(6000 + number).exception(STORE_ERROR, LOST, [("setup", str(script), 2)]).exit(1))
    report = report_of(run, *boxes)
    assert verdict(report) == ("misuse", "certain")
    said = (
        "Leave out `rank=args.local_rank` (line 2): it is 0 in each of these processes, and replaces RANK, which their"
    )
    assert (said in advice(report)) == (passed == ["rank"] and ranks == "01")


def test_two_ranks_with_two_ports_are_undecided(run: Path) -> None:
    """No majority: both values are shown and nobody is blamed."""
    boxes = [rank_of(0, world_size=2), rank_of(1, world_size=2, master_port=29501)]
    report = report_of(run, *boxes)
    assert report.verdict is not None and report.verdict.rank is None
    assert summary(report) == (
        "Ranks waited for each other in init_process_group() at train.py:10 in setup with different values, "
        "rank 0 with MASTER_PORT=29500; rank 1 with MASTER_PORT=29501."
    )
    assert "undecidable" in _missing(report)


@pytest.mark.parametrize(
    ("head", "sets", "started", "each"),
    [
        ("", "str(free_port())", None, True),
        ("", "str(free_port())", "29500", False),  # the look-alikes: rank 0 has what it began with
        ("", "'29500'", None, False),  # nothing is computed
        ("", "str(args.port)", None, False),  # they have it from their command lines
        ("if rank == 0: ", "str(free_port())", None, False),
    ],
)
def test_port_that_each_process_finds_for_itself(
    head: str, sets: str, started: str | None, each: bool, run: Path
) -> None:
    """Then no value is the wrong one."""
    script = run / "train.py"
    line = f"    {head}os.environ['MASTER_PORT'] = {sets}\n"
    script.write_text(f"def setup(rank):\n{line}    dist.init_process_group('gloo')\n")
    os.utime(script, (0, 0))  # older than the process
    caller = {"function": "setup", "file": str(script), "line": 3}
    environment = {"MASTER_PORT": started} if started is not None else {}
    boxes = []
    for number in range(2):
        box = Box(pid=101 + number, ppid=100, environment=environment).at(10)
        box.rendezvous(number, 2, master_port=29500 + number, caller=caller)
        boxes.append(box.at(6000 + number).exception(STORE_ERROR, LOST, [("setup", str(script), 3)]).exit(1))
    report = report_of(run, *boxes)
    assert summary(report).endswith(": line 2 sets it to `str(free_port())` in each process.") is each
    assert ("undecidable" in _missing(report)) is not each


@pytest.mark.parametrize(("made", "own"), [("uuid.uuid4().hex", True), ("args.run", False)])
def test_file_that_each_process_names_for_itself(made: str, own: bool, run: Path) -> None:
    """Found by a twin: the line that draws the name was not told. The look-alike: an option."""
    script = run / "train.py"
    source = f"    run = {made}\n    dist.init_process_group('gloo', init_method=f'file:///tmp/{{run}}')\n"
    script.write_text(f"import uuid\ndef setup(rank, args):\n{source}")
    os.utime(script, (0, 0))  # older than the process
    caller = {"function": "setup", "file": str(script), "line": 4}
    boxes = []
    for number in range(2):
        box = Box(pid=101 + number, ppid=100).at(10)
        box.rendezvous(number, 2, file=f"/tmp/{number}", passed=["init_method"], caller=caller)
        boxes.append(box.at(6000 + number).exception(STORE_ERROR, LOST, [("setup", str(script), 4)]).exit(1))
    said = advice(report_of(run, *boxes))
    assert said.startswith("Give all processes the same init_method")
    assert ("Line 3 (`uuid.uuid4`) gives each process another one: make it once, before the" in said) is own


def test_a_rank_that_did_not_call_makes_the_port_only_likely(run: Path) -> None:
    """The others may have waited for that one."""
    report = report_of(run, rank_of(0, world_size=4), rank_of(1, world_size=4), rank_of(2, world_size=4, master_port=1))
    assert verdict(report) == ("misuse", "likely")


def test_localhost_on_another_host_is_another_address(run: Path) -> None:
    """Equal values, and each host means itself."""
    boxes = [rank_of(n, host=f"node{n // 2}", master_addr="localhost") for n in range(3)]
    report = report_of(run, *boxes)
    assert finding(report, RULE) is not None
    assert "rank 2" in (finding(report, RULE).summary or "").lower()  # type: ignore[union-attr]
    assert "MASTER_ADDR=localhost on node1" in (finding(report, RULE).summary or "")  # type: ignore[union-attr]


def test_names_of_the_own_host_are_one_address(run: Path) -> None:
    """Ranks that time out for a rank that never called: localhost, 127.0.0.1 and the host's name are no mismatch."""
    names = ("localhost", "127.0.0.1", "node0.cluster")
    report = report_of(run, *(rank_of(n, world_size=4, master_addr=name) for n, name in enumerate(names)))
    assert finding(report, RULE) is None


def test_rank_that_two_processes_have_is_named(run: Path) -> None:
    """Also which rank is missing for it."""
    report = report_of(run, rank_of(0), rank_of(1), rank_of(2, rank=1))
    assert verdict(report) == ("misuse", "certain")
    assert summary(report) == (
        "Processes 102 and 103 called init_process_group() at train.py:10 in setup as rank 1; no process had rank 2."
    )


def test_a_process_that_replaced_another_is_no_second_one(run: Path) -> None:
    """The first one with this rank had ended before the second one called."""
    first = rank_of(1, error=None)
    first.at(1000).exit(1)
    second = Box(pid=140, ppid=100).at(2000).rendezvous(1, 3)
    second.at(6000).exception(STORE_ERROR, LOST, STACK).exit(1)
    report = report_of(run, rank_of(0), first, second)
    assert finding(report, RULE) is None


def test_world_size_of_one_rank_is_named(run: Path) -> None:
    """The ranks that expected three have met; the one that waits for a fourth has not."""
    report = report_of(run, rank_of(0, met=True), rank_of(1, met=True), rank_of(2, world_size=4))
    found = finding(report, RULE)
    assert found is not None and found.ranks == [2]
    assert "WORLD_SIZE=4, ranks 0 and 1 with 3" in (found.summary or "")


def test_jobs_side_by_side_are_not_compared(run: Path) -> None:
    """Two jobs with ranks and ports of their own in one run: one met, a rank of the other never called."""
    other = [rank_of(n, met=True, error=None, world_size=2, master_port=1, rank=n - 10) for n in (10, 11)]
    report = report_of(run, rank_of(0, world_size=2), *other)
    assert finding(report, RULE) is None


def test_ranks_that_met_are_not_compared(run: Path) -> None:
    """What worked was right, whatever the names; the job failed later."""
    boxes = [rank_of(n, met=True, master_addr=name) for n, name in enumerate(("node0", "10.0.0.1", "10.0.0.1"))]
    assert finding(report_of(run, *boxes), RULE) is None


def test_second_call_is_compared_with_second_calls(run: Path) -> None:
    """A program left one job and joined the next one at another port, and one rank died in between."""
    boxes = []
    for number in range(3):
        box = rank_of(number, met=True, error=None)
        if number:
            box.at(30).rank(number, 3, left="destroy_process_group").at(40).rendezvous(number, 3, master_port=29600)
        boxes.append(box)
    for box in boxes[1:]:
        box.at(6000).exception(STORE_ERROR, LOST, STACK).exit(1)
    boxes[0].at(25).exception("ValueError", "no data", STACK).exit(1)
    report = report_of(run, *boxes)
    assert finding(report, RULE) is None
    assert "ValueError" in summary(report)


def test_what_the_program_changed_is_told(run: Path) -> None:
    """The value when the process started, where it is another one."""
    changed = Box(pid=103, ppid=100, rank=None, environment={"MASTER_PORT": "29500", "RANK": "2"})
    changed.at(10).rendezvous(2, 3, master_port=29501)
    changed.at(6000).exception(STORE_ERROR, LOST, STACK).exit(1)
    report = report_of(run, rank_of(0), rank_of(1), changed)
    assert report.verdict is not None
    assert any("MASTER_PORT=29501 (29500 when it started)" in line for line in report.verdict.evidence or [])


LATE = "rendezvous-missing-rank"


def late_one(number: int, *, ended_at: float = 6500, called: bool = False) -> Box:
    """A rank that did something else until the agent ended it."""
    variables = {"RANK": str(number), "WORLD_SIZE": "2", "LOCAL_RANK": str(number)}
    box = Box(pid=101 + number, ppid=100, environment=variables)
    box.versions(torch="2.13.0+cpu").at(10)
    if called:
        box.rendezvous(number, 2)
    box.at(ended_at).signal_seen(15, 100, ["torchrun"])
    return box.crash(
        0, code=0, state=6, python=[("prepare", "/home/user/train.py", 13)], native=[("/lib/libc.so.6", 16)]
    )


def late_report(run: Path, other: Box) -> Report:
    """Rank 1 gives up after 6 s."""
    waiting = Box(pid=102, ppid=100).at(10).rendezvous(1, 2).at(6001).exception(STORE_ERROR, LOST, STACK).exit(1)
    write_run(run, agent((101, {"signal": 15}), (102, {"exit_code": 1}), at=8000, code=1), other, waiting)
    return build_report(load_job(run, symbols=False))


def test_rank_that_had_not_called_is_named_with_what_it_did(run: Path) -> None:
    """The others gave up; it was elsewhere."""
    report = late_report(run, late_one(0))
    assert verdict(report) == ("missing-rank", "likely")
    assert report.verdict is not None and report.verdict.rank == 0
    assert summary(report) == (
        "Rank 0 had not called init_process_group(), in which rank 1 waited 5.991 s at train.py:10 in setup; "
        "when it ended, it was at train.py:13 in prepare."
    )
    assert "Look at train.py:13 in prepare" in advice(report)


def test_rank_that_had_called_as_well_is_not_late(run: Path) -> None:
    """The look-alike: both waited, for a store that did not answer."""
    assert finding(late_report(run, late_one(0, called=True)), LATE) is None


def test_rank_that_had_ended_before_is_not_late(run: Path) -> None:
    """The look-alike: its own end is the cause."""
    assert finding(late_report(run, late_one(0, ended_at=2000)), LATE) is None


def two_of(run: Path, size: int, *others: Box) -> Report:
    """Ranks 0 and 1 of a job of `size` give up after 6 s."""
    boxes = [
        Box(pid=101 + n, ppid=100).at(10).rendezvous(n, size).at(6001 + n).exception(STORE_ERROR, LOST, STACK).exit(1)
        for n in range(2)
    ]
    ends = ((101, {"exit_code": 1}), (102, {"exit_code": 1}))
    write_run(run, agent(*ends, at=8000, code=1), *boxes, *others)
    return build_report(load_job(run, symbols=False))


def test_ranks_that_were_never_started_are_named(run: Path) -> None:
    """A world of three, and two processes: it may run on another host, so that it is not certain."""
    report = two_of(run, 3)
    assert verdict(report) == ("missing-rank", "likely")
    assert "in setup for a job of 3 ranks, and no process of rank 2 was recorded" in summary(report)
    assert "WORLD_SIZE is 3, and 2 processes called it: start as many processes" in advice(report)


@pytest.mark.parametrize(("code", "parent", "told"), [(0, 100, True), (1, 100, False), (0, 7, False)])
def test_process_that_left_before_it_joined_is_not_looked_for_elsewhere(
    code: int, parent: int, told: bool, run: Path
) -> None:
    """It was started, and ended in order; one that failed, or of another parent, is no such rank."""
    gone = Box(pid=140, ppid=parent).at(5).versions(torch="2.13.0+cpu").at(900).exit(code)
    report = two_of(run, 3, gone)
    words = "in setup for a job of 3 ranks, and 1 process beside it (140) had ended with status 0 without that call"
    assert (words in (summary(report) or "")) == told
    assert not (told and "start as many processes" in (advice(report) or ""))


@pytest.mark.parametrize(("address", "local"), [("127.0.0.1", True), ("localhost", True), ("10.0.0.7", False)])
def test_other_hosts_cannot_come_to_a_loopback_address(address: str, local: bool, run: Path) -> None:
    """Then their recordings are not what is missing."""
    boxes = [
        Box(pid=101 + n, ppid=100)
        .at(10)
        .rendezvous(n, 4, master_addr=address)
        .at(6001 + n)
        .exception(STORE_ERROR, LOST, STACK)
        .exit(1)
        for n in range(2)
    ]
    write_run(run, agent((101, {"exit_code": 1}), (102, {"exit_code": 1}), at=8000, code=1), *boxes)
    report = build_report(load_job(run, symbols=False))
    assert (f"not {address}, which is each host itself" in advice(report)) == local
    found = finding(report, LATE)
    assert found is not None and ("the processes of other hosts" in " ".join(found.missing or [])) == (not local)


def test_rank_that_its_parent_ended_at_the_time_limit_counts_as_well(run: Path) -> None:
    """Only one of the two gave up by itself; the other one's call had not returned either."""
    boxes = [Box(pid=101 + n, ppid=100).at(10).rendezvous(n, 4).at(6001 + n) for n in range(2)]
    boxes[1].exception(STORE_ERROR, LOST, STACK).exit(1)
    write_run(run, agent((101, {"signal": 15}), (102, {"exit_code": 1}), at=8000, code=1), *boxes)
    report = build_report(load_job(run, symbols=False))
    assert summary(report).startswith("Ranks 0 and 1 waited"), summary(report)
    assert "and 2 processes called it: start as many processes" in advice(report)


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_that_all_came_or_were_seen_are_not_missing(size: int, run: Path) -> None:
    """The look-alikes: a store that did not answer, and a third rank that had not got so far."""
    report = two_of(run, size, *([late_one(2)] if size == 3 else []))
    assert "was recorded" not in summary(report)


INSIDE = [("init_process_group", "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 1899)]
SETUP = """\
def setup(rank):
    world_size = int(os.environ["SLURM_NTASKS"])
    print(world_size)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
"""


@pytest.mark.parametrize(("since", "inside"), [(10, True), (58_000, True), (10, False)])
def test_time_limit_that_finds_a_rank_waiting_for_others(since: int, inside: bool, run: Path) -> None:
    """The look-alikes: it had just begun, or had gone on to something else."""
    script = run / "train.py"
    script.write_text(SETUP)
    os.utime(script, (0, 0))  # older than the process
    box = Box(pid=101, ppid=90).at(since)
    box.rendezvous(0, 32, passed=["world_size", "rank"], caller={"function": "setup", "file": str(script), "line": 4})
    stack = [*(INSIDE if inside else []), ("setup", str(script), 4 if inside else 3)]
    report = ended(run, stopped(box, stack))
    waited = inside and since == 10
    assert (verdict(report) == ("missing-rank", "likely")) == waited
    if waited:
        by = "by `int(os.environ['SLURM_NTASKS'])` (line 2)"
        assert f"for a job of 32 ranks, {by}, and no process of ranks 1-31 was recorded" in summary(report)
        assert advice(report).startswith(
            "world_size is `int(os.environ['SLURM_NTASKS'])` (line 2), here 32, and 1 process called it"
        )
