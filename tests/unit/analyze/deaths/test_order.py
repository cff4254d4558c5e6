"""The first death, and the reasons of its consequences."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.assemble.view import build_view
from pytracer.analyze.deaths.order import find_deaths
from pytracer.analyze.engine import build_report
from pytracer.analyze.timeline.clock import RunClock
from pytracer.decode.types.snapshot import Job
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.synth import Box


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "boxes").mkdir()
    return tmp_path


def judged(report: Report) -> dict[int | None, tuple[bool | None, str | None]]:
    return {item.rank: (item.primary, item.why) for item in report.processes or [] if item.role == "rank"}


def test_lost_connection_is_a_consequence(run: Path) -> None:
    """The demo: rank 1 first, rank 0 and the agent as consequences."""
    report = build_report(s.use_after_free(run))
    assert judged(report) == {1: (True, "first"), 0: (False, "lost the connection to rank 1")}
    agent = next(item for item in report.processes or [] if item.role == "launcher")
    assert (agent.primary, agent.why) == (False, "reports the failure of rank 1")
    kinds = {item.rank: item.why_kind for item in report.processes or []}
    assert kinds == {1: "first", 0: "network", None: "reported"}


def test_lost_connection_that_came_first_is_not_blamed_on_a_later_crash(run: Path) -> None:
    """A crash cannot explain a connection that was lost 300 ms before."""
    report = build_report(s.use_after_free(run, peer_first=True))
    assert judged(report)[0] == (True, "first")
    assert judged(report)[1][0] is None
    assert report.verdict is not None and (report.verdict.class_, report.verdict.confidence) == (
        "python-exception",
        "possible",
    )


KEY = ("torch.distributed.DistStoreError", "wait timeout after 8000ms, keys: /default_pg/0//checkpoint/0/1")


def test_key_that_the_program_waits_for_is_no_lost_peer(run: Path) -> None:
    """The store answered: the rank that raised is the one to look at, and the line is the program's."""
    first = s.rank(0).at(9000).exception(*KEY, [("commit", s.SCRIPT, 29)]).exit(1)
    report = build_report(
        s.load(run, s.agent((101, {"exit_code": 1}), (102, {"signal": 15}), at=9500), first, s.rank(1))
    )
    assert judged(report)[0] == (True, "first")
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.confidence) == ("python-exception", "certain")


def test_key_that_a_dead_rank_would_have_set_is_its_consequence(run: Path) -> None:
    """The look-alike: another rank had died before."""
    died = s.rank(1).at(500).exception("ValueError", "bad", [("main", s.SCRIPT, 3)]).exit(1)
    waited = s.rank(0).at(9000).exception(*KEY, [("commit", s.SCRIPT, 29)]).exit(1)
    report = build_report(s.load(run, s.agent((101, {"exit_code": 1}), (102, {"exit_code": 1}), at=9500), waited, died))
    assert judged(report)[1] == (True, "first")
    assert judged(report)[0] == (False, "waited in vain for rank 1")


def test_sigterm_from_the_agent_is_a_consequence(run: Path) -> None:
    """torchrun ends the remaining workers; an exception was first."""
    first = s.rank(0).at(500).exception("ValueError", "bad", [("main", s.SCRIPT, 3)]).exit(1)
    ended = s.rank(1).at(600).mark("still running")
    report = build_report(s.load(run, s.agent((101, {"exit_code": 1}), (102, {"signal": 15})), first, ended))
    assert judged(report)[0] == (True, "first")
    primary, why = judged(report)[1]
    assert primary is False and "probably ended by torchrun's agent after rank 0" in (why or "")
    assert report.verdict is not None and report.verdict.class_ == "python-exception"


def test_sigterm_alone_came_from_outside(run: Path) -> None:
    """No other process died: the job was ended from outside."""
    report = build_report(s.load(run, s.agent((102, {"signal": 15})), s.rank(1).at(500)))
    assert judged(report)[1][0] is True
    assert report.verdict is not None and report.verdict.class_ == "external-kill"


