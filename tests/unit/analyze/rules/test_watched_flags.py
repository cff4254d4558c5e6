"""other-death: a loop that asks for a flag which nobody sets where it would see that."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import in_native, parent, stopped
from tests.support.synth import Box

OF_PROCESS = """\
class Server:
    def __init__(self):
        self.ready = False
        self.process = Process(target=self.load)

    def load(self):
        self.table = read()
        self.ready = True

    def wait(self):
        while not self.ready:
            time.sleep(0.1)
"""


def sleeps(run: Path, source: str, function: str = "Server.wait", line: int = 12, box: Box | None = None) -> Report:
    script = str(s.program_in(run, source))
    return in_native(run, stopped(box or parent(), [(function, script, line)]), native="pysleep")


def test_flag_that_a_child_process_sets_is_a_copy(run: Path) -> None:
    found = sleeps(run, OF_PROCESS)
    assert verdict(found) == ("hang", "likely")
    assert (
        "Only line 8 (`self.ready = True`) in Server.load sets `self.ready`, and that runs in the process"
        in summary(found)
    )
    assert advice(found).startswith("Make the flag a multiprocessing.Event, and the child its argument (line 4)")


def test_global_of_a_child_process_is_a_copy(run: Path) -> None:
    source = (
        "done = False\n\ndef work():\n    global done\n    done = True\n\n"
        "def main():\n    Process(target=work).start()\n    while not done:\n        time.sleep(1)\n"
    )
    found = sleeps(run, source, "main", 10)
    assert "Only line 5 (`done = True`) in work sets `done`" in summary(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Process(target", "Thread(target"),  # shares its memory
        ("self.ready", "self.ready.value"),  # a Value of multiprocessing
        (
            "    def wait(self):\n",
            "    def again(self):\n        self.load()\n\n    def wait(self):\n",
        ),  # runs here, too
        ("class Server:\n", "from multiprocessing.dummy import Process\nclass Server:\n"),
        ("class Server:\n", "from threading import Thread as Process\nclass Server:\n"),
        (
            "    def wait(self):\n",
            "    def again(self):\n        Thread(target=self.load).start()\n\n    def wait(self):\n",
        ),
        (
            "    def wait(self):\n",
            "    @ready.setter\n    def ready(self, on):\n        self.flag.value = on\n\n    def wait(self):\n",
        ),
        ("    def wait(self):\n", "    def got(self):\n        setattr(self, 'ready', 1)\n\n    def wait(self):\n"),
        ("    def wait(self):\n", "    def got(self):\n        self.ready += 1\n\n    def wait(self):\n"),
        ("    def wait(self):\n", "    def stop(self):\n        self.ready = 1\n\n    def wait(self):\n"),
    ],
)
def test_flag_that_may_change_is_only_asked_for(old: str, new: str, run: Path) -> None:
    """The look-alikes."""
    source = OF_PROCESS.replace(old, new)
    line = 1 + next(number for number, text in enumerate(source.splitlines()) if "sleep" in text)
    found = sleeps(run, source, line=line)
    assert verdict(found) == ("hang", "possible")
    assert "Only line" not in summary(found)


def test_thread_that_died_before_it_set_the_flag(run: Path) -> None:
    script = str(s.program_in(run, OF_PROCESS))
    box = parent().at(500).thread_exception("KeyError", "2", [("Server.load", script, 7)])
    found = sleeps(run, OF_PROCESS.replace("Process(", "Thread("), box=box)
    assert verdict(found) == ("hang", "likely")
    assert "in Server.load, and its thread" in summary(found) and "KeyError: 2" in summary(found)


COROUTINES = """\
class Rollouts:
    async def generate(self):
        self.finished = False
        await step()
        self.done = True

async def train(rollouts):
    while not rollouts.done:
        time.sleep(0.1)
"""


@pytest.mark.parametrize("apart", [False, True])
def test_coroutine_that_sleeps_keeps_the_other_one_from_running(apart: bool, run: Path) -> None:
    """The look-alike: the program has threads, one of which may run the other coroutine."""
    source = COROUTINES + ("\nThread(target=asyncio.run).start()\n" if apart else "")
    found = sleeps(run, source, "train", 9)
    told = "line 9 blocks the event loop, as it does not await"
    assert (told in summary(found)) == (not apart)
    assert ("await asyncio.sleep(...)" in advice(found)) == (not apart)
