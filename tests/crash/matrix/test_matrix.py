"""The crash matrix: kinds of death x threads x states x ways to record. Each cell is a real process that dies.

`make test` runs a covering subset, `make test-crash` all of it and prints the table.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytracer.blackbox.schema import Step
from pytracer.decode.types.snapshot import Crash, Snapshot
from pytracer.report.job import Report
from tests.conditions import needs_compiler, needs_core, needs_core_files, needs_gdb, needs_native
from tests.crash.matrix.cells import (
    FAULTED_STEPS,
    SIGNAL,
    SILENT_THREADS,
    THREAD_KIND,
    THREADS_HOW,
    TRUE_ADDRESS,
    Cell,
    all_cells,
    covering,
)
from tests.crash.matrix.victim import Died, Libraries, build, die, locked
from tests.support.core import seen_by_gdb

pytestmark = [needs_core, needs_compiler]

STEPS = {step.name for step in Step}
DYING_SECONDS = 6  # the handler's limit is four
CORE_SECONDS = 30  # the kernel's, for one with torch in it, on a slow disk
SMALL_DISK_NBYTES = 96 << 20
CELLS = all_cells()
FAST = covering(CELLS)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """One directory for all test processes of this session."""
    base = tmp_path_factory.getbasetemp()
    directory = (base if worker_id == "master" else base.parent) / "matrix"
    directory.mkdir(exist_ok=True)
    return directory


@pytest.fixture(scope="session")
def libraries(shared: Path) -> Libraries:
    """The native half of the victims."""
    return build(shared)


@pytest.fixture
def untraced(shared: Path, libraries: Libraries) -> Callable[[Cell], int]:
    """The status of a cell's victim without pytracer; run once for all ways."""

    def status(cell: Cell) -> int:
        name = str(Cell(cell.kind, cell.place, "untraced", cell.state))
        with locked(shared / f"{name}.lock"):
            known = shared / f"{name}.json"
            if not known.exists():
                with room(shared / name, cell) as (directory, small):
                    plain = die(cell, "untraced", directory / "run", libraries, small_disk=small)
                assert plain.leftovers == ()
                known.write_text(json.dumps(plain.ended.status), encoding="utf-8")
            return int(json.loads(known.read_text(encoding="utf-8")))

    return status


@contextlib.contextmanager
def room(directory: Path, cell: Cell) -> Iterator[tuple[Path, bool]]:
    """A directory for a cell, removed afterwards; on a small disk where the cell fills it and one can be mounted."""
    directory.mkdir()
    small = False
    if cell.state == "no space left":
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_NBYTES}", "none", str(directory)]
        small = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield directory, small
    finally:
        if small:
            subprocess.run(["umount", "-l", str(directory)], check=True)
        shutil.rmtree(directory)


def test_matrix_is_large_and_its_fast_part_covers_it() -> None:
    """What `make test` runs has every kind, place, state and way of the matrix."""
    assert len(CELLS) == len(set(CELLS)) >= 250
    for name in ("kind", "place", "state", "way"):
        assert {getattr(cell, name) for cell in FAST} == {getattr(cell, name) for cell in CELLS}


def _parameters() -> list[object]:
    return [pytest.param(cell, id=str(cell), marks=_marks(cell)) for cell in CELLS]


def _marks(cell: Cell) -> list[pytest.MarkDecorator]:
    marks = [] if cell in FAST else [pytest.mark.full_matrix]
    if cell.needs_torch:
        marks.append(needs_native)
    if cell.leaves_core:
        marks += [needs_core_files, needs_gdb]
    return marks


@pytest.mark.parametrize("cell", _parameters())
def test_cell(cell: Cell, tmp_path: Path, libraries: Libraries, untraced: Callable[[Cell], int]) -> None:
    """The status is unchanged, the process dies soon and leaves only the report, which is complete and right."""
    plain = untraced(cell)
    with room(tmp_path / "cell", cell) as (directory, small):
        died = die(cell, cell.way, directory / "run", libraries, small_disk=small)
        _death_is_unchanged(cell, died, plain)
        if cell.why_no_report:
            _nothing_false_is_said(died)
            return
        crash = _report_is_complete(cell, died)
        _thread_is_right(cell, died, crash)
        _fault_is_right(cell, died, crash)
        _verdict_is_right(cell, died, died.ended.report)
        _core_is_true(cell, crash, list(directory.glob("core*")))