def test_slow_teardown_does_not_hide_the_first_exception(run: Path) -> None:
    """The rank that raised first exits last, after cleaning up: torchrun names the other one."""
    slow = s.rank(0).at(500).exception("ValueError", "bad batch", [("main", s.SCRIPT, 3)]).at(3500).exit(1)
    quick = s.rank(1).at(900).exception("RuntimeError", CLOSED, [("main", s.SCRIPT, 9)]).exit(1)
    report = build_report(s.load(run, s.agent((101, {"exit_code": 1}), (102, {"exit_code": 1}), at=4000), slow, quick))
    assert judged(report)[0][0] is True and judged(report)[1][0] is False
    assert report.verdict is not None and report.verdict.rank == 0


def test_overlapping_deaths_stay_undecided(run: Path) -> None:
    """Two SIGKILLs, both noticed by the agent in one poll: no order."""
    boxes = [s.rank(number).at(500 + number).mark("last record") for number in (0, 1)]
    report = build_report(s.load(run, s.agent((101, {"signal": 9}), (102, {"signal": 9})), *boxes))
    assert {primary for primary, _ in judged(report).values()} == {None}
    assert any(item.id == "first-death" and item.result == "cannot-decide" for item in report.checked or [])


def test_later_fault_elsewhere_is_not_judged(run: Path) -> None:
    """A different fault, later: reported as a possible consequence."""
    first = s.rank(0).at(500).crash(addr=0, python=s.BACKWARD[:1], native=s.NATIVE[:1])
    later = s.rank(1).at(700).crash(addr=0, python=s.BACKWARD[-1:], native=[(s.TORCH_CPU, 0x2200)])
    report = build_report(s.load(run, s.agent((101, {"signal": 11}), (102, {"signal": 11})), first, later))
    assert judged(report)[0][0] is True
    primary, why = judged(report)[1]
    assert primary is None and why == "died 0.200 s after rank 0; it may be a consequence"


def test_shell_and_parents_pass_a_death_on(run: Path) -> None:
    """sh -c python: 139 of the shell is its child's SIGSEGV."""
    shell = Box(pid=90, ppid=80, argv=["sh", "-c", "python train.py"]).at(900).wait(101, signal=11).exit(139)
    child = Box(pid=101, ppid=90).at(500).crash(addr=0, native=s.NATIVE[:1])
    report = build_report(s.load(run, shell, child))
    assert [(item.pid, item.primary) for item in report.processes or [] if item.primary is not None] == [
        (90, False),
        (101, True),
    ]


def test_other_hosts_are_compared_with_an_error_bar(run: Path) -> None:
    """300 ms between hosts is less than their clocks may differ."""
    near = s.rank(0).at(500).exception("ValueError", "a", [("main", s.SCRIPT, 3)]).exit(1)
    far = s.rank(1, host="node1", boot_id="b0075f00-0000-4000-8000-000000000002").at(800)
    far.exception("ValueError", "b", [("main", s.SCRIPT, 4)]).exit(1)
    report = build_report(s.load(run, near, far))
    assert {primary for primary, _ in judged(report).values()} == {None}


@pytest.mark.parametrize(
    ("code", "sender", "nature"), [(0, 0, "sent"), (0, 7, "sent"), (-6, 0, "abort"), (0, 101, "abort")]
)
def test_signal_from_another_pid_namespace_is_sent(code: int, sender: int, nature: str, run: Path) -> None:
    """Its sender has no pid here: SI_USER and pid 0."""
    job = s.load(run, Box(pid=101, ppid=99).at(500).crash(signal=6, code=code, sender_pid=sender))
    clock = RunClock(job)
    (death,) = find_deaths([build_view(0, job.processes[0], clock)])
    assert death.nature == nature


# The first rank to leave

NEVER_CAME = "never entered all_reduce 2 of group 0, in which ranks 0 and 2 waited"


def trio(*, done: int = 1) -> list[Box]:
    """Three ranks that completed `done` collectives together."""
    boxes = [s.rank(number, world_size=3) for number in range(3)]
    for box in boxes:
        gid = box.group_seen("0", size=3)
        for number in range(1, done + 1):
            box.at(100 * number).collective("gloo:all_reduce", sequence_nr=number, state="completed", group=gid)
    return boxes


CLOSED = "[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:5"


