"""Deaths that mislead: of helpers, the same exception on every rank, ends that only a signal announced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.analyze.platform.signals import SI_KERNEL
from pytracer.decode.types.snapshot import PythonFrame, SignalSend
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.scenarios import program_in
from tests.support.standing import TIMEOUT, stopped
from tests.support.synth import MS, Box

PID, HELPER = 101, 150
LOAD = [("load", s.SCRIPT, 7), ("<module>", s.SCRIPT, 40)]
STEPD = ["slurmstepd: [4711.0]"]


def primary(report: Report) -> dict[int | None, bool | None]:
    return {item.pid: item.primary for item in report.processes or []}


def helper(code: int = 1) -> Box:
    return Box(pid=HELPER, ppid=PID, argv=["ld", "-lnope"]).at(100).exit(code)


def parent() -> Box:
    return Box(pid=PID, ppid=99).at(110).wait(HELPER, exit_code=1).at(500)


@pytest.mark.parametrize("how", ["fault", "exception", "sigkill"])
def test_reaped_helper_never_outranks_the_end_of_its_parent(how: str, run: Path) -> None:
    """ld, git and compilers fail as part of normal work."""
    box = parent()
    if how == "fault":
        box.crash(addr=0, python=s.BACKWARD[:1], native=s.NATIVE[:1])
    elif how == "exception":
        box.exception("ValueError", "bad", LOAD).exit(1)
    root = Box(pid=99, ppid=98, argv=["sh"]).at(600)
    root.wait(PID, exit_code=1) if how == "exception" else root.wait(PID, signal=11 if how == "fault" else 9)
    report = build_report(s.load(run, root.exit(1), box, helper()))
    assert report.verdict is not None and report.verdict.pid == PID
    assert primary(report)[HELPER] is None


def test_child_that_raised_never_outranks_a_later_fault_of_the_parent_that_reaped_it(run: Path) -> None:
    """A rank starts scripts, and goes on when they fail."""
    child = Box(pid=HELPER, ppid=PID).at(90).exception("ValueError", "bad", LOAD).exit(1)
    report = build_report(s.load(run, parent().crash(addr=0, native=s.NATIVE[:1]), child))
    assert report.verdict is not None and report.verdict.pid == PID
    assert primary(report)[HELPER] is None


def test_child_that_raised_before_its_parent_raised_stays_first(run: Path) -> None:
    """The look-alike: the parent may have missed what the child should have done."""
    child = Box(pid=HELPER, ppid=PID).at(90).exception("ValueError", "bad", LOAD).exit(1)
    report = build_report(s.load(run, parent().exception("KeyError", "'result'", LOAD).exit(1), child))
    assert report.verdict is not None and report.verdict.pid == HELPER


@pytest.mark.parametrize("of_loader", [True, False])
def test_worker_that_ended_itself_is_why_its_tensor_is_not_there(of_loader: bool, run: Path) -> None:
    """sys.exit() in a dataset: the parent finds no socket of the worker. The look-alike: a program that it ran."""
    child = Box(pid=HELPER, ppid=PID).at(90)
    if of_loader:
        child.entry_of_worker(0)
    frames = [("SocketClient", "/usr/lib/python3.11/multiprocessing/connection.py", 646), ("main", s.SCRIPT, 9)]
    box = parent().exception("FileNotFoundError", "[Errno 2] No such file or directory", frames).exit(1)
    report = build_report(s.load(run, box, child.at(100).exit(1)))
    assert report.verdict is not None and report.verdict.pid == (HELPER if of_loader else PID)


def test_helper_below_a_shell_is_left_out_with_the_shell(run: Path) -> None:
    """sh -c "ld -lnope" has the status of ld."""
    shell = Box(pid=140, ppid=PID, argv=["sh", "-c", "ld -lnope"]).at(100).wait(HELPER, exit_code=1).exit(1)
    tool = Box(pid=HELPER, ppid=140, argv=["ld", "-lnope"]).at(90).exit(1)
    box = Box(pid=PID, ppid=99).at(110).wait(140, exit_code=1).at(500).crash(addr=0, native=s.NATIVE[:1])
    report = build_report(s.load(run, box, shell, tool))
    assert report.verdict is not None and report.verdict.pid == PID


def test_child_that_the_exception_reports_is_the_cause(run: Path) -> None:
    """The look-alike: subprocess.run(check=True)."""
    error = ("subprocess.CalledProcessError", "Command 'train' returned non-zero exit status 3.")
    report = build_report(s.load(run, parent().exception(*error, LOAD).exit(1), helper(3)))
    assert report.verdict is not None and report.verdict.pid == HELPER
    assert primary(report)[PID] is False


def test_child_whose_status_the_parent_passes_on_is_the_cause(run: Path) -> None:
    """The look-alike: a launcher script exits with what its child exited with."""
    report = build_report(s.load(run, parent().exit(1), helper(1)))
    assert report.verdict is not None and report.verdict.pid == HELPER


def test_same_exception_on_every_rank_is_nobodys_consequence(run: Path) -> None:
    """As with signals: the same exception, independently; numbers in the message may differ."""
    boxes = [
        s.rank(n).at(500 + 70 * n).exception("FileNotFoundError", f"no /data/rank{n}.pt", LOAD).exit(1) for n in (0, 1)
    ]
    report = build_report(s.load(run, s.agent((101, {"exit_code": 1}), (102, {"exit_code": 1})), *boxes))
    ranks = [(item.primary, item.why) for item in report.processes or [] if item.role == "rank"]
    assert ranks == [(True, "first"), (True, "the same exception, independently")]
    assert summary(report).startswith("Ranks 0 and 1 raised FileNotFoundError")


@pytest.mark.parametrize(
    ("message", "line"), [("no such option", 7), ("no /data/rank1.pt", 8)], ids=["message", "line"]
)
def test_another_exception_stays_a_later_death(message: str, line: int, run: Path) -> None:
    """The look-alike: another message or another line."""
    first = s.rank(0).at(500).exception("ValueError", "no /data/rank0.pt", LOAD).exit(1)
    second = s.rank(1).at(570).exception("ValueError", message, [("load", s.SCRIPT, line), LOAD[1]]).exit(1)
    report = build_report(s.load(run, s.agent((101, {"exit_code": 1}), (102, {"exit_code": 1})), first, second))
    ranks = [item.primary for item in report.processes or [] if item.role == "rank"]
    assert ranks == [True, False]


def test_ranks_that_lose_each_other_are_not_independent(run: Path) -> None:
    """The look-alike: the same words on both, because each noticed the other."""
    text = "[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:51234"
    boxes = [s.rank(n).at(500 + 70 * n).exception("RuntimeError", text, LOAD).exit(1) for n in (0, 1)]
    report = build_report(s.load(run, s.agent((101, {"exit_code": 1}), (102, {"exit_code": 1})), *boxes))
    assert [item.primary for item in report.processes or [] if item.role == "rank"] == [True, False]
    assert verdict(report) == ("python-exception", "possible")


@pytest.mark.parametrize(
    ("error", "file", "confidence"),
    [
        (("ConnectionRefusedError", "[Errno 111] Connection refused"), "/usr/lib/python3.11/socket.py", "certain"),
        (("TimeoutError", "timed out"), "/usr/lib/python3.11/socket.py", "certain"),
        (("urllib.error.URLError", "<urlopen error timed out>"), "/usr/lib/python3.11/urllib/request.py", "certain"),
        (("RuntimeError", "Socket Timeout"), f"{s.TORCH}/distributed/rendezvous.py", "possible"),
        (("torch.distributed.DistNetworkError", "Connection refused"), s.SCRIPT, "possible"),
        (("RuntimeError", "NCCL communicator was aborted: timeout"), s.SCRIPT, "possible"),
    ],
)
def test_only_c10d_speaks_of_peers(error: tuple[str, str], file: str, confidence: str, run: Path) -> None:
    """A data server that refuses a connection is no rank."""
    box = s.rank(0).at(500).exception(*error, [("call", file, 3), *LOAD]).exit(1)
    report = build_report(s.load(run, box))
    assert verdict(report) == ("python-exception", confidence)


def unseen(**seen: object) -> Box:
    """A process whose parent is not traced; its last record is a signal."""
    box = Box(pid=PID, ppid=7, argv=["python", "train.py"], environment={"SLURM_JOB_ID": "4711"})
    return box.versions(python="3.11.7", torch="2.13.0").at(500).signal_seen(15, 7, STEPD, **seen)  # type: ignore[arg-type]


def test_end_that_nobody_saw_falls_back_on_the_fatal_signal(run: Path) -> None:
    """scancel below srun: slurmstepd sent SIGTERM, and the default action ended the process."""
    report = build_report(s.load(run, unseen()))
    assert verdict(report) == ("external-kill", "certain")
    assert "was ended by SIGTERM, sent by its parent, process 7 (slurmstepd: [4711.0])" in summary(report)
    assert "sacct -j 4711" in advice(report)


def test_end_that_nobody_saw_after_a_handled_signal_is_only_likely(run: Path) -> None:
    """The program's own handler took SIGTERM; SIGKILL, which leaves nothing, usually follows."""
    report = build_report(s.load(run, unseen(handled=True).at(20_500).mark("saving")))
    assert verdict(report) == ("external-kill", "likely")
    assert "received SIGTERM, sent by its parent, process 7" in summary(report)
    assert "went on for 20" in summary(report)


