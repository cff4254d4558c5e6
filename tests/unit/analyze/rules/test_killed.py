"""SIGKILL: the OOM killer proven or refuted by counters, every other sender by elimination."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.synth import MS, Box

OWN = "/slurm/step_0"


def group(path: str = OWN, **values: Any) -> dict[str, Any]:
    return {"version": 2, "path": path, "oom_kill": 0, "limit": 1 << 30, "peak": 1 << 30, **values}


def counters(**values: Any) -> dict[str, Any]:
    return {"mono_ns": 1, "cgroups": [group()], "vmstat_oom_kill": 5, "psi_memory": {"some_total": 0.0}, **values}


def witness(after: dict[str, Any] | None = None, **values: Any) -> dict[str, Any]:
    log = {"readable": True, "lines": []}
    given = {"before": counters(), "after": counters(**(after or {})), "ended": True, "kernel_log": log}
    return {**given, "killers": [], "first_pid_namespace": True, **values}


def killed(run: Path, *more: Box, seen: bool = False, signals: int = 1, **given: Any) -> Report:
    """Rank 1 (and 0 when `signals` is 2) got SIGKILL; `given` are the launcher's host counters."""
    ranks = [s.rank(number).at(500).mark("step") for number in range(2)]
    ends: list[tuple[int, dict[str, Any]]] = [
        (101 + number, {"signal": 9 if number >= 2 - signals else 15}) for number in (1, 0)
    ]
    agent = s.agent(*ends[:1], at=900)
    agent.at(900 if signals == 2 else 1400).wait(ends[1][0], **ends[1][1])
    if seen:
        first = {"first_mono_ns": 1, "alive_mono_ns": ranks[1].created_ns + 800 * MS, "rss": 900 << 20, "cgroup": OWN}
        given["processes"] = [{"pid": box.pid, "start_ticks": box.start_ticks, **first} for box in ranks]
    return build_report(s.load(run, agent, *ranks, *more, launcher={"witness": given or None}))


def verdict(report: Report) -> tuple[str | None, str | None]:
    assert report.verdict is not None
    return report.verdict.class_, report.verdict.confidence


def line(report: Report, words: str) -> str:
    assert report.verdict is not None
    found = [item for item in report.verdict.evidence or [] if words in item]
    assert len(found) == 1, report.verdict.evidence
    return found[0]


LOG = "Memory cgroup out of memory: Killed process 102 (python) total-vm:1kB, anon-rss:2kB, UID:0 pgtables:1kB"


def test_kernel_log_that_names_the_process_is_certain(run: Path) -> None:
    """The strongest evidence."""
    log = {"readable": True, "lines": [{"text": LOG, "log_us": 1}]}
    report = killed(run, **witness(kernel_log=log))
    assert verdict(report) == ("oom-kill", "certain")
    assert report.verdict is not None and report.verdict.rank == 1
    assert "UID" not in line(report, "the kernel's log")


def test_kernel_log_of_another_pid_namespace_is_no_proof(run: Path) -> None:
    """Process 102 of the host is not process 102 of the container."""
    log = {"readable": True, "lines": [{"text": LOG, "log_us": 1}]}
    report = killed(run, **witness(kernel_log=log, first_pid_namespace=False))
    assert verdict(report) == ("oom-kill", "likely")
    assert "with a pid of the host" in line(report, "the kernel's log")


def test_kernel_log_that_names_another_process_is_no_proof(run: Path) -> None:
    """Another cgroup's process was killed; ours counted nothing."""
    log = {"readable": True, "lines": [{"text": LOG.replace("102", "1020")}]}
    report = killed(run, seen=True, **witness({"vmstat_oom_kill": 6}, kernel_log=log))
    assert verdict(report) == ("external-kill", "likely")
    assert line(report, "the kernel's log").startswith("not found: ")


def test_kill_counted_in_the_own_cgroup_is_certain(run: Path) -> None:
    """memory.events of the cgroup that the process ran in."""
    report = killed(run, seen=True, **witness({"cgroups": [group(oom_kill=1)], "vmstat_oom_kill": 6}))
    assert verdict(report) == ("oom-kill", "certain")
    assert report.verdict is not None
    assert (report.verdict.summary or "").endswith("OOM killer at the limit of 1.0 GiB of its memory cgroup.")
    assert "DataLoader" not in (report.verdict.advice or "")
    assert "took 1 process in /slurm/step_0 (limit 1.0 GiB, at most 1.0 GiB used)" in line(report, OWN)
    assert "held 900.0 MiB of memory 0.100 s before" in line(report, "held")


def test_more_kills_than_counted_are_likely_only(run: Path) -> None:
    """Two ranks got SIGKILL, one OOM kill was counted: which of them?"""
    report = killed(run, seen=True, signals=2, **witness({"cgroups": [group(oom_kill=1)]}))
    assert verdict(report) == ("oom-kill", "likely")