def waits(box: Box, at: float, number: int = 2, message: str = CLOSED) -> Box:
    """A rank that entered a collective and failed in it."""
    box.at(at - 200).collective(
        "gloo:all_reduce", sequence_nr=number, state="failed", group=box.group_seen("0", size=3)
    )
    return box.at(at).exception("RuntimeError", message, [("main", s.SCRIPT, 9)]).exit(1)


def by_deaths_alone(job: Job) -> dict[int | None, tuple[bool | None, str | None]]:
    """Before the rules about collectives run."""
    clock = RunClock(job)
    views = [build_view(index, process, clock) for index, process in enumerate(job.processes)]
    return {death.view.process.rank: (death.primary, death.why) for death in find_deaths(views)}


def of_rank(report: Report, number: int) -> tuple[bool | None, str]:
    primary, why = judged(report)[number]
    return primary, why or ""


def test_exception_with_slow_cleanup_is_first_even_if_the_launcher_ends_it(run: Path) -> None:
    """torchrun names rank 0, whose connection was lost; rank 1 had raised, left, and was ended in its `finally`."""
    a, b, c = trio()
    b.at(500).leaves(("ValueError", "shard 3 has 0 rows"), [("main", s.SCRIPT, 53)])
    ends = [(101, {"exit_code": 1}), (103, {"exit_code": 1}), (102, {"signal": 15})]
    report = build_report(s.load(run, s.agent(*ends, at=900), waits(a, 620), b, waits(c, 640)))
    assert of_rank(report, 1)[0] is True
    assert of_rank(report, 0) == of_rank(report, 2) == (False, "lost the connection to rank 1")
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.rank) == ("python-exception", 1)


def test_who_left_without_an_exception_is_first_though_it_ended_last(run: Path) -> None:
    """It destroyed its process group, cleaned up, and was ended by the launcher when the others had failed."""
    a, b, c = trio()
    ends = [(101, {"exit_code": 1}), (103, {"exit_code": 1}), (102, {"signal": 15})]
    job = s.load(run, s.agent(*ends, at=900), waits(a, 620), b.at(500).leaves(), waits(c, 640))
    assert by_deaths_alone(job)[1] == (True, f"first: it {NEVER_CAME}")
    verdict = build_report(job).verdict
    assert verdict is not None and (verdict.class_, verdict.rank) == ("missing-rank", 1)


def test_rank_that_returned_early_is_what_the_others_died_of(run: Path) -> None:
    """It ended with status 0, so it did not fail; without it the cause of the other failures is unknown."""
    a, b, c = trio()
    ends = [(102, {"exit_code": 0}), (101, {"exit_code": 1}), (103, {"exit_code": 1})]
    job = s.load(run, s.agent(*ends), waits(a, 620), b.at(400).exit(0), waits(c, 640))
    assert by_deaths_alone(job)[1] == (True, f"first: it {NEVER_CAME}")
    assert by_deaths_alone(job)[0] == (False, "lost the connection to rank 1")
    verdict = build_report(job).verdict
    assert verdict is not None and (verdict.class_, verdict.rank) == ("missing-rank", 1)


def test_reason_of_a_failed_collective_is_first_though_its_thread_was_woken_last(run: Path) -> None:
    """gloo closes rank 1's connections before rank 1's main thread gets the error; rank 0 raised 5 ms earlier."""
    a, b, _ = trio()
    report = build_report(s.load(run, waits(a, 620), waits(b, 625, message="writev [127.0.0.1]:44712: Bad address")))
    assert of_rank(report, 1)[0] is True
    assert of_rank(report, 0) == (False, "lost the connection to rank 1")


def test_later_exception_outside_the_failed_collective_is_no_reason(run: Path) -> None:
    """Look-alike: rank 1 failed in the next collective, later."""
    a, b, _ = trio()
    failed = waits(b, 625, number=3, message="writev [127.0.0.1]:44712: Bad address")
    assert of_rank(build_report(s.load(run, waits(a, 620), failed)), 0)[0] is not False


