"""Who held the host's memory: killed for it, or out of it; and ends that have nothing to do with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import died
from tests.support.synth import MS, Box

BASE, MIB = 0x7F50_0000_0000, 1 << 20
CACHE, BATCH = ("cache", s.SCRIPT, 31), ("collate", s.SCRIPT, 44)
LOG = "Memory cgroup out of memory: Killed process 102 (python) total-vm:1kB, anon-rss:2kB, UID:0 pgtables:1kB"
NO_MEMORY = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"


def holding(box: Box, count: int, *, nbytes: int = 32 * MIB) -> Box:
    """Storages of the line that fills a cache, and a smaller one of another line."""
    for number in range(count):
        box.alloc(BASE + number * nbytes * 2, nbytes, CACHE)
    return box.alloc(BASE - 64 * MIB, 4 * MIB, BATCH)


def told(report: Report) -> list[str]:
    assert report.verdict is not None
    return [item for item in report.verdict.evidence or [] if "CPU storages" in item]


def test_lines_that_held_the_memory_of_a_killed_rank_and_of_its_neighbour(run: Path) -> None:
    """Totals and counts; the other ranks of the host with their largest line."""
    ranks = [holding(s.rank(number).at(300), count).at(500).mark("x") for number, count in ((0, 2), (1, 37))]
    counters = {"mono_ns": 1, "cgroups": [], "vmstat_oom_kill": 5, "psi_memory": {"some_total": 0.0}}
    log = {"readable": True, "lines": [{"text": LOG, "mono_ns": 900 * MS}]}
    witness = {"before": counters, "after": counters, "ended": True, "kernel_log": log, "killers": []}
    agent = s.agent((102, {"signal": 9}), at=900).at(1400).wait(101, signal=15)
    launcher = {"witness": {**witness, "first_pid_namespace": True}}
    report = build_report(s.load(run, agent, *ranks, launcher=launcher))
    assert report.verdict is not None and (report.verdict.class_, report.verdict.rank) == ("oom-kill", 1)
    assert told(report) == [
        "rank 1 held 1.2 GiB in CPU storages: 1.2 GiB in 37 storages allocated at train.py:31 in cache",
        "rank 0 held 68.0 MiB in CPU storages: 64.0 MiB in 2 storages allocated at train.py:31 in cache",
    ]
    assert "Look first at train.py:31 in cache" in (report.verdict.advice or "")


def test_line_that_held_too_little_to_matter_is_not_looked_at_first(run: Path) -> None:
    """It is still among the evidence."""
    box = Box(pid=101, ppid=99).at(100).alloc(BASE, MIB, CACHE).at(200)
    box.exception("MemoryError", "", [("main", s.SCRIPT, 50)]).exit(1)
    report = build_report(s.load(run, box))
    assert "Look first at" not in ((report.verdict.advice if report.verdict else None) or "")


@pytest.mark.parametrize(
    ("type_name", "message"),
    [
        ("RuntimeError", NO_MEMORY),
        ("MemoryError", ""),
        ("MemoryError", "std::bad_alloc"),
        ("numpy._core._exceptions._ArrayMemoryError", "Unable to allocate 2.00 GiB for an array with shape (9,)"),
    ],
)
def test_lines_that_held_the_memory_when_an_allocation_failed(run: Path, type_name: str, message: str) -> None:
    """As of the exception: the interpreter frees what it can before the process is gone, and some was free before."""
    box = holding(Box(pid=101, ppid=99).at(100), 3).later(1)
    box.at(150).free(BASE + 128 * MIB, CACHE).later(1)
    box.at(200).exception(type_name, message, [("main", s.SCRIPT, 50)]).later(1)
    box.at(300).free(BASE, CACHE).exit(1)
    report = build_report(s.load(run, box))
    (line,) = told(report)
    assert "64.0 MiB in 2 storages allocated at train.py:31 in cache" in line
    assert report.verdict is not None and "ulimit -v" in (report.verdict.advice or "")


def test_bad_alloc_that_nobody_caught_tells_the_lines(run: Path) -> None:
    """The same for an abort."""
    from pytracer.decode.types.journal import CppException

    box = holding(Box(pid=101, ppid=99).at(100), 3)
    thrown = CppException(tid=101, type="std::bad_alloc", what="std::bad_alloc")
    report = died(run, box=box, signal=6, code=-6, sender_pid=101, cpp_exceptions=[thrown])
    assert any("96.0 MiB in 3 storages" in item for item in told(report))


def test_other_exceptions_tell_nothing_of_memory(run: Path) -> None:
    """A message about memory of something else."""
    box = holding(Box(pid=101, ppid=99).at(100), 3)
    box.at(200).exception("ValueError", "cannot allocate a seat", [("main", s.SCRIPT, 50)]).exit(1)
    assert told(build_report(s.load(run, box))) == []


@pytest.mark.parametrize(
    ("count", "least"), [(600, "at least 16.0 GiB in 512 storages"), (500, "15.6 GiB in 500 storages")]
)
def test_storages_beyond_what_a_thread_remembers_are_told_as_a_least(count: int, least: str, run: Path) -> None:
    """After an exception the interpreter frees them all, and the oldest of these are overwritten."""
    box = holding(Box(pid=101, ppid=99).at(100), count).later(1)
    box.at(200).exception("RuntimeError", NO_MEMORY, [("step", s.SCRIPT, 9)]).later(1)
    for number in range(count):
        box.at(300).free(BASE + number * 64 * MIB, CACHE)
    (first, *_) = told(build_report(s.load(run, box.exit(1))))
    assert f" {least} allocated at train.py:31 in cache" in first
    assert ("at least" in first) == (count > 512)


@pytest.mark.parametrize(("count", "piled"), [(40, True), (3, False)])
def test_storages_of_one_line_that_pile_up_are_in_the_headline(count: int, piled: bool, run: Path) -> None:
    """The look-alike: a few large ones are a working set."""
    box = holding(Box(pid=101, ppid=99).at(300), count).at(500)
    report = build_report(s.load(run, box.exception("RuntimeError", NO_MEMORY, [("step", s.SCRIPT, 9)]).exit(1)))
    assert report.verdict is not None
    assert (f"{count} storages allocated at train.py:31 in cache" in (report.verdict.summary or "")) == piled
    assert ("made there again and again is still held" in (report.verdict.advice or "")) == piled
    assert "enforce fail" not in (report.verdict.summary or "")


@pytest.mark.parametrize(
    ("shape", "asked", "told_so"),
    [
        ("[10000, 1, 28, 28] float32", 10000 * 64 * 28 * 28 * 4, True),
        ("[64, 1, 28, 28] float32", 64 * 64 * 28 * 28 * 400, False),  # as in each step of training
        ("[10001, 28] float32", 10000 * 64 * 28 * 28 * 4, False),
        ("[10000, 28] int64", 10000 * 64 * 28 * 28 * 4, False),
    ],
)
def test_request_for_very_many_entries_at_once(shape: str, asked: int, told_so: bool, run: Path) -> None:
    """Of the tensor that the line worked on."""
    box = Box(pid=101, ppid=99).at(500)
    message = f"{NO_MEMORY} to allocate {asked} bytes. Error code 12"
    box.exception("RuntimeError", message, [("main", s.SCRIPT, 50)], variables=[{"name": "x", "value": shape}])
    report = build_report(s.load(run, box.exit(1)))
    assert report.verdict is not None
    said = "`x` has 10000 entries in its first dimension, and 1.9 GiB are 196.0 KiB for each"
    assert (said in (report.verdict.summary or "")) == told_so
    assert ("Take smaller batches there" in (report.verdict.advice or "")) == told_so


@pytest.mark.parametrize(
    ("head", "made", "told_so"),
    [
        ("import itertools", "batches = itertools.cycle(loader)", True),
        ("from itertools import cycle as forever", "batches = forever(loader)", True),
        ("def cycle(items):\n    while True: yield from items", "batches = cycle(loader)", False),
        ("import itertools", "batches = iter(loader)", False),
    ],
)
def test_batches_that_a_cycle_keeps(head: str, made: str, told_so: bool, run: Path) -> None:
    """itertools.cycle() keeps its first round; the look-alikes: a program's own function of that name, an iterator."""
    text = f"{head}\ndef train(loader):\n    {made}\n    for step in range(9):\n        batch = next(batches)\n"
    file = s.program_in(run, text)
    line = ("train", str(file), text[: text.index("batch = next")].count("\n") + 1)
    box = Box(pid=101, ppid=99).at(300)
    for number in range(40):
        box.alloc(BASE + number * 64 * MIB, 32 * MIB, line)
    report = build_report(s.load(run, box.at(500).exception("RuntimeError", NO_MEMORY, [line]).exit(1)))
    assert report.verdict is not None
    kept = "itertools.cycle() at program.py:" in (report.verdict.summary or "")
    assert (kept, "take a new iterator in each round" in (report.verdict.advice or "")) == (told_so, told_so)


@pytest.mark.parametrize(("asked", "is_address"), [(140247862083560, True), (68719476736, False)])
def test_size_that_is_like_an_address_is_no_lack_of_memory(asked: int, is_address: bool, run: Path) -> None:
    """Native code read it from memory that holds a pointer."""
    box = holding(Box(pid=101, ppid=99).at(100), 3).later(1)
    message = f"{NO_MEMORY} to allocate {asked} bytes. Error code 12"
    report = build_report(s.load(run, box.at(200).exception("RuntimeError", message, [("main", s.SCRIPT, 50)]).exit(1)))
    assert report.verdict is not None
    advice = report.verdict.advice or ""
    assert ("0x7f8dffffffe8 is like an address" in advice) == is_address
    assert ("ulimit -v" in advice) != is_address