def test_process_that_worked_on_did_not_die_of_the_signal(run: Path) -> None:
    """The look-alike: pid 1 ignores what it does not handle; so the signal is much earlier than the end."""
    report = build_report(s.load(run, unseen().at(60_500).mark("step 900")))
    assert verdict(report)[1] != "certain"


def test_end_without_any_signal_stays_unknown(run: Path) -> None:
    """The look-alike: nothing was recorded."""
    report = build_report(s.load(run, Box(pid=PID, ppid=7).versions(torch="2.13.0").at(500).mark("step 3")))
    assert verdict(report)[0] == "unknown"


def test_chain_of_senders_is_followed_to_its_beginning(run: Path) -> None:
    """timeout ends ninja, which ends sh: timeout is the one to ask."""
    timeout = Box(pid=90, ppid=80, argv=["timeout", "60", "ninja"]).at(900).wait(91, signal=15).exit(124)
    ninja = Box(pid=91, ppid=90, argv=["ninja"]).at(500).signal_seen(15, 90, ["timeout", "60", "ninja"])
    ninja.at(520).wait(92, signal=15)
    shell = Box(pid=92, ppid=91, argv=["sh", "-c", "cc"]).at(510).signal_seen(15, 91, ["ninja"])
    report = build_report(s.load(run, timeout, ninja, shell))
    text = summary(report)
    assert "process 90 (timeout)" in text
    if report.verdict is not None and report.verdict.pid == 92:
        assert "process 91 (ninja), which had received it from its parent, process 90 (timeout)" in text