def _death_is_unchanged(cell: Cell, died: Died, plain: int) -> None:
    expected = plain if plain >= 0 or not cell.below_launcher else 128 - plain  # the launcher's status is as a shell's
    assert died.ended.status == expected, died.ended.stderr
    if not cell.in_worker:
        assert plain == -SIGNAL[cell.kind]
    assert died.dying_seconds < DYING_SECONDS + (CORE_SECONDS if cell.leaves_core else 0)
    assert died.leftovers == ()


def _box(died: Died) -> Snapshot:
    (box,) = [box for box in died.ended.boxes if box.pid == died.note.pid]
    return box


def _nothing_false_is_said(died: Died) -> None:
    box = _box(died)
    assert (box.state, box.crash, box.damage) == ("RECORDING", None, ())
    verdict = died.ended.report.verdict
    assert verdict is not None
    assert verdict.class_ == "unknown"


def _report_is_complete(cell: Cell, died: Died) -> Crash:
    box = _box(died)
    assert (box.state, box.damage) == ("CRASHED", ())
    crash = box.crash
    assert crash is not None
    assert crash.complete
    assert not crash.repaired
    assert crash.also_crashed == ()
    faulted = FAULTED_STEPS.get(cell.kind, set())
    assert set(crash.steps_faulted) <= faulted
    assert crash.steps_late == ()
    assert set(crash.steps_done) | set(crash.steps_faulted) == STEPS
    _other_threads_are_there(cell, crash)
    return crash


def _other_threads_are_there(cell: Cell, crash: Crash) -> None:
    assert len(crash.threads) == crash.threads_total
    silent = [thread for thread in crash.threads if thread.state != "done"]
    assert len(silent) <= (cell.place in SILENT_THREADS and crash.threads_how == "signal"), silent
    assert all(thread.native_stack for thread in crash.threads if thread not in silent)
    if cell.state in THREADS_HOW:
        assert crash.threads_how == THREADS_HOW[cell.state]
    if cell.state in THREADS_HOW or cell.place in ("python-thread", "raw-thread", "openmp-worker", "autograd-thread"):
        assert crash.threads


def _thread_is_right(cell: Cell, died: Died, crash: Crash) -> None:
    assert (crash.tid, crash.thread_name) == (died.note.tid, died.note.thread)
    assert (crash.tid == died.note.pid) == (THREAD_KIND[cell.place] == "main")


def _fault_is_right(cell: Cell, died: Died, crash: Crash) -> None:
    assert crash.signal == SIGNAL[cell.kind]
    if cell.kind in TRUE_ADDRESS:
        assert crash.fault_addr == died.note.address
    if cell.kind == "sent-signal":
        assert crash.sender_pid not in (None, died.note.pid)
        assert "matrix_victim.py" in "".join(crash.sender_command)
    if cell.kind == "heap-corruption":
        assert (crash.abort_text or "").startswith(("free(): double free", "malloc(): "))
    if cell.kind == "truncated-file":
        assert crash.file_nbytes == 4096


def _verdict_is_right(cell: Cell, died: Died, report: Report) -> None:
    verdict = report.verdict
    assert verdict is not None
    assert verdict.class_ == cell.verdict, verdict.summary
    assert verdict.pid == died.note.pid
    process = next(process for process in report.processes or () if process.pid == died.note.pid)
    assert process.thread is not None
    assert process.thread.kind == THREAD_KIND[cell.place]
    if cell.place == "dataloader-worker":
        assert process.role == "dataloader-worker"
    if cell.kind == "terminate" and cell.needs_torch:  # the hook of the C++ runtime is in the torch half
        assert process.exception is not None
        assert process.exception.message == "sizes of buckets differ"
    if cell.kind not in FAULTED_STEPS:
        _stack_is_whole([frame.image or "" for frame in process.native_stack or ()])


def _stack_is_whole(images: list[str]) -> None:
    """The outermost frame is the start function of a program or a thread, in the interpreter or in libc."""
    assert Path(images[-1]).name.startswith(("python", "libc.so", "libpthread")), images


def _core_is_true(cell: Cell, crash: Crash, cores: list[Path]) -> None:
    if not cell.leaves_core:
        assert cores == []
        return
    (core,) = cores
    seen = seen_by_gdb(core)
    assert (seen["signal"], seen["code"]) == (str(crash.signal), str(crash.code))
    assert int(seen["pc"], 16) == crash.pc
    if crash.code > 0:
        assert int(seen["addr"], 16) == crash.fault_addr
