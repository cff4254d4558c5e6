"""SIGHUP of the kernel, of a terminal that the program itself had made and closed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.synth import Box

SOURCE = """import os, pty, subprocess
class Job:
    def __init__(self, work):
        self.pid, self.end = {make}
        if self.pid == 0:
            work()
    def follow(self):
        {close}
    def wait(self):
        return os.waitpid(self.pid, 0)[1]
job = Job(train)
job.follow()
status = job.wait()
sys.exit(status)
"""
BRANCH = """import os, pty
def main():
    pid, end = pty.fork()
    {}
        train()
main()
"""
IN_BRANCH = [("train", 60), ("main", 7), ("<module>", 8)]
FORKED = [("train", 60), ("Job.__init__", 6), ("<module>", 11)]
WITH = "with os.fdopen(self.end, 'rb') as lines: print(next(lines))"
TERMINAL = "because its terminal was closed"


def hung_up(
    run: Path,
    *,
    make: str = "pty.fork()",
    close: str = WITH,
    source: str = SOURCE,
    forked: bool = True,
    parent: bool = True,
    also: bool = False,
    ended_ms: float = 2_000,
    frames: Sequence[tuple[str, int]] = FORKED,
    others: Sequence[Box] = (),
    alike: bool = False,
) -> Report:
    """The kernel hung up process 102 at 1 s; its parent, process 101, asked for its own end."""
    program = str(s.program_in(run, source.format(make=make, close=close)))
    child = Box(pid=102, ppid=101, argv=["python", program]).versions(python="3.11.7").at(500).mark("step").at(1_000)
    child.signal_seen(1, code=128)
    stack = [(function, program if line < 60 else "/gone/train.py", line) for function, line in frames]
    child.crash(0, code=0, state=6, python=stack if forked else [], native=[(s.LIBC, 0x10)])
    box = Box(pid=101, ppid=99, argv=["python", program]).versions(python="3.11.7")
    if also:
        box.at(1_000).signal_seen(1, code=128, handled=True)
    box.at(ended_ms).exit_request(1, stack if alike else [("<module>", program, 14)])
    if ended_ms > 1_000:
        box.wait(102, signal=1)
    box.exit(1)
    if parent:
        return build_report(s.load(run, box, child, *others))
    ended = {"child_pid": 102, "signal": 1, "ended_mono_ns": child.now + 10_000_000}
    return build_report(s.load(run, child, launcher=ended))


def hangup(report: Report) -> tuple[str, str]:
    """The finding about the process that was hung up."""
    found = next(item for item in report.findings or () if TERMINAL in (item.summary or ""))
    return found.summary or "", found.advice or ""


def test_child_in_a_terminal_of_the_programs_own_is_told_by_the_lines_that_make_and_close_it(run: Path) -> None:
    report = hung_up(run)
    assert verdict(report) == ("external-kill", "certain")
    assert (
        f"{TERMINAL}: the pseudo-terminal of `pty.fork()` at program.py:4 in Job.__init__, whose master end process "
        "101 held; line 8 closes it at the end of `with os.fdopen(self.end, 'rb')`"
    ) in summary(report)
    assert "pass closefd=False at line 8" in advice(report) and "in tmux or screen" not in advice(report)


def test_a_close_is_named_by_its_call(run: Path) -> None:
    report = hung_up(run, close="os.close(self.end)")
    assert "line 8 closes it (`os.close(self.end)`)" in summary(report)
    assert advice(report).startswith("Close the master end (`os.close(self.end)`, line 8) only when the child has")


@pytest.mark.parametrize(
    "close",
    [
        "os.waitpid(self.pid, 0); os.close(self.end)",
        "self.child.join(); os.close(self.end)",
        "with os.fdopen(self.end, closefd=False) as lines: print(next(lines))",
        "os.close(self.other)",
        "os.close(end)",
        "if self.pid == 0: os.close(self.end)",
    ],
    ids=["waited", "joined", "kept", "another", "a variable", "in the child"],
)
def test_what_does_not_close_it_is_not_named(close: str, run: Path) -> None:
    """The look-alikes: the terminal is still the program's own."""
    report = hung_up(run, close=close)
    assert "whose master end process 101 held." in summary(report)
    assert "see what closes it" in advice(report)