def raised_again(*, handled: bool) -> Box:
    """A process that got SIGTERM from timeout(1), and sends it to itself afterwards."""
    box = Box(pid=91, ppid=90, argv=["python", "train.py"]).versions(python="3.11.7", torch="2.13.0")
    box.at(500).signal_seen(15, 90, ["timeout", "60", "python"], handled=handled)
    return box.at(501).signal_seen(15, 91, ["python", "train.py"], code=-6)


@pytest.mark.parametrize("handled", [True, False])
def test_handler_that_raises_the_signal_again_passes_a_request_on(handled: bool, run: Path) -> None:
    """torch's handler in DataLoader workers does; without a handler, the process sent it for a reason of its own."""
    parent = Box(pid=90, ppid=80, argv=["timeout", "60", "python"]).at(900).wait(91, signal=15).exit(124)
    text = summary(build_report(s.load(run, parent, raised_again(handled=handled))))
    assert ("process 90 (timeout)" in text) == handled, text
    assert ("to itself" in text) != handled, text


def test_signal_that_a_sender_received_later_is_no_link(run: Path) -> None:
    """The look-alike: ninja ended sh by itself; it was ended afterwards."""
    ninja = Box(pid=91, ppid=90, argv=["ninja"]).at(900).signal_seen(15, 90, ["timeout", "60", "ninja"])
    shell = Box(pid=92, ppid=91, argv=["sh", "-c", "cc"]).at(510).signal_seen(15, 91, ["ninja"])
    root = Box(pid=90, ppid=80, argv=["timeout"]).at(950).wait(91, signal=15).exit(124)
    report = build_report(s.load(run, root, ninja.at(520).wait(92, signal=15), shell))
    assert "which had received" not in summary(report)


def hung_up(code: int, sender: int) -> tuple[Box, Box]:
    """torchrun's agent, which SIGHUP reached first, and the rank to which it passes it on."""
    agent = Box(pid=100, ppid=80, argv=["torchrun", "train.py"]).at(900)
    agent.signal_seen(1, sender, ["bash"] if sender else (), code=code, handled=True).at(950).wait(101, signal=1).exit(
        1
    )
    return agent, s.rank(0).at(910).signal_seen(1, 100, ["torchrun", "train.py"])


def test_sighup_of_the_kernel_is_the_end_of_a_terminal(run: Path) -> None:
    """Whoever passed it on is not the one to ask."""
    report = build_report(s.load(run, *hung_up(code=128, sender=0)))
    assert "which had received it from the kernel, because its terminal was closed" in summary(report)
    assert report.verdict is not None and "tmux" in (report.verdict.advice or "")


def test_sighup_of_a_process_has_nothing_to_do_with_a_terminal(run: Path) -> None:
    """The look-alike: somebody sent it by kill()."""
    report = build_report(s.load(run, *hung_up(code=0, sender=77)))
    assert "terminal" not in summary(report)
    assert report.verdict is not None and "tmux" not in (report.verdict.advice or "")