def test_slow_rank_is_not_blamed_for_the_fault_of_another(run: Path) -> None:
    """Look-alike: rank 1 never entered either, but rank 2 faulted, and the agent then ended rank 1."""
    a, b, c = trio()
    c.at(500).crash(addr=0, python=s.BACKWARD[:1], native=s.NATIVE[:1])
    ends = [(103, {"signal": 11}), (101, {"exit_code": 1}), (102, {"signal": 15})]
    report = build_report(s.load(run, s.agent(*ends), waits(a, 620), b.at(700).mark("still loading"), c))
    assert [of_rank(report, number)[0] for number in range(3)] == [False, False, True]
    assert "ended by torchrun's agent after rank 2" in of_rank(report, 1)[1]


def test_sigterm_from_outside_is_first_when_the_launcher_saw_it_with_the_first_failure(run: Path) -> None:
    """The launcher ends its workers after it has detected a failure, not in the same poll."""
    a, b, c = trio()
    b.at(450).collective("gloo:all_reduce", sequence_nr=2, group=b.group_seen("0", size=3))
    ends = [(102, {"signal": 15}), (101, {"exit_code": 1}), (103, {"exit_code": 1})]
    report = build_report(s.load(run, s.agent(*ends, at=900), waits(a, 620), b, waits(c, 640)))
    assert [of_rank(report, number)[0] for number in range(3)] == [False, True, False]
    assert report.verdict is not None and report.verdict.class_ == "external-kill"


@pytest.mark.parametrize(("killed_at", "follows"), [(31_000, True), (2_000, False)])
def test_sigkill_is_the_launchers_only_after_its_grace(killed_at: float, follows: bool, run: Path) -> None:
    """torchrun waits 30 s between SIGTERM and SIGKILL; a SIGKILL soon after another death has another sender."""
    first = s.rank(0).at(500).exception("ValueError", "bad", [("main", s.SCRIPT, 3)]).exit(1)
    agent = s.agent((101, {"exit_code": 1}), at=600, code=0).at(killed_at).wait(102, signal=9)
    agent.exception("torch.distributed.elastic.multiprocessing.errors.ChildFailedError", "FAILED").exit(1)
    report = build_report(s.load(run, agent, first, s.rank(1).at(700).mark("still running")))
    primary, why = of_rank(report, 1)
    assert primary is False and ("30 s after SIGTERM" in why) == follows


def test_watchdogs_abort_is_a_consequence(run: Path) -> None:
    """NCCL's watchdog aborts the process that waits, not the one that is missing."""
    first = s.rank(0).at(500).exception("ValueError", "bad", [("main", s.SCRIPT, 3)]).exit(1)
    peer = s.rank(1).at(900).thread(555, "pt_nccl_watchdg")
    peer.crash(signal=6, code=-6, sender_pid=102, tid=555)
    report = build_report(s.load(run, s.agent((101, {"exit_code": 1}), (102, {"signal": 6})), first, peer))
    assert of_rank(report, 1) == (False, "its watchdog gave up waiting for rank 0")


def test_fault_while_leaving_after_another_death_is_cleanup(run: Path) -> None:
    """The same fault alone is the first death: nothing else explains it."""
    first = s.rank(0).at(500).exception("ValueError", "bad", [("main", s.SCRIPT, 3)]).exit(1)
    peer = s.rank(1).at(900).leaves().at(950).crash(addr=0, python=s.BACKWARD[:1], native=s.NATIVE[:1])
    report = build_report(s.load(run, s.agent((101, {"exit_code": 1}), (102, {"signal": 11})), first, peer))
    assert of_rank(report, 1) == (False, "had begun to leave the job, after the death of rank 0")
    (run / "boxes" / "node0.101.blackbox").unlink()
    alone = s.rank(1).at(900).leaves().at(950).crash(addr=0, python=s.BACKWARD[:1], native=s.NATIVE[:1])
    assert of_rank(build_report(s.load(run, s.agent((102, {"signal": 11})), alone)), 1)[0] is True