def test_kill_in_a_cgroup_above_is_likely(run: Path) -> None:
    """The process's own cgroup is not known."""
    above = [group(oom_kill=None, why="EACCES: Permission denied"), group("/slurm", oom_kill=1)]
    before = counters(cgroups=[group(oom_kill=None), group("/slurm")])
    report = killed(run, **witness({"cgroups": above, "vmstat_oom_kill": 6}, before=before))
    assert verdict(report) == ("oom-kill", "likely")


def test_machine_wide_kill_is_likely_and_possible_beside_another_candidate(run: Path) -> None:
    """/proc/vmstat may have counted any process; a scheduler may have ended this one."""
    unknown = {"cgroups": [], "cgroups_why": "no memory cgroup is mounted here"}
    given = witness({**unknown, "vmstat_oom_kill": 6}, before=counters(**unknown))
    assert verdict(killed(run, **given)) == ("oom-kill", "likely")
    assert line(killed(run, **given), "cgroups (no memory").startswith("not readable: ")
    report = killed(run, **given, scheduler={"SLURM_JOB_ID": "77"})
    assert verdict(report) == ("oom-kill", "possible")
    assert "ask `sacct -j 77" in line(report, "Slurm")


def test_counters_that_did_not_move_refute_the_oom_killer(run: Path) -> None:
    """Then another process sent it; the sender is unknown."""
    report = killed(run, **witness())
    assert verdict(report) == ("external-kill", "likely")
    assert report.verdict is not None and "not by the kernel's OOM killer" in (report.verdict.summary or "")
    results = {item.id: item.result for item in report.checked or []}
    assert results["oom-kill"] == "not-found"


def test_advice_asks_the_candidates_where_some_are_named(run: Path) -> None:
    """Slurm may have ended it."""
    report = killed(run, **witness(scheduler={"SLURM_JOB_ID": "77"}))
    assert report.verdict is not None and "Ask each candidate" in (report.verdict.advice or "")


def test_advice_asks_nobody_where_nobody_is_named(run: Path) -> None:
    """No candidate was found."""
    report = killed(run, **witness())
    assert report.verdict is not None
    assert not any(str(item).startswith("found: ") for item in report.verdict.evidence or [])
    assert (report.verdict.advice or "").startswith("Look for kill -9")


@pytest.mark.parametrize("after", [None, counters()])
def test_launcher_that_died_too_refutes_nothing(after: dict[str, Any] | None, run: Path) -> None:
    """Counters from before the death prove nothing."""
    report = killed(run, **(witness(ended=False) | {"after": after}))
    assert verdict(report) == ("unknown", "unknown")
    assert "the launcher died, too" in line(report, "the machine's count")


def test_without_a_launcher_the_boxes_alone_give_a_report(run: Path) -> None:
    """No run.json at all."""
    report = build_report(s.load(run, s.agent((102, {"signal": 9})), s.rank(1).at(500)))
    assert verdict(report) == ("unknown", "unknown")
    assert line(report, "no `pytracer run` was there").startswith("not readable: ")


def test_unreadable_is_never_called_absent(run: Path) -> None:
    """Each line names what could not be read, and why."""
    log = {"readable": False, "why": "/dev/kmsg: EPERM: Operation not permitted", "lines": []}
    unread = counters(cgroups=[], vmstat_oom_kill=None, vmstat_why="ENOENT: No such file", psi_memory=None)
    report = killed(run, **witness(before=unread, after=unread, kernel_log=log, killers=None))
    assert verdict(report) == ("unknown", "unknown")
    for words in ("EPERM", "ENOENT", "/proc/pressure", "memory cgroups", "earlyoom"):
        assert line(report, words).startswith("not readable: ")


def test_agent_that_was_told_to_stop_is_a_candidate(run: Path) -> None:
    """SIGTERM to torchrun's agent; 30 s later it sends SIGKILL."""
    agent = Box(pid=100, ppid=99, argv=["/venv/bin/python", "/venv/bin/torchrun", "train.py"]).at(31000)
    agent.wait(102, signal=9).exception("torch.distributed.elastic.multiprocessing.api.SignalException", "15").exit(1)
    report = build_report(s.load(run, agent, s.rank(1).at(500), launcher={"witness": witness()}))
    findings = [item for item in report.findings or [] if item.id == "sigkill"]
    evidence = [item for finding in findings for item in finding.evidence or []]
    assert not findings or any("was asked to stop" in item for item in evidence)


def test_rank_that_only_noticed_the_kill_is_no_reason_for_the_agent(run: Path) -> None:
    """Its error comes at once, while the end of the killed rank is known when its parent waits for it."""
    peer = s.lost_peer(s.rank(0).at(600))
    agent = s.agent((101, {"exit_code": 1}), at=700).at(900).wait(102, signal=9)
    report = build_report(s.load(run, agent, peer, s.rank(1).at(500).mark("x"), launcher={"witness": witness()}))
    assert report.verdict is not None and report.verdict.rank == 1
    assert "had no reason to end it" in line(report, "torchrun's agent")