@pytest.mark.parametrize(
    ("number", "class_", "words"),
    [
        (10, "external-kill", "was ended by SIGUSR1, for which it had no handler"),
        (12, "external-kill", "was ended by SIGUSR2, for which it had no handler"),
        (24, "resource-limit", "was ended by SIGXCPU, because it had used up its CPU time"),
        (25, "resource-limit", "was ended by SIGXFSZ, because a file would have become larger than allowed"),
        (14, "timer", "was ended by SIGALRM, the signal of a timer, for which no handler was installed when it came"),
        (34, "unknown", "died of SIGRTMIN"),
    ],
)
def test_signal_that_ends_a_process_without_a_handler_is_explained(
    number: int, class_: str, words: str, run: Path
) -> None:
    """By what it is for; the last one is for nothing in particular."""
    parent = Box(pid=90, ppid=80, argv=["sh"]).at(900).wait(91, signal=number).exit(128 + number)
    victim = Box(pid=91, ppid=90, argv=["python", "train.py"]).versions(torch="2.13.0").at(500).mark("step 3")
    report = build_report(s.load(run, parent, victim))
    assert verdict(report)[0] == class_
    assert words in summary(report)


def test_limit_of_cpu_time_was_enforced_by_the_kernel(run: Path) -> None:
    """Its signal has no sender to look for; timeout(1), which ends itself by the same one, is not named."""
    parent = Box(pid=90, ppid=80, argv=["timeout", "60", "python"]).at(900).wait(91, signal=24).signal_seen(24, 90)
    victim = Box(pid=91, ppid=90, argv=["python", "train.py"]).versions(torch="2.13.0").at(500)
    victim.signal_seen(24, 0, code=SI_KERNEL)
    above = Box(pid=80, ppid=1, argv=["sh"]).at(950).wait(90, signal=24).exit(152)
    report = build_report(s.load(run, above, parent, victim))
    assert verdict(report) == ("resource-limit", "certain")
    assert [finding.id for finding in report.findings or []].count("other-death") == 1
    assert not any("not recorded" in item for finding in report.findings or [] for item in finding.missing or [])


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (24, "No limit of the process itself (`ulimit`) ended it: another process sent the signal. Look at watch.py:7"),
        (1, "Look at watch.py:7 in watch, which sends it. By SIGHUP daemons are asked to open their logs"),
    ],
)
def test_signal_that_a_recorded_process_sent_is_looked_for_there(number: int, words: str, run: Path) -> None:
    """Found by twins: a quota's SIGXCPU was to be mended by `ulimit -t`, a log rotation's SIGHUP by a time limit."""
    parent = Box(pid=90, ppid=80, argv=["python", "watch.py"]).at(900).wait(91, signal=number).exit(1)
    victim = Box(pid=91, ppid=90, argv=["python", "train.py"]).versions(torch="2.13.0").at(500)
    victim.signal_seen(number, 90)
    job = s.load(run, parent, victim)
    frames = (PythonFrame("watch", "/srv/watch.py", 7),)
    send = SignalSend(number, 91, False, 0, victim.start_ticks, "R", 90, victim.created_ns + 800_000_000, frames)
    processes = [
        replace(item, snapshot=replace(item.snapshot, sends=(send,))) if item.snapshot.pid == 90 else item
        for item in job.processes
    ]
    report = build_report(replace(job, processes=tuple(processes)))
    assert verdict(report)[0] == "external-kill"
    assert words in advice(report)


@pytest.mark.parametrize(
    ("sender", "code", "words", "next_step"),
    [
        (0, SI_KERNEL, "was interrupted from its terminal (SIGINT)", "Ctrl-C"),
        (91, 0, "was interrupted by a SIGINT that it had sent to itself", "signal.raise_signal()"),
        (77, 0, "was interrupted by SIGINT, sent by process 77", "why that process sent the signal"),
    ],
)
def test_interrupted_process_names_who_interrupted_it(
    sender: int, code: int, words: str, next_step: str, run: Path
) -> None:
    """Python raises the signal again for itself when the program has ended: that one is not the reason."""
    parent = Box(pid=90, ppid=80, argv=["sh"]).at(900).wait(91, signal=2).exit(130)
    victim = Box(pid=91, ppid=90, argv=["python", "train.py"]).versions(torch="2.13.0").at(500)
    victim.signal_seen(2, sender, code=code, handled=True).at(600).signal_seen(2, 91)
    report = build_report(s.load(run, parent, victim))
    assert words in summary(report)
    assert next_step in advice(report)


@pytest.mark.parametrize(("handled", "at", "obeyed"), [(True, 900, True), (False, 900, False), (True, 500_000, False)])
def test_status_after_a_handled_request_to_end_is_its_answer(handled: bool, at: float, obeyed: bool, run: Path) -> None:
    """A handler that saves and leaves. The look-alikes: nobody handled it, and work that went on for minutes."""
    parent = Box(pid=90, ppid=80, argv=["timeout", "60", "python"]).at(at + 10).wait(91, exit_code=99).exit(124)
    box = Box(pid=91, ppid=90, argv=["python", "train.py"]).versions(torch="2.13.0")
    box.at(500).signal_seen(15, 90, ["timeout", "60", "python"], handled=handled).at(at).exit(99)
    report = build_report(s.load(run, parent, box))
    text = summary(report)
    words = "received SIGTERM, sent by its parent, process 90 (timeout), and ended itself with exit status 99"
    assert (words in text) == obeyed, text
    assert (verdict(report)[0] == "external-kill") == obeyed


