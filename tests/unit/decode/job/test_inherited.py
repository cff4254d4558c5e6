"""A forked process that uses memory which its parent had freed before is told whose memory that was."""

from __future__ import annotations

from pathlib import Path

from pytracer.decode.job.merge import load_job
from pytracer.decode.types.snapshot import Storage
from tests.support.synth import Box, write_run

BASE, NBYTES = 0x7F00_0000_0000, 1 << 24


def storages_of_child(run: Path, parent: Box, child: Box) -> list[Storage]:
    write_run(run, parent, child)
    (found,) = [item.snapshot for item in load_job(run).processes if item.snapshot.pid == 102]
    return found.storages.around(BASE + 64)


def parent() -> Box:
    return Box(pid=101, ppid=99).versions(torch="2.13.0")


def test_storage_that_the_parent_had_freed_is_known_in_the_child(tmp_path: Path) -> None:
    box = parent().at(100).freed(BASE, NBYTES).at(200)
    (found,) = storages_of_child(tmp_path, box, box.fork(102).at(300).crash(addr=BASE + 64))
    assert (found.base, found.nbytes, found.state) == (BASE, NBYTES, "freed")


def test_storage_that_the_parent_freed_later_is_still_in_the_copy(tmp_path: Path) -> None:
    """The look-alike: what the child cannot have lost by it."""
    box = parent().at(200)
    child = box.fork(102).at(300).crash(addr=BASE + 64)
    assert storages_of_child(tmp_path, box.later(500).freed(BASE, NBYTES), child) == []


def test_process_that_was_executed_has_nothing_of_its_parent(tmp_path: Path) -> None:
    """The look-alike: another program at the same address."""
    box = parent().at(100).freed(BASE, NBYTES)
    assert storages_of_child(tmp_path, box, Box(pid=102, ppid=101).at(300).crash(addr=BASE + 64)) == []
