"""standstill: what should have ended the thread that keeps a program from ending, and who does not answer a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import EXIT, TIMEOUT, ended, parent, stopped
from tests.support.synth import Box, Frame

LIB = "/usr/lib/python3.11"
AT_END: list[Frame] = [("_shutdown", f"{LIB}/threading.py", 1583)]
MONITOR = """\
class Monitor(threading.Thread):
    def run(self):
        while not self.stopped:
            time.sleep(0.2)

    def stop(self):
        self.stopped = True

def train(rows):
    monitor = Monitor()
    monitor.start()
    for row in rows:
        if step(row):
            return row
    monitor.stop()
"""


def at_end(run: Path, source: str, line: int = 4) -> Report:
    """The program had come to its end, and waited for the thread at that line."""
    others: dict[int, list[Frame]] = {700: [("Monitor.run", str(s.program_in(run, source)), line)]}
    box = parent().at(60_000).signal_seen(15, 90, TIMEOUT)
    return ended(run, box.crash(0, code=0, state=EXIT, python=AT_END, native=[(s.LIBC, 0x10)], other_python=others))


def test_flag_of_the_loop_is_told_with_what_leaves_its_call_out(run: Path) -> None:
    found = at_end(run, MONITOR)
    assert verdict(found) == ("hang", "likely")
    assert "only line 7 (`self.stopped = True`) in Monitor.stop ends its loop (line 3)" in summary(found)
    assert "which line 15 (`monitor.stop()`) alone calls, not reached after `if step(row)` (line 13" in summary(found)
    assert advice(found).startswith("Put `monitor.stop()` (line 15) into a `finally`")


def test_call_in_a_finally_is_not_said_to_be_left_out(run: Path) -> None:
    """The look-alike."""
    begin = MONITOR[: MONITOR.index("    for row")]
    source = f"{begin}    try:\n        step(rows)\n    finally:\n        monitor.stop()\n"
    assert "alone calls" not in summary(at_end(run, source))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        if step(row):\n            return row\n", "        step(row)\n"),  # on its way: it was called
        ("    monitor = Monitor()", "    monitor = Profiler()"),  # stop() of something else
        ("    monitor.stop()\n", "    atexit.register(monitor.stop)\n"),
        ("    def stop(self)", "    def __exit__(self)"),
        (
            "            time.sleep(0.2)\n",
            "            time.sleep(0.2)\n            if self.last:\n                return\n",
        ),
    ],
)
def test_call_that_may_have_come_is_not_said_to_be_left_out(old: str, new: str, run: Path) -> None:
    """The look-alikes."""
    assert "ends its loop" not in summary(at_end(run, MONITOR.replace(old, new)))


@pytest.mark.parametrize(
    ("line", "ending", "says"),
    [
        (
            13,
            "",
            "The exception left line 13, so that line 14 (`monitor.stop()`), which alone ends that thread, was not",
        ),
        (15, "    check(rows)\n", "Let that thread end: give it a sentinel"),  # the call had been reached
    ],
)
def test_error_that_leaves_the_call_out_is_told(line: int, ending: str, says: str, run: Path) -> None:
    """Behind what the error itself is about."""
    source = MONITOR.replace("        if step(row):\n            return row\n", "        step(row)\n") + ending
    script = str(s.program_in(run, source))
    others: dict[int, list[Frame]] = {700: [("Monitor.run", script, 4)]}
    box = parent().at(500).exception("RuntimeError", "no such row", [("train", script, line), ("<module>", script, 99)])
    box.at(60_000).signal_seen(15, 90, TIMEOUT)
    found = ended(run, box.crash(0, code=0, state=EXIT, python=AT_END, native=[(s.LIBC, 0x10)], other_python=others))
    assert verdict(found) == ("python-exception", "certain")
    assert says in advice(found)


@pytest.mark.parametrize(("again", "told"), [(False, "possible"), (True, "likely")])
def test_timer_that_waits_once_ends_by_itself(again: bool, told: str, run: Path) -> None:
    source = "def later():\n    threading.Timer(60, beat).start()\n\ndef beat():\n    send()\n"
    script = str(s.program_in(run, f"{source}    later()\n" if again else source))
    others: dict[int, list[Frame]] = {
        700: [("Event.wait", f"{LIB}/threading.py", 629), ("Timer.run", f"{LIB}/threading.py", 1376)]
    }
    box = Box(pid=101, ppid=90, argv=("python", script)).versions(torch="2.13.0")
    box.at(60_000).signal_seen(15, 90, TIMEOUT)
    box.crash(0, code=0, state=EXIT, python=AT_END, native=[(s.LIBC, 0x10)], other_python=others)
    found = ended(run, box)
    assert "it is the Timer of" in summary(found)
    assert verdict(found) == ("hang", told)
    assert advice(found).startswith("Keep the Timer" if again else "It ends by itself after its interval")


ENVIRONMENTS = """\
def worker(remote):
    while True:
        cmd, data = remote.recv()
        if cmd == "step":
            remote.send(step(data))
        elif cmd in ("reset", "close"):
            remote.send(None)