@pytest.mark.parametrize(
    ("kind", "passed_on"), [("submitit.core.utils.UncompletedJobError", True), ("submitit.core.utils.Waiting", False)]
)
def test_submitter_passes_on_the_death_of_its_job(kind: str, passed_on: bool, run: Path) -> None:
    """submitit's local executor. The look-alike: another exception of its own."""
    submitter = Box(pid=100, ppid=99, argv=["python", "submit.py"]).at(2000).wait(101, exit_code=0)
    submitter.at(2500).exception(kind, "Job 101", LOAD).exit(1)
    controller = Box(pid=101, ppid=100, argv=["python", "-m", "submitit.local._local"]).at(900).mark("step")
    controller.at(1800).wait(102, signal=9).at(1900).exit(0)
    worker = Box(pid=102, ppid=101, argv=["python", "-m", "submitit.core._submit"]).at(900).mark("step")
    report = build_report(s.load(run, submitter, controller, worker))
    assert report.verdict is not None
    assert report.verdict.pid == (102 if passed_on else 100), summary(report)


@pytest.mark.parametrize("first", [True, False])
def test_driver_that_raised_before_any_rank_died_reports_none_of_them(first: bool, run: Path) -> None:
    """Ray's driver gets the exception of an actor, and ends all actors; the other way round it only passes it on."""
    driver = Box(pid=100, ppid=99, argv=["python", "driver.py"]).at(1000 if first else 2500)
    driver.exception("ray.exceptions.RayTaskError(ValueError)", "label 11", LOAD).at(2600)
    driver.wait(101, signal=15).at(3000).exit(1)
    rank = Box(pid=101, ppid=100, rank=0).at(2000).crash(signal=15, code=0, sender_pid=77, python=LOAD, native=())
    report = build_report(s.load(run, driver, rank))
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.pid) == (
        ("python-exception", 100) if first else ("external-kill", 101)
    )


@pytest.mark.parametrize("after", [True, False])
def test_process_that_its_parent_ended_after_it_had_raised_is_no_news(after: bool, run: Path) -> None:
    """Ray's driver ends its services on its way out; what it killed before it raised may be why it did."""
    parent = Box(pid=100, ppid=99, argv=["python", "driver.py"]).at(1000).exception("ValueError", "bad", LOAD)
    parent.at(1500).wait(101, signal=9).at(3000).exit(1)
    child = Box(pid=101, ppid=100, argv=["python", "monitor.py"]).at(900).mark("step")
    job = s.load(run, parent, child)
    sent = SignalSend(
        signal=9, target=101, to_group=False, result=0, target_ticks=child.start_ticks, target_state="S", tid=100,
        mono_ns=parent.created_ns + (1400 if after else 700) * MS,
    )  # fmt: skip
    processes = tuple(
        replace(item, snapshot=replace(item.snapshot, sends=(sent,))) if item.snapshot.pid == 100 else item
        for item in job.processes
    )
    report = build_report(replace(job, processes=processes))
    assert report.verdict is not None
    assert report.verdict.pid == 100
    assert primary(report)[101] is (None if after else False), primary(report)


@pytest.mark.parametrize("noted", [True, False])
def test_child_that_was_killed_before_its_parent_ended_is_the_cause(noted: bool, run: Path) -> None:
    """Its parent waited in a queue and never looked after it, so that it was reaped after its parent's end. The
    look-alike: nobody noted when it was killed.
    """
    root = Box(pid=99, ppid=98, argv=["timeout", "25", "python", "serve.py"]).at(25_010).wait(101, signal=15).exit(124)
    parent = Box(pid=101, ppid=99).versions(torch="2.13.0").at(25_000).signal_seen(15, 99, ["timeout", "25"])
    parent.crash(0, code=0, state=6, python=[("main", s.SCRIPT, 7)], native=[(s.LIBC, 0x10)])
    child = Box(pid=102, ppid=101, argv=["engine"]).at(900).mark("step")
    job = s.load(run, root, parent, child, Box(pid=98, ppid=1, argv=["sh"]).at(31_000).wait(102, signal=9).exit(124))
    sent = SignalSend(
        signal=9, target=102, to_group=False, result=0, target_ticks=child.start_ticks, target_state="S", tid=101,
        mono_ns=parent.created_ns + 5_000 * MS,
    )  # fmt: skip
    processes = tuple(
        replace(item, snapshot=replace(item.snapshot, sends=(sent,) if noted else ()))
        if item.snapshot.pid == 98
        else item
        for item in job.processes
    )
    report = build_report(replace(job, processes=processes))
    assert (primary(report)[102] is True) == noted, report.verdict