@pytest.mark.parametrize("text", ["os.path.join(self.folder, 'log')", "', '.join(self.names)"])
def test_a_text_that_is_joined_is_no_wait(text: str, run: Path) -> None:
    assert "line 8 closes it" in summary(hung_up(run, close=f"print({text}); os.close(self.end)"))


def test_a_function_that_is_passed_the_end_closes_it(run: Path) -> None:
    more = SOURCE + "def show(fd):\n    with open(fd, 'rb') as lines:\n        print(next(lines))\n"
    report = hung_up(run, source=more, close="show(self.end)")
    assert "line 16 closes it at the end of `with open(fd, 'rb')`" in summary(report)


def test_a_parent_that_had_ended_closed_it(run: Path) -> None:
    report = hung_up(run, ended_ms=990)
    words, next_step = hangup(report)
    assert "whose master end was closed with process 101, which had ended before" in words
    assert next_step.startswith("Let the parent wait for the child")


def test_a_child_of_another_program_is_perhaps_in_the_terminal_that_its_parent_makes(run: Path) -> None:
    """By the parent's source alone."""
    words, next_step = hangup(hung_up(run, make="pty.openpty()", forked=False))
    assert "perhaps the pseudo-terminal of `pty.openpty()` at program.py:4 in Job.__init__" in words
    assert "in tmux or screen" in next_step and "If it was that terminal: keep the master end open" in next_step
    assert "does not help" not in next_step


def test_the_else_of_a_test_of_the_number_is_the_childs(run: Path) -> None:
    report = hung_up(run, source=BRANCH.format("if pid:\n        follow(end)\n    else:"), frames=IN_BRANCH)
    assert "the pseudo-terminal of `pty.fork()` at program.py:3 in main" in summary(report)


@pytest.mark.parametrize(
    "test",
    [
        "if pid == 0:\n        os._exit(1)\n    if end:",
        "if end == 0:\n        os._exit(1)\n    else:",
        "if pid > 0:\n        print(1)\n    if True:",
        "pid = start()\n    print(1)\n    if pid == 0:",
    ],
)
def test_the_parent_that_forked_is_not_in_the_terminal_of_its_child(test: str, run: Path) -> None:
    """The look-alike: its own terminal was closed; also where it cannot be known which of the two it is."""
    report = hung_up(run, source=BRANCH.format(test), frames=IN_BRANCH)
    words, next_step = hangup(report)
    assert "pseudo-terminal" not in words and "in tmux or screen" in next_step


def test_a_process_with_a_child_of_its_own_may_have_made_that_terminal(run: Path) -> None:
    """The look-alike of a child that runs another program."""
    other = Box(pid=103, ppid=102, argv=["tool"]).versions(python="3.11.7").at(600).exit(0)
    words, _ = hangup(hung_up(run, make="pty.openpty()", forked=False, others=(other,)))
    assert "pseudo-terminal" not in words


def test_a_worker_of_the_child_does_not_take_that_for_the_holder(run: Path) -> None:
    """The look-alike: its parent runs in the branch of the child, too."""
    assert "pseudo-terminal" not in hangup(hung_up(run, alike=True))[0]


def test_the_parents_own_terminal_is_another_one(run: Path) -> None:
    """The look-alike: the parent was hung up as well."""
    words, next_step = hangup(hung_up(run, also=True))
    assert "pseudo-terminal" not in words and "in tmux or screen" in next_step


@pytest.mark.parametrize("make", ["start(work)", "pty.slave()"])
def test_a_program_that_makes_no_terminal_is_told_to_outlive_it(make: str, run: Path) -> None:
    words, next_step = hangup(hung_up(run, make=make))
    assert "pseudo-terminal" not in words and "in tmux or screen" in next_step


def test_a_child_without_a_recorded_parent_is_told_by_its_own_stack(run: Path) -> None:
    assert "the pseudo-terminal of `pty.fork()` at program.py:4" in hangup(hung_up(run, parent=False))[0]