def test_spawning_parent_and_rank_with_a_worker_pass_the_death_on(run: Path) -> None:
    """mp.spawn raises ProcessRaisedException; a DataLoader names the worker that died."""
    worker = Box(pid=150, ppid=101).at(500).crash(addr=0, native=s.NATIVE[:1])
    lost = s.rank(0).at(600).wait(150, signal=11)
    lost.exception("RuntimeError", "DataLoader worker (pid(s) 150) exited unexpectedly").exit(1)
    parent = Box(pid=100, ppid=99, argv=["python", "train.py"]).at(700).wait(101, exit_code=1)
    parent.exception("torch.multiprocessing.spawn.ProcessRaisedException", "-- Process 0 terminated").exit(1)
    report = build_report(s.load(run, parent, lost, worker))
    found = {item.pid: (item.primary, item.why) for item in report.processes or []}
    assert found[150][0] is True
    assert found[101] == (False, "reports the death of process 150 (train.py)")
    assert found[100][0] is False and (found[100][1] or "").startswith("reports the failure of")


FORK_SERVER = ["python", "-c", "import sys; from multiprocessing.forkserver import main; main(15, 16, ['__main__'])"]


def test_worker_below_a_fork_server_belongs_to_the_rank_that_asked_for_it(run: Path) -> None:
    """The default of CPython 3.14: the worker's parent is the server, which has its command line and ends well."""
    server = Box(pid=150, ppid=101, argv=FORK_SERVER).at(900).exit(0)
    worker = Box(pid=151, ppid=150, argv=FORK_SERVER).at(500).exit(3)
    lost = s.rank(0).at(600).exception("RuntimeError", "DataLoader worker (pid(s) 151) exited unexpectedly").exit(1)
    report = build_report(s.load(run, lost, server, worker))
    found = {item.pid: (item.primary, item.why) for item in report.processes or []}
    assert found[151][0] is True
    assert found[101] == (False, "reports the death of process 151 (multiprocessing child)")


def test_child_of_a_fork_servers_child_is_not_the_ranks(run: Path) -> None:
    """It has the server's command line, too: what it loses is no concern of the rank."""
    server = Box(pid=150, ppid=101, argv=FORK_SERVER).at(900).exit(0)
    worker = Box(pid=151, ppid=150, argv=FORK_SERVER).at(800).exit(0)
    helper = Box(pid=152, ppid=151, argv=FORK_SERVER).at(500).exit(3)
    own = s.rank(0).at(600).exception("ValueError", "bad", [("main", s.SCRIPT, 3)]).exit(1)
    report = build_report(s.load(run, own, server, worker, helper))
    assert of_rank(report, 0) == (True, "first")


def test_collectives_decide_between_hosts_where_wall_clocks_cannot(run: Path) -> None:
    """The case above, 300 ms between hosts, with one all-reduce that both had completed."""
    near, far = s.rank(0), s.rank(1, host="node1", boot_id="b0075f00-0000-4000-8000-000000000002")
    for box in (near, far):
        box.at(200).collective("gloo:all_reduce", sequence_nr=1, state="completed", group=box.group_seen("0"))
    near.at(500).exception("ValueError", "a", [("main", s.SCRIPT, 3)]).exit(1)
    far.at(800).exception("ValueError", "b", [("main", s.SCRIPT, 4)]).exit(1)
    report = build_report(s.load(run, near, far))
    assert of_rank(report, 0) == (True, "first")
    assert of_rank(report, 1)[0] is False


@pytest.mark.parametrize("status", [124, 1])
def test_timeout_that_ended_its_command_reports_no_failure(status: int, run: Path) -> None:
    """timeout(1) exits with 124 at its own time; with the command's status otherwise."""
    root = Box(pid=90, ppid=80, argv=["timeout", "60", "python", "train.py"]).at(60_010).wait(101, signal=15)
    main = Box(pid=101, ppid=90).at(60_000).signal_seen(15, 90, ["timeout", "60", "python", "train.py"])
    child = Box(pid=102, ppid=101).at(5_000).exit_request(1, [("work", s.SCRIPT, 5)]).exit(1)
    main.crash(0, code=0, state=6, python=[("main", s.SCRIPT, 12)], native=[(s.LIBC, 0x10)])
    report = build_report(s.load(run, root.exit(status), main, child))
    why = {item.pid: item.why for item in report.processes or []}
    assert (why[90] == "its time limit had passed: it ended process 101 (train.py)") is (status == 124)
    assert (why[101] == "ended by timeout, process 90, at its time limit") is (status == 124)