@pytest.mark.parametrize("how", ["dismissed", "by another", "parent failed", "rank died"])
def test_launcher_that_its_parent_ended_on_its_own_way_out_is_no_news(how: str, run: Path) -> None:
    """Jupyter ends a kernel whose ranks have all ended well. The look-alikes are deaths."""
    failed = how == "parent failed"
    root = Box(pid=90, ppid=80, argv=["jupyter-execute", "job.ipynb"]).at(3000).wait(91, signal=15)
    root.at(3100).exit(1 if failed else 0)
    kernel = Box(pid=91, ppid=90, argv=["python", "-m", "ipykernel_launcher"]).at(2000)
    kernel.wait(92, signal=11) if how == "rank died" else kernel.wait(92, exit_code=0)
    kernel.wait(93, exit_code=0)
    kernel.at(2500).crash(signal=15, code=0, sender_pid=77 if how == "by another" else 90, python=LOAD, native=())
    ranks = [Box(pid=92 + n, ppid=91, rank=n).at(1000) for n in (0, 1)]
    for box in ranks:
        if how == "rank died" and box is ranks[0]:
            box.crash(addr=0, python=LOAD, native=s.NATIVE[:1])
        else:
            box.exit(0)
    report = build_report(s.load(run, root, kernel, *ranks))
    assert {p.pid: p.role for p in report.processes or ()}[91] == "launcher"
    expected = {"dismissed": "clean", "rank died": "null-dereference"}.get(how, "external-kill")
    assert verdict(report)[0] == expected, summary(report)


@pytest.mark.parametrize("number", [9, 15])
def test_report_of_a_job_that_went_on_says_which_child_was_killed(number: int, run: Path) -> None:
    """Nothing died is not said beside a SIGKILL; SIGTERM is how helpers are dismissed."""
    child = Box(pid=HELPER, ppid=PID, argv=["python", "k.py"])
    report = build_report(s.load(run, Box(pid=PID, ppid=99).at(110).wait(HELPER, signal=number).at(500).exit(0), child))
    assert report.verdict is not None and report.verdict.class_ == "clean"
    killed = f"Process {HELPER} (k.py) was ended by SIGKILL; nothing else that was recorded failed."
    assert report.verdict.summary == (killed if number == 9 else "Nothing died: 2 processes recorded.")


@pytest.mark.parametrize("sender", ["its child", "a neighbour", "its parent", "kill of its parent", "nobody recorded"])
def test_report_of_a_job_that_went_on_says_which_child_another_process_ended(sender: str, run: Path) -> None:
    """A watchdog below it, or a process beside it; the parent, or a program that it starts, dismisses its helpers."""
    pid = {"its parent": PID, "nobody recorded": 77}.get(sender, 160)
    python = {} if sender == "kill of its parent" else {"python": "3.11.7"}
    child = Box(pid=HELPER, ppid=PID, argv=["python", "k.py"]).versions(python="3.11.7").at(100)
    child.crash(signal=15, code=0, sender_pid=pid, python=LOAD, native=())
    other = Box(pid=160, ppid=HELPER if sender == "its child" else PID, argv=["watch"]).versions(**python)
    other.at(120).exit(0)
    root = Box(pid=PID, ppid=99, argv=["python", "main.py"]).at(110).wait(HELPER, signal=15).at(500).exit(0)
    report = build_report(s.load(run, root, child, other))
    assert report.verdict is not None and report.verdict.class_ == "clean"
    told = sender in ("its child", "a neighbour")
    by = "its own child, process 160 (watch)" if sender == "its child" else "process 160 (watch)"
    words = f"Process {HELPER} (k.py) was ended by SIGTERM, sent by {by}; its parent went on"
    assert (report.verdict.summary or "").startswith(words if told else "Nothing died"), report.verdict.summary
    assert ("exitcode" in (report.verdict.advice or "")) == told


@pytest.mark.parametrize("raises", [True, False])
def test_report_of_a_job_that_went_on_says_what_a_child_raised(raises: bool, run: Path) -> None:
    """Nothing died is not said beside a traceback; a child that only ended with a status is a helper."""
    child = Box(pid=HELPER, ppid=PID, argv=["python", "k.py"]).at(300)
    child = (child.exception("ValueError", "bad", LOAD) if raises else child).exit(1)
    parent = Box(pid=PID, ppid=99).at(310).wait(HELPER, exit_code=1).at(500).exit(0)
    report = build_report(s.load(run, parent, child))
    assert report.verdict is not None and report.verdict.class_ == "clean"
    said = report.verdict.summary or ""
    assert said.startswith(f"Process {HELPER} (k.py) raised ValueError: bad at") == raises, said
    assert raises or said == "Nothing died: 2 processes recorded."