def test_rank_that_failed_right_before_is_no_reason_for_the_agent(run: Path) -> None:
    """torchrun's agent sends SIGTERM first, and SIGKILL 30 s later: it cannot have killed the other rank at once."""
    failed = s.rank(0).at(890).exception("ValueError", "bad", [("main", s.SCRIPT, 9)]).exit(1)
    agent = s.agent((101, {"exit_code": 1}), at=891).at(900).wait(102, signal=9)
    report = build_report(s.load(run, agent, failed, s.rank(1).at(500).mark("x"), launcher={"witness": witness()}))
    told = [item for finding in report.findings or [] for item in finding.evidence or []]
    assert not any("had died before" in item for item in told), told


def test_rank_that_failed_on_its_own_leads_over_a_later_sigkill(run: Path) -> None:
    """torchrun's agent killed the rest."""
    failed = s.rank(0).at(600).exception("ValueError", "bad", [("main", s.SCRIPT, 9)]).exit(1)
    agent = s.agent((101, {"exit_code": 1}), at=700).at(31000).wait(102, signal=9)
    report = build_report(s.load(run, agent, failed, s.rank(1).at(500).mark("x"), launcher={"witness": witness()}))
    assert report.verdict is not None and report.verdict.rank == 0


def test_memory_killers_and_kubernetes_are_named_with_a_question(run: Path) -> None:
    """Each with the command that checks it."""
    scheduler = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_NAME": "train-0"}
    report = killed(run, **witness(killers=[{"pid": 7, "name": "earlyoom"}], scheduler=scheduler))
    assert "journalctl -t earlyoom" in line(report, "earlyoom")
    assert "kubectl describe pod train-0" in line(report, "Kubernetes")


def test_broken_witness_is_damage_and_the_rest_is_read(run: Path) -> None:
    """run.json of another version, or edited by hand."""
    ranks = s.rank(1).at(500)
    job = s.load(run, s.agent((102, {"signal": 9})), ranks, launcher={"witness": {"before": 3}, "usage": {"maxrss": 1}})
    assert job.launcher is not None and job.launcher.witness is None
    assert job.launcher.usage is not None and job.launcher.usage.maxrss == 1
    assert any("witness cannot be understood" in item.what for item in job.damage)


@pytest.mark.parametrize(
    ("limits", "used", "reached"),
    [
        ({"cpu seconds": [3, 3]}, 2.9, True),
        ({"cpu seconds": [2, 3]}, 2.9, True),
        ({"cpu seconds": [3, None]}, 2.9, False),  # only SIGXCPU comes at a soft limit
        ({"cpu seconds": [3600, 3600]}, 2.9, False),  # far from it
        ({"cpu seconds": [7, 7]}, 2.9, False),  # 40 cores, of one that used few in its life
        ({"data": [3, 3]}, 2.9, False),
        (None, 2.9, False),
    ],
)
def test_kernel_kills_at_the_hard_limit_of_cpu_time(
    limits: dict[str, list[int | None]] | None, used: float, reached: bool, run: Path
) -> None:
    """By the limits and the CPU time that the launcher saw; the look-alikes had time left, or no such limit."""
    rank = s.rank(1)
    item = {"pid": rank.pid, "start_ticks": rank.start_ticks, "first_mono_ns": 1, "cgroup": OWN}
    item |= {"alive_mono_ns": rank.created_ns + 800 * MS, "gone_mono_ns": rank.created_ns + 900 * MS}
    item |= {"cpu_seconds": used, "limits": limits}
    report = killed(run, **witness(processes=[item]))
    assert report.verdict is not None
    assert ("limit of CPU time (RLIMIT_CPU, 3 s)" in (report.verdict.summary or "")) is reached
    assert ("ulimit -t" in (report.verdict.advice or "")) is reached
    assert verdict(report) == ("resource-limit" if reached else "external-kill", "likely")


WHY = "no process recorded anything for 60 s"


@pytest.mark.parametrize(
    ("pids", "expected"),
    [([102], ("hang", "certain")), ([103], ("external-kill", "likely"))],
    ids=["this one", "another one"],
)
def test_what_the_launcher_killed_for_a_hang_is_told_with_its_reason(
    pids: list[int], expected: tuple[str, str], run: Path
) -> None:
    """It did not end by SIGTERM."""
    ranks = [s.rank(number).at(500).mark("step") for number in range(2)]
    agent = s.agent((102, {"signal": 9}), at=900).at(1400).wait(101, signal=15)
    launcher = {"killed_for": WHY, "killed": pids, "witness": witness()}
    report = build_report(s.load(run, agent, *ranks, launcher=launcher))
    assert verdict(report) == expected
    assert report.verdict is not None and report.verdict.summary is not None
    assert (f"sent by pytracer run (--hang-action kill): {WHY}." in report.verdict.summary) is (pids == [102])
