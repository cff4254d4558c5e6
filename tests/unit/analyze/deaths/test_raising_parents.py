"""A parent that ended its children on the way to an exception of its own, and those that raised for their children."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.deaths.raising_parents import raised_beside_ending
from pytracer.analyze.engine import build_report
from pytracer.analyze.view import Death, ProcessView
from pytracer.decode.types.snapshot import Job, PythonFrame, SignalSend
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.scenarios import program_in
from tests.support.synth import MS, Box

PARENT, FIRST, SECOND = 100, 101, 102
SPAWN = "/usr/lib/python3.11/site-packages/torch/multiprocessing/spawn.py"
POPEN = "/usr/lib/python3.11/multiprocessing/popen_fork.py"
NONE = "'<' not supported between instances of 'NoneType' and 'int'"
KEEPER = """\
import signal
class Log:
    def __init__(self):
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
def main():
    log = Log()
    mp.spawn(train, nprocs=2)
main()
"""
Stack = list[tuple[str, str, int]]


def send(sender: Box, target: Box, at: int, stack: Stack, *, result: int = 0, number: int = 15) -> SignalSend:
    """A note of the sender."""
    frames = tuple(PythonFrame(function=name, file=file, line=line) for name, file, line in stack)
    return SignalSend(
        signal=number, target=target.pid, to_group=False, result=result, target_ticks=target.start_ticks,
        target_state="R", tid=sender.pid, mono_ns=sender.created_ns + at * MS, stack=frames,
    )  # fmt: skip


def sending(job: Job, *sends: SignalSend) -> Job:
    """The job whose parent noted these."""
    return replace(
        job,
        processes=tuple(
            replace(item, snapshot=replace(item.snapshot, sends=sends)) if item.snapshot.pid == PARENT else item
            for item in job.processes
        ),
    )


def spawned(
    run: Path,
    *,
    source: str = KEEPER,
    line: int = 7,
    gone: bool = True,
    collected: int | None = None,
    error: tuple[str, str] = ("TypeError", NONE),
    raised: str = SPAWN,
    ranks: bool = True,
) -> Report:
    """mp.spawn() ended the first of two processes by SIGTERM; the second had ended well, which it does not know."""
    program = str(program_in(run, source))
    own: Stack = [("main", program, line), ("<module>", program, 8)]
    join = [("ProcessContext.join", raised, 187), ("spawn", SPAWN, 340)] if raised == SPAWN else []
    parent = Box(pid=PARENT, ppid=99, argv=["python", program]).at(900)
    if collected is not None:
        parent.wait(SECOND, exit_code=collected)
    parent.at(1200).exception(*error, [*join, *own]).at(1300).exit(1)
    first, second = (
        Box(pid=pid, ppid=PARENT, argv=["python", program], rank=n if ranks else None).at(850)
        for n, pid in enumerate((FIRST, SECOND))
    )
    first.mark("step").at(1010).signal_seen(15, PARENT, ["python", program])
    first.crash(0, code=0, state=6, python=[("train", program, 5)], native=[(s.LIBC, 0x10)])
    second.exit(0)
    job = s.load(run, parent, first, second)
    ends: Stack = [("Popen._send_signal", POPEN, 49), ("ProcessContext.join", SPAWN, 166), ("spawn", SPAWN, 340), *own]
    sends = [send(parent, first, 1000, ends)]
    if gone:
        sends.append(send(parent, second, 1001, ends, result=errno.ESRCH))
    return build_report(sending(job, *sends))


@pytest.mark.parametrize("ranks", [True, False])
def test_parent_that_lost_the_statuses_of_its_children_leads(ranks: bool, run: Path) -> None:
    """With the line that ignores SIGCHLD; what it ended by SIGTERM is its consequence."""
    report = spawned(run, ranks=ranks)
    assert verdict(report) == ("python-exception", "certain")
    assert report.verdict is not None and report.verdict.pid == PARENT
    said = summary(report)
    assert "the exit status of a process of mp.spawn() is None, as SIGCHLD is ignored (line 4)" in said
    assert "had ended with status 0" in said
    assert "Take out line 4, which sets SIGCHLD to SIG_IGN" in advice(report)
    assert "none of them had failed" in advice(report)
    whys = {item.pid: (item.primary, item.why) for item in report.processes or []}
    assert whys[FIRST] == (False, f"ended by its parent, process {PARENT}, which raised TypeError")


def test_ignored_signal_without_a_line_of_the_program_is_told_by_the_kernel(run: Path) -> None:
    """The process inherits it from who started it."""
    report = spawned(run, source=KEEPER.replace("SIG_IGN", "handler"))
    assert "as SIGCHLD is ignored and the kernel keeps none then" in summary(report)
    assert "Find what ignores SIGCHLD" in advice(report)


def test_wait_for_any_child_that_took_the_status_is_named(run: Path) -> None:
    """Nothing ignores the signal: another line had collected the child."""
    source = KEEPER.replace("signal.signal(signal.SIGCHLD, signal.SIG_IGN)", "os.waitpid(-1, os.WNOHANG)")
    said = summary(spawned(run, source=source, gone=False, collected=0))
    assert "probably because `os.waitpid(-1, os.WNOHANG)` at line 4 waits for any child" in said


BACK = "signal.signal(signal.SIGCHLD, signal.SIG_IGN); signal.signal(signal.SIGCHLD, before)"


@pytest.mark.parametrize("action", ["signal.signal(signal.SIGCHLD, signal.SIG_DFL)", BACK], ids=["default", "set back"])
def test_status_that_nothing_took_is_not_explained(action: str, run: Path) -> None:
    """The look-alikes: the default action, and one that is put back in the same function."""
    source = KEEPER.replace("signal.signal(signal.SIGCHLD, signal.SIG_IGN)", action)
    assert "SIGCHLD" not in summary(spawned(run, source=source, gone=False))


def test_exception_about_another_none_is_not_about_a_status(run: Path) -> None:
    """A TypeError of the program's own line."""
    said = summary(spawned(run, raised="program"))
    assert "SIGCHLD" not in said