@pytest.mark.parametrize("how", ["pool", "terminated", "killed", "raised", "soon", "gave up", "pool gave up"])
def test_child_that_its_parent_ended_long_before_is_no_news(how: str, run: Path) -> None:
    """`with Pool()` for the training set, then the same for the validation set, in which it stood still. The
    look-alikes: the parent raised, ended at once, or gave up with a status of its own.
    """
    file = "/usr/lib/python3.11/multiprocessing/pool.py" if how.startswith("pool") else s.SCRIPT
    number = 9 if how == "killed" else 15
    root = Box(pid=90, ppid=80, argv=TIMEOUT).at(60_010).wait(100, signal=15).exit(124)
    parent = Box(pid=100, ppid=90, argv=["python", "train.py"]).versions(torch="2.13.0").at(1000)
    parent.wait(101, signal=number)
    if how in ("raised", "soon", "gave up", "pool gave up"):
        parent.at(1100 if how == "soon" else 40_000)
        parent = parent.exception("RuntimeError", "worker died", LOAD).exit(1) if how == "raised" else parent.exit(3)
        root = Box(pid=90, ppid=80, argv=["bash"]).at(60_010).wait(100, exit_code=1 if how == "raised" else 3).exit(1)
    else:
        parent = stopped(parent, [("main", s.SCRIPT, 29)])
    child = Box(pid=101, ppid=100, argv=["python", "train.py"]).at(900).mark("step")
    job = s.load(run, root, parent, child)
    stack = (PythonFrame(function="Pool._terminate_pool", file=file, line=657),)
    sent = SignalSend(
        signal=number, target=101, to_group=False, result=0, target_ticks=child.start_ticks, target_state="S", tid=100,
        mono_ns=parent.created_ns + 990 * MS, stack=stack,
    )  # fmt: skip
    processes = tuple(
        replace(item, snapshot=replace(item.snapshot, sends=(sent,))) if item.snapshot.pid == 100 else item
        for item in job.processes
    )
    report = build_report(replace(job, processes=processes))
    assert report.verdict is not None
    assert (primary(report)[101] is False) == (how in ("pool", "terminated", "killed")), primary(report)
    assert (report.verdict.pid == 100) == (how in ("pool", "terminated", "killed")), report.verdict


@pytest.mark.parametrize(
    ("file", "signal", "of_pool"),
    [
        ("/usr/lib/python3.11/multiprocessing/pool.py", 15, True),
        ("/opt/env/lib/python3.11/site-packages/joblib/externals/loky/backend/utils.py", 9, True),
        (s.SCRIPT, 15, False),
        (s.SCRIPT, 9, False),
    ],
    ids=["pool", "loky", "terminated", "killed"],
)
def test_process_of_a_pool_that_its_parent_ended_is_no_news(file: str, signal: int, of_pool: bool, run: Path) -> None:
    """Pools end them before the exception reaches the top; the look-alikes were ended by the program's line."""
    parent = Box(pid=100, ppid=99, argv=["python", "train.py"]).at(1000).wait(101, signal=signal)
    parent.at(1020).exception("ValueError", "bad", LOAD).at(1100).exit(1)
    child = Box(pid=101, ppid=100, argv=["python", "train.py"]).at(900).mark("step")
    job = s.load(run, parent, child)
    stack = (PythonFrame(function="Pool._terminate_pool", file=file, line=657),)
    sent = SignalSend(
        signal=signal, target=101, to_group=False, result=0, target_ticks=child.start_ticks, target_state="S", tid=100,
        mono_ns=parent.created_ns + 990 * MS, stack=stack,
    )  # fmt: skip
    processes = tuple(
        replace(item, snapshot=replace(item.snapshot, sends=(sent,))) if item.snapshot.pid == 100 else item
        for item in job.processes
    )
    report = build_report(replace(job, processes=processes))
    assert (primary(report)[101] is False) == of_pool, primary(report)
    if of_pool:
        assert report.verdict is not None
        assert (report.verdict.class_, report.verdict.pid) == ("python-exception", 100)


