"""Guard mode in verdicts: exact storages, silent damage, and data that must not be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, evidence, finding, summary, verdict
from tests.support.synth import GUARD_POOL, Box

BASE = GUARD_POOL[0] + 0x5000
POOL = (*GUARD_POOL, "rw-p", 0, "")
BORN, FREED = ("make_cache", "train.py", 12), ("release", "train.py", 30)


def box() -> Box:
    """A storage of a page that ends at a guard, one in quarantine, and a later one in pages that others had."""
    made = Box(pid=101, ppid=99).at(100).guard(guarded=4)
    made.guarded(BASE, 4096, by=BORN)
    made.guarded(BASE + 0x2040, 4000, by=BORN, freed_by=FREED, freed=True)
    return made


def guarded_death(run: Path, addr: int, made: Box | None = None, **how: Any) -> Any:
    """The process died there; the pool is one mapping that may be written, as with markers."""
    return died(run, box=made or box(), **{"addr": addr, "code": 1, "mappings": [PROGRAM, POOL], **how})


@pytest.mark.parametrize(("distance", "words"), [(0, "right past the end of"), (100, "100 bytes past the end of")])
def test_access_in_the_guard_is_certainly_out_of_bounds(distance: int, words: str, run: Path) -> None:
    """Although the mapping is readable and writable."""
    report = guarded_death(run, BASE + 4096 + distance)
    assert verdict(report) == ("out-of-bounds", "certain")
    assert words in summary(report)
    assert "guard mode: the storage lay against a page that faults; the distance is exact" in evidence(report)
    assert "make_cache" in evidence(report)
    found = finding(report, "out-of-bounds")
    assert found is not None and not found.missing


def test_access_before_the_storage_is_told_by_the_nearest_end(run: Path) -> None:
    """A guard between two storages belongs to the nearer one."""
    report = guarded_death(run, BASE - 8)
    assert verdict(report) == ("out-of-bounds", "certain")
    assert "8 bytes before" in summary(report)


def test_access_in_quarantine_is_certainly_a_use_after_free(run: Path) -> None:
    """The call sites of both ends are named."""
    report = guarded_death(run, BASE + 0x2040 + 16)
    assert verdict(report) == ("use-after-free", "certain")
    assert "train.py:30 in release" in summary(report)
    assert "its pages were in quarantine" in evidence(report)
    (process,) = report.processes
    assert process.fault.storage.found == "guard"
    found = finding(report, "use-after-free")
    assert found is not None and not found.missing


def test_access_past_a_freed_storage_says_both(run: Path) -> None:
    """The slack of pages in quarantine."""
    report = guarded_death(run, BASE + 0x2040 + 4004)
    assert verdict(report) == ("out-of-bounds", "certain")
    assert "had been freed" in evidence(report)


def test_later_storage_in_the_same_pages_is_the_one(run: Path) -> None:
    """Records outlive the quarantine: the one with the largest number is current."""
    made = box().guarded(BASE + 0x2000, 8192, by=("newer", "train.py", 77), freed_by=FREED, freed=True, number=9)
    report = guarded_death(run, BASE + 0x2040 + 16, made)
    assert "train.py:77 in newer" in evidence(report)


def test_pool_address_far_from_every_record_is_no_storages(run: Path) -> None:
    """Nothing is invented."""
    report = guarded_death(run, GUARD_POOL[0] + (1 << 32))
    assert verdict(report)[0] == "wild-pointer"


@needs_capstone
def test_index_that_leads_into_another_quarantine_is_out_of_bounds(run: Path) -> None:
    """mov eax, [rdi + rsi*4]: rdi points into a live storage, so that the freed one was hit by chance."""
    made = box()
    made.alloc(BASE, 4096, by=BORN)
    index = (0x2040 + 16) // 4
    report = guarded_death(
        run, BASE + 4 * index, made, code_bytes=bytes.fromhex("8b04b7"), registers={"rdi": BASE, "rsi": index}
    )
    assert verdict(report)[0] == "out-of-bounds"
    (process,) = report.processes
    assert process.fault.storage.base == f"{BASE:#x}" and process.fault.storage.found == "register"


def damaged(*more: tuple[int, int, bytes]) -> Box:
    """Canaries had changed."""
    made = Box(pid=101, ppid=99).at(100).guard(guarded=4)
    for number, damage in enumerate([(1, 4000, b"\xff\xff\xff\xff"), *more]):
        made.guarded(BASE + 64 + number * 0x4000, 4000, by=BORN, freed_by=FREED, freed=True, damage=damage)
    return made


def test_damage_is_a_verdict_although_nothing_died(run: Path) -> None:
    """As with collectives that gloo completed with wrong data."""
    report = build_report(s.load(run, damaged().exit(0)))
    assert verdict(report) == ("out-of-bounds", "certain")
    assert summary(report) == (
        "Process 101 (train.py) wrote past the end of a storage of 4000 bytes, allocated at train.py:12 in make_cache; "
        "nothing faulted, and the data may be corrupt."
    )
    assert "4 bytes, the first one right past the end of the storage" in evidence(report) and "ffffffff" in evidence(
        report
    )
    assert "freed at train.py:30 in release" in evidence(report)
    assert "align:4" in advice(report)


def test_damage_before_the_storage_advises_the_other_side(run: Path) -> None:
    """side:underrun puts the beginning against a guard."""
    made = Box(pid=101, ppid=99).at(100).guard()
    made.guarded(BASE + 64, 4000, by=BORN, damage=(2, -8, b"\x07")).exit(0)
    report = build_report(s.load(run, made))
    assert "wrote before a storage" in summary(report) and "side:underrun" in advice(report)
    assert "last looked at, at the end" in evidence(report)


def test_damage_only_accompanies_a_death(run: Path) -> None:
    """It may or may not be the cause: the death keeps its own verdict."""
    report = died(run, box=damaged(), addr=0, code=1)
    assert verdict(report)[0] == "null-dereference"
    assert finding(report, "guard-damage") is not None


def test_many_damaged_storages_are_cut_with_a_count(run: Path) -> None:
    """Three are described, the rest is counted."""
    report = build_report(s.load(run, damaged(*[(1, 4000, b"\x01")] * 5).exit(0)))
    assert "... and 3 more storages" in evidence(report)


def test_clean_canaries_and_guard_mode_off_are_told_apart(run: Path, tmp_path: Path) -> None:
    """A report without a finding states whether guard mode was on."""
    why = {}
    for name, made in (("on", Box(pid=101).guard(guarded=3)), ("off", Box(pid=101))):
        directory = tmp_path / name
        (directory / "boxes").mkdir(parents=True)
        report = build_report(s.load(directory, made.exit(0)))
        (checked,) = [item for item in report.checked or [] if item.id == "guard-damage"]
        why[name] = checked.why
    assert why == {
        "on": "the bytes beside every guarded storage that was looked at were as they should be",
        "off": "guard mode was off",
    }


def test_what_went_unguarded_is_said(run: Path) -> None:
    """By the budget that was used up; and storages that could not be made inaccessible when they were freed."""
    made = Box(pid=101).guard(refused_bytes=5, refused_mappings=1, refused_system=2, unsealed=4)
    (process,) = build_report(s.load(run, made.exit(0))).processes or []
    assert process.guard is not None
    assert process.guard.unguarded == {"bytes": 5, "mappings": 1, "records": 0, "system": 2}
    assert [note for note in process.notes or [] if "guard mode" in note] == [
        "guard mode: 5 storages went unguarded: the budget of bytes was used up (1.0 GiB)",
        "guard mode: 1 storage went unguarded: the budget of mappings was used up (16382)",
        "guard mode: 2 storages went unguarded: the kernel refused",
        "guard mode: the kernel would not close the pages of 4 freed storages: its use goes unnoticed there",
    ]
