"""Which regular expressions the function of a task reaches."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.analyze.evidence.limits.slow_patterns import slow_pattern
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import TIMEOUT, ended, parent, stopped
from tests.support.synth import MS, Box, Frame

POOL = "/usr/lib/python3.11/multiprocessing/pool.py"

BEGIN = """import re
from re import compile as made
FORM = re.compile(r"(a+)+b")
TEXT = r"(a+)+b"
"""
BODIES = {
    "variable": "def task(text):\n    return FORM.match(text)\n",
    "module": "def task(text):\n    return re.fullmatch('(a+)+', text)\n",
    "constant": "def task(text):\n    return re.search(TEXT, text)\n",
    "compiled there": "def task(text):\n    return re.compile('(a+)+b').sub('', text)\n",
    "below": "def clean(text):\n    return FORM.match(text)\ndef task(rows):\n    return [clean(x) for x in rows]\n",
    "given on": "def clean(text):\n    return FORM.match(text)\ndef task(rows):\n    return list(map(clean, rows))\n",
    "method": (
        "class Cleaner:\n    def __init__(self):\n        self.form = made('(a+)+b')\n"
        "    def clean(self, text):\n        return self.form.split(text)\n"
        "def task(text):\n    return Cleaner().clean(text)\n"
    ),
    "object": (
        "class Encoder:\n    def __call__(self, text):\n        return FORM.findall(text)\n"
        "encoder = None\ndef begin():\n    global encoder\n    encoder = Encoder()\n"
        "def task(text):\n    return encoder(text)\n"
    ),
}
OTHERS = {
    "not reached": "def other(text):\n    return FORM.match(text)\ndef task(text):\n    return text\n",
    "no regular expression": "def task(text):\n    return matcher.match('(a+)+b', text)\n",
    "one repetition": "def task(text):\n    return re.match('(a+,)+b', text)\n",
    "set twice": "FORM = other(FORM)\ndef task(text):\n    return FORM.match(text)\n",
    "not constant": "def task(text, part):\n    return re.match(f'({part}+)+b', text)\n",
    "nothing fails": "def task(text):\n    return re.match('(a+)+', text)\n",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_pattern_that_a_task_reaches_is_found(body: str) -> None:
    """However the program is written."""
    found = slow_pattern({"train.py": ast.parse(BEGIN + body)}, "task")
    assert found is not None
    assert found.part == "(a+)+"
    assert found.only


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
def test_other_calls_are_silent(body: str) -> None:
    """The look-alikes."""
    assert slow_pattern({"train.py": ast.parse(BEGIN + body)}, "task") is None


def test_pattern_beside_a_loop_need_not_be_the_cause() -> None:
    """`while` may go on for ever itself."""
    body = "def task(text):\n    while text:\n        text = FORM.sub('', text)\n"
    found = slow_pattern({"train.py": ast.parse(BEGIN + body)}, "task")
    assert found is not None
    assert not found.only


@pytest.mark.parametrize(("pattern", "named"), [("(a+)+b", True), ("(a+,)+b", False)])
def test_worker_that_was_killed_at_its_cpu_time_is_told_the_pattern(pattern: str, named: bool, run: Path) -> None:
    """A higher limit is advised only where nothing is known of the time."""
    script = run / "train.py"
    script.write_text(
        f"import re\ndef task(text):\n    return re.match('{pattern}', text)\nprint(pool.map(task, rows))\n"
    )
    os.utime(script, (0, 0))
    waits: list[Frame] = [("Event.wait", "/usr/lib/python3.11/threading.py", 629), ("MapResult.wait", POOL, 765)]
    worker = Box(pid=102, ppid=101).at(5_000).doing("name", "multiprocessing process ForkPoolWorker-1")
    main = stopped(parent().at(6_000).wait(102, signal=9), [*waits, ("<module>", str(script), 4)])
    seen = {"pid": 102, "start_ticks": worker.start_ticks, "first_mono_ns": 1, "cpu_seconds": 2.9}
    seen |= {"alive_mono_ns": worker.created_ns + 5_800 * MS, "gone_mono_ns": worker.created_ns + 5_900 * MS}
    counters = {"mono_ns": 1, "cgroups": [], "vmstat_oom_kill": 5}
    witness = {"before": counters, "after": counters, "ended": True, "kernel_log": {"readable": True, "lines": []}}
    witness |= {"processes": [{**seen, "limits": {"cpu seconds": [3, 3]}}], "first_pid_namespace": True}
    root = Box(pid=90, ppid=80, argv=TIMEOUT).at(60_010).wait(101, signal=15).exit(124)
    report = build_report(s.load(run, root, main, worker, launcher={"witness": witness}))
    assert verdict(report) == ("resource-limit", "likely")
    assert ("probably in re.match() at train.py:3 in task" in summary(report)) is named
    assert "waits for its result at train.py:4" in summary(report)
    assert ("raise that limit" in advice(report)) is not named
    assert ("a higher limit does not help" in advice(report)) is named


@pytest.mark.parametrize(("pattern", "named"), [("(a+)+b", True), ("(a+,)+b", False)])
def test_worker_that_was_in_a_pattern_at_the_time_limit_is_told_so(pattern: str, named: bool, run: Path) -> None:
    """No limit of its own: the time limit of the job ended all."""
    script = run / "train.py"
    script.write_text(
        f"import re\ndef task(text):\n    return re.match('{pattern}', text)\nprint(pool.map(task, rows))\n"
    )
    os.utime(script, (0, 0))
    waits: list[Frame] = [("Event.wait", "/usr/lib/python3.11/threading.py", 629), ("MapResult.wait", POOL, 765)]
    box = Box(pid=102, ppid=101, created_ns=6 * 10**9).at(100).doing("name", "multiprocessing process ForkPoolWorker-1")
    worker = stopped(
        box,
        [
            ("match", "/usr/lib/python3.11/re/__init__.py", 166),
            ("task", str(script), 3),
            ("mapstar", POOL, 48),
            ("worker", POOL, 125),
        ],
    )
    report = ended(run, stopped(parent(), [*waits, ("<module>", str(script), 4)]), worker)
    assert "was at train.py:3 in task" in summary(report)
    assert ("re.match(), whose pattern repeats a repetition, `(a+)+`" in summary(report)) is named
    assert ("raise the time limit" in advice(report)) is not named