CONNECTION = "/usr/lib/python3.11/multiprocessing/connection.py"
BATCHES = [("Connection._recv", CONNECTION, 399), ("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 122)]


@pytest.mark.parametrize(
    ("signal", "sent_at", "raised_at", "stack", "cause"),
    [
        (9, 700, 1000, [*BATCHES, *LOAD], True),
        (9, None, 1000, [*BATCHES, *LOAD], True),  # by the kernel, for memory
        (9, 1100, 1000, [*BATCHES, *LOAD], False),  # on its own way out
        (15, None, 1000, [*BATCHES, *LOAD], False),  # as above, not noted
        (9, 700, 1000, LOAD, False),  # an EOFError of the program's own
    ],
)
def test_connection_to_a_process_that_had_died_is_its_consequence(
    signal: int, sent_at: int | None, raised_at: int, stack: list[tuple[str, str, int]], cause: bool, run: Path
) -> None:
    """Its parent reads from a queue, learns the end late, and its exception does not name the process."""
    parent = Box(pid=100, ppid=99, argv=["python", "train.py"]).at(raised_at).exception("EOFError", "", stack)
    parent.at(1500).wait(101, signal=signal).at(1600).exit(1)
    child = Box(pid=101, ppid=100, argv=["python", "train.py"]).at(650).mark("step")
    job = s.load(run, parent, child)
    if sent_at is not None:
        sent = SignalSend(
            signal=signal, target=101, to_group=False, result=0, target_ticks=child.start_ticks, target_state="S",
            tid=100, mono_ns=parent.created_ns + sent_at * MS,
        )  # fmt: skip
        job = replace(
            job,
            processes=tuple(
                replace(item, snapshot=replace(item.snapshot, sends=(sent,))) if item.snapshot.pid == 100 else item
                for item in job.processes
            ),
        )
    report = build_report(job)
    assert (primary(report).get(101) is True) == cause, primary(report)
    whys = {item.pid: item.why for item in report.processes or []}
    if cause:
        assert whys[100] == "lost the connection to process 101 (train.py)"
        said = [item.summary for item in report.findings or []]
        assert any("raised because process 101 (train.py) had died" in (text or "") for text in said), said
    else:
        assert primary(report)[100] is True


EOF = "eof (this error originated at tensorpipe/transport/shm/connection_impl.cc:259)"
RPC = [("rpc_sync", "/usr/lib/python3.11/site-packages/torch/distributed/rpc/api.py", 842)]


def peers(
    run: Path, message: str, end: dict[str, Any], *, ended_at: int = 900, source: str = "", parent: int = 100
) -> Report:
    """Of two children that call each other by torch's RPC, one raises at 1000 ms, and the other one ends."""
    program = str(program_in(run, source)) if source else "train.py"
    starter = Box(pid=100, ppid=99, argv=["python", "train.py"]).at(ended_at)
    starter.wait(102, exit_code=end.get("exit_code"), signal=end.get("signal"))
    raises = Box(pid=101, ppid=100, argv=["python", "train.py"]).at(1000)
    raises.exception("RuntimeError", message, [*RPC, ("train", program, 1)]).exit(1)
    other = Box(pid=102, ppid=parent, argv=["python", "train.py"]).at(800).mark("step")
    if "exit_code" in end:
        other.at(ended_at).exit(end["exit_code"])
    starter.at(1500).wait(101, exit_code=1).at(1600).exit(1)
    return build_report(s.load(run, starter, raises, other))


@pytest.mark.parametrize(
    ("message", "end", "parent", "cause"),
    [
        (EOF, {"signal": 9}, 100, True),
        (EOF, {"signal": 11}, 100, True),
        (EOF, {"signal": 9}, 55, False),  # of another program
        ("the function raised", {"signal": 9}, 100, False),
    ],
)
def test_rpc_to_a_process_that_had_died_is_its_consequence(
    message: str, end: dict[str, int], parent: int, cause: bool, run: Path
) -> None:
    """They were started side by side."""
    report = peers(run, message, end, parent=parent)
    whys = {item.pid: item.why for item in report.processes or []}
    assert (whys[101] == "lost the connection to process 102 (train.py)") == cause


SERVER = """train()
def serve(done):
    done.wait(timeout=2)
    rpc.shutdown({0})
"""


@pytest.mark.parametrize(
    ("options", "ended_at", "words"),
    [
        (
            "graceful=False",
            900,
            "process 102 (train.py) had ended, with status 0 (rpc.shutdown(graceful=False) at line 4",
        ),
        ("graceful=False", 1400, "process 102 (train.py) ended at that time, with status 0 (rpc.shutdown"),
        ("", 900, "process 102 (train.py) had ended, with status 0."),
    ],
)
def test_rpc_to_a_process_that_left_names_it(options: str, ended_at: int, words: str, run: Path) -> None:
    """Also where it ended a moment later: it had shut down its RPC before."""
    report = peers(run, EOF, {"exit_code": 0}, ended_at=ended_at, source=SERVER.format(options))
    assert report.verdict is not None and words in (report.verdict.summary or "")
    said = advice(report)
    assert ("Line 3 (`done.wait(timeout=2)`) returns after its timeout in any case" in said) == bool(options)
    assert ("Write rpc.shutdown() at line 4, which waits until all" in said) == bool(options)


@pytest.mark.parametrize(
    ("message", "end", "ended_at"),
    [(EOF, {"exit_code": 0}, 5000), ("the function raised", {"exit_code": 0}, 900), (EOF, {"exit_code": 3}, 900)],
)
def test_processes_that_are_no_reason_are_not_named(
    message: str, end: dict[str, int], ended_at: int, run: Path
) -> None:
    """Long after, another message, or an end that is a death of its own."""
    report = peers(run, message, end, ended_at=ended_at, source=SERVER.format("graceful=False"))
    assert report.verdict is not None and "with status 0" not in (report.verdict.summary or "")