def seed(remotes, value):
    for remote in remotes:
        remote.send(("seed", value))
    return [remote.recv() for remote in remotes]
"""
RECV: list[Frame] = [
    ("Connection._recv", f"{LIB}/multiprocessing/connection.py", 378),
    ("_ConnectionBase.recv", f"{LIB}/multiprocessing/connection.py", 250),
]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("", "", True),
        ('"reset", "close"', '"reset", "seed"', False),
        ('        elif cmd in ("reset", "close"):\n', "        else:\n", False),
        ("cmd == ", "handlers[cmd] == ", False),
        ("send(None)\n", "send(None)\n        remote.send('done')\n", False),
    ],
)
def test_command_for_which_a_child_has_no_branch(old: str, new: str, told: bool, run: Path) -> None:
    """The look-alikes: a branch, an `else`, and a table of functions."""
    script = str(s.program_in(run, ENVIRONMENTS.replace(old, new) if old else ENVIRONMENTS))
    box = Box(pid=102, ppid=101, created_ns=6_000_000_000).at(-500).versions(torch="2.13.0").at(100).mark("begin")
    child = stopped(box, [*RECV, ("worker", script, 3)])
    found = ended(run, stopped(parent(), [*RECV, ("seed", script, 12)]), child)
    words = "line 11 sends 'seed', for which worker has no branch (it has 'step', 'reset' and"
    assert (words in summary(found)) == told
    assert verdict(found) == ("hang", "likely" if told else "possible")
    assert advice(found).startswith("Give worker a branch for 'seed'") == told


EVENT = MONITOR.replace("        while not self.stopped:\n            time.sleep(0.2)\n",
                        "        while not self.stopped.wait(self.interval):\n            report()\n").replace(
                        "        self.stopped = True\n", "        self.stopped.set()\n")  # fmt: skip


def test_event_of_the_loop_is_told_with_what_leaves_its_call_out(run: Path) -> None:
    """The thread stands in the head of its loop, and set() would have woken it at once."""
    found = at_end(run, EVENT, 3)
    assert verdict(found) == ("hang", "likely")
    assert (
        "only line 7 (`self.stopped.set()`) in Monitor.stop ends its loop (line 3), which line 15 (`monitor.stop"
        in (summary(found))
    )


def test_thread_at_work_in_its_pass_may_be_about_to_end(run: Path) -> None:
    """The look-alike: the Event may be set, and the thread has not asked for it since."""
    assert verdict(at_end(run, EVENT, 4)) == ("hang", "possible")


def test_event_by_which_a_loop_is_left_is_told_the_same(run: Path) -> None:
    looks = "        while True:\n            if self.stopped.is_set():\n                break\n"
    source = MONITOR.replace("        while not self.stopped:\n", looks).replace("ed = True", "ed.set()")
    found = at_end(run, source, 6)
    assert "only line 9 (`self.stopped.set()`) in Monitor.stop ends its loop (line 3)" in summary(found)


def test_event_that_another_function_sets_too_is_no_reason(run: Path) -> None:
    """The look-alike."""
    found = at_end(run, f"{EVENT}\ndef abort(monitor):\n    monitor.stopped.set()\n", 3)
    assert "ends its loop" not in summary(found)


WRITER = """\
class Writer:
    def __init__(self):
        self.items = queue.Queue()
        self.thread = threading.Thread(target=self.drain)
        self.thread.start()

    def drain(self):
        while True:
            item = self.items.get()
            if item is None:
                break
            write(item)

    def add(self, item):
        self.items.put({"item": item})

    def close(self):
        self.items.put(None)
        self.thread.join()

def main():
    writer = Writer()
    train(writer)
"""


def of_writer(run: Path, source: str) -> Report:
    script = str(s.program_in(run, source))
    stack: list[Frame] = [("Condition.wait", f"{LIB}/threading.py", 327), ("Queue.get", f"{LIB}/queue.py", 171)]
    box = parent().at(60_000).signal_seen(15, 90, TIMEOUT)
    others = {700: [*stack, ("Writer.drain", script, 9)]}
    return ended(run, box.crash(0, code=0, state=EXIT, python=AT_END, native=[(s.LIBC, 0x10)], other_python=others))


def test_mark_that_only_a_function_puts_which_nobody_calls_is_told(run: Path) -> None:
    found = of_writer(run, WRITER)
    assert verdict(found) == ("hang", "likely")
    assert (
        "only line 18 (`self.items.put(None)`) in Writer.close ends its loop (line 8), and no line calls close()"
        in (summary(found))
    )
    assert advice(found).startswith("Call close() where the work of the thread is done, best in a `finally`")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    train(writer)\n", "    train(writer)\n    writer.close()\n"),  # on its way
        ('self.items.put({"item": item})', "self.items.put(item or None)"),
        ("    train(writer)\n", "    train(writer, done=writer.close)\n"),
    ],
)
def test_mark_that_may_have_been_put_is_no_reason(old: str, new: str, run: Path) -> None:
    """The look-alikes."""
    assert "ends its loop" not in summary(of_writer(run, WRITER.replace(old, new)))