PLAIN = "def main():\n" + "    pass\n" * 20


def cleaned_up(
    run: Path,
    ended: int,
    raised: int,
    error: tuple[str, str],
    more: Stack,
    leave: Stack = [],  # noqa: B006
    source: str = PLAIN,
) -> Report:
    """A parent ended its child at one line of main(), and raised at another one."""
    program = str(program_in(run, source))
    parent = Box(pid=PARENT, ppid=99, argv=["python", program]).at(1200)
    outer = ("<module>", program, 22)
    parent.exception(*error, [*more, ("main", program, raised), outer]).at(1300).exit(1)
    child = Box(pid=FIRST, ppid=PARENT, argv=["python", program]).at(850).mark("step")
    child.at(1010).signal_seen(15, PARENT, ["python", program])
    child.crash(0, code=0, state=6, python=[("serve", program, 5)], native=[(s.LIBC, 0x10)])
    stack: Stack = [("Popen._send_signal", POPEN, 49), *leave, ("main", program, ended), outer]
    return build_report(sending(s.load(run, parent, child), send(parent, child, 1000, stack)))


def leads(report: Report) -> bool:
    """Whether the parent's exception is the verdict."""
    return verdict(report)[0] == "python-exception" and report.verdict is not None and report.verdict.pid == PARENT


WITH: Stack = [("Workers.__exit__", "workers.py", 9)]
DEEPER: Stack = [("step", "/usr/lib/python3.11/site-packages/torch/optim/sgd.py", 3)]


@pytest.mark.parametrize(
    ("ended", "raised", "error", "more", "leave", "own"),
    [
        (9, 4, ("ValueError", "bad label"), [], [], True),
        (3, 5, ("ValueError", "bad label"), DEEPER, WITH, True),
        (4, 9, ("RuntimeError", "a worker is stuck"), [], [], False),
        (9, 4, ("TimeoutError", ""), [], [], False),
        (9, 4, ("_queue.Empty", ""), DEEPER, [], False),
        (9, 4, ("RuntimeError", "no answer: timed out"), [], [], False),
        (9, 4, ("subprocess.CalledProcessError", "Command 'x' died"), [], [], False),
    ],
    ids=["finally", "with", "raised behind it", "time", "empty queue", "timed out", "reports it"],
)
def test_parent_whose_own_error_ended_its_children_leads(
    ended: int, raised: int, error: tuple[str, str], more: Stack, leave: Stack, own: bool, run: Path
) -> None:
    """`finally: worker.terminate()`, `with`. The look-alikes raise because of the child, or of what it did not do."""
    report = cleaned_up(run, ended, raised, error, more, leave)
    assert leads(report) == own, (verdict(report), summary(report))


WATCHES = """def main():
    while True:
        if hung:
            raise RuntimeError("a worker is stuck")
        if old():
            hung = True
            worker.terminate()
"""
CLEANS = """def main():
    for epoch in range(3):
        try:
            raise ValueError("bad label")
        except OSError:
            pass
        finally:
            worker.terminate()
"""


@pytest.mark.parametrize(("source", "ended", "own"), [(WATCHES, 7, False), (CLEANS, 8, True)])
def test_loop_that_ends_a_child_and_raises_in_the_next_round(source: str, ended: int, own: bool, run: Path) -> None:
    """A watchdog: the child stays first. The look-alike: a `finally` in a loop."""
    assert leads(cleaned_up(run, ended, 4, ("RuntimeError", "stuck"), [], source=source)) == own


def test_parent_is_judged_once_for_all_its_children(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them asks."""
    asked: list[Death] = []

    def judge(parent: Death, children: Sequence[ProcessView], below: Sequence[Death]) -> bool:
        asked.append(parent)
        return raised_beside_ending(parent, children, below)

    monkeypatch.setattr("pytracer.analyze.deaths.consequences.raised_beside_ending", judge)
    spawned(run)
    assert len(asked) == 1


def test_child_that_died_by_itself_stays_first(run: Path) -> None:
    """The look-alike: one was ended, another one had failed before."""
    program = str(program_in(run, KEEPER))
    own: Stack = [("main", program, 7), ("<module>", program, 8)]
    parent = Box(pid=PARENT, ppid=99, argv=["python", program]).at(900).wait(SECOND, exit_code=1)
    parent.at(1200).exception("ValueError", "no result", [("get", SPAWN, 9), *own]).at(1300).exit(1)
    first = Box(pid=FIRST, ppid=PARENT, rank=0).at(850).mark("step")
    first.at(1010).signal_seen(15, PARENT, ["python", program])
    first.crash(0, code=0, state=6, python=[("train", program, 5)], native=[(s.LIBC, 0x10)])
    second = Box(pid=SECOND, ppid=PARENT, rank=1).at(850).exception("KeyError", "'x'", own).exit(1)
    ends: Stack = [("Popen._send_signal", POPEN, 49), ("join", SPAWN, 166), *own]
    report = build_report(sending(s.load(run, parent, first, second), send(parent, first, 1000, ends)))
    assert report.verdict is not None and report.verdict.pid == SECOND
