"""Locks that are waited for by who has them: of one process, and of two that took them in different orders."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import below, ended, in_native, parent, stopped
from tests.support.synth import Box, Frame

MP = "/usr/lib/python3.11/multiprocessing"
RECORDS = """\
class Records:
    def add(self, row):
        with locked(self.path):
            write(row)

    def add_best(self, rows):
        with locked(self.path):
            self.add(min(rows))
"""


def flocked(run: Path, source: str = RECORDS) -> Report:
    script = str(s.program_in(run, source))
    stack: list[Frame] = [("locked", "/usr/lib/python3.11/site-packages/locks.py", 15)]
    stack += [("Records.add", script, 3), ("Records.add_best", script, 8), ("main", script, 20)]
    return below(run, stopped(parent(), stack), native=[("flock", s.LIBC), ("fcntl_flock", s.PYTHON)])


def test_file_lock_that_its_own_process_has_is_told(run: Path) -> None:
    found = flocked(run)
    assert verdict(found) == ("hang", "likely")
    assert "it has that lock itself: Records.add_best took it by `with locked(self.path)` (line 7)" in summary(found)
    assert "and what it called takes it again (line 3)" in summary(found)
    assert advice(found).startswith("Take the lock once: let Records.add_best call a variant of Records.add that takes")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        with locked(self.path):\n            self", "        with locked(self.best):\n            self"),
        ("            self.add(", "            other.add("),  # which may be of another file
    ],
)
def test_file_lock_of_another_file_is_no_reason(old: str, new: str, run: Path) -> None:
    """The look-alikes."""
    assert "has that lock itself" not in summary(flocked(run, RECORDS.replace(old, new)))


INDEX = """\
def index(path, row):
    with locked(path):
        write(path, row)

def save(model, path):
    with locked(path):
        index(path, model)
"""


@pytest.mark.parametrize(("passed", "told"), [("path", True), ("path + '.idx'", False), ("index_of(path)", False)])
def test_file_lock_of_a_path_that_is_passed_on_is_of_that_one(passed: str, told: bool, run: Path) -> None:
    """The look-alikes: a variable of the same name has another path."""
    script = str(s.program_in(run, INDEX.replace("index(path, model)", f"index({passed}, model)")))
    stack: list[Frame] = [("locked", "/usr/lib/python3.11/site-packages/locks.py", 15)]
    stack += [("index", script, 2), ("save", script, 7)]
    found = below(run, stopped(parent(), stack), native=[("flock", s.LIBC), ("fcntl_flock", s.PYTHON)])
    assert ("it has that lock itself: save took it" in summary(found)) == told


TABLES = """\
def by_user(tables):
    with tables.users:
        with tables.items:
            update(tables)

def by_item(tables):
    with tables.items:
        with tables.users:
            update(tables)
"""
ENTERS: Frame = ("SemLock.__enter__", f"{MP}/synchronize.py", 95)


def crossed(run: Path, source: str = TABLES) -> Report:
    script = str(s.program_in(run, source))
    join: list[Frame] = [("Popen.poll", f"{MP}/popen_fork.py", 27), ("BaseProcess.join", f"{MP}/process.py", 149)]
    boxes = [Box(pid=102 + number, ppid=101).versions(torch="2.13.0") for number in range(2)]
    stopped(boxes[0], [ENTERS, ("by_user", script, 3)])
    stopped(boxes[1], [ENTERS, ("by_item", script, 8)])
    return ended(run, stopped(parent(), [*join, ("main", script, 20)]), *boxes)


def test_processes_that_took_two_locks_in_different_orders_are_told(run: Path) -> None:
    found = crossed(run)
    assert verdict(found) == ("hang", "likely")
    assert (
        "it held `tables.users` and waited for `tables.items`, and process 103 (train.py) held `tables.items` and"
        in (summary(found))
    )
    assert advice(found).startswith("Take the two locks in one order everywhere: line 3 takes `tables.items` inside of")


def test_processes_that_took_them_in_one_order_are_not_crossed(run: Path) -> None:
    """The look-alike: somebody else has the lock that both ask for."""
    source = TABLES.replace(
        "    with tables.items:\n        with tables.users", "    with tables.other:\n        with tables.users"
    )
    assert "and waited for" not in summary(crossed(run, source))


CHILD = """\
def wait(command):
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    while child.poll() is None:
        time.sleep(0.2)
    return child.stdout.read()
"""


@pytest.mark.parametrize(("stdout", "told"), [("subprocess.PIPE", True), ("subprocess.DEVNULL", False)])
def test_child_that_is_polled_with_a_pipe_that_nothing_reads(stdout: str, told: bool, run: Path) -> None:
    """The look-alike prints to nowhere."""
    script = str(s.program_in(run, CHILD.replace("subprocess.PIPE", stdout)))
    found = in_native(run, stopped(parent(), [("wait", script, 4), ("main", script, 9)]), native="time_sleep")
    assert verdict(found) == ("hang", "possible")
    assert ("The child's output is a pipe, which line 2 makes and the loop does not read" in summary(found)) == told
