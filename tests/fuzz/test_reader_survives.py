"""`read_box` on damaged files: cut anywhere, bytes changed anywhere. Never anything but a snapshot or InputError."""

from __future__ import annotations

import dataclasses
import random
import struct
import time
from pathlib import Path

import pytest

from pytracer._errors import InputError
from pytracer.analyze.engine import build_report
from pytracer.analyze.where import explain_addresses
from pytracer.cli.dump import collect, text
from pytracer.decode.job.merge import load_job
from pytracer.decode.recording.reader import read_box
from pytracer.decode.types.snapshot import Snapshot
from pytracer.render.json import render_json
from pytracer.render.text import render_text
from pytracer.render.where import render_where
from tests.fuzz.seeds import BASE, small_box
from tests.support.synth import Box

SECONDS = 5  # for one read of a recording of 100 KB, which takes about two milliseconds
INTERESTING = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\xff" * 8, bytes(8))


@pytest.fixture(scope="module")
def good() -> bytes:
    return small_box()


def survives(content: bytes, path: Path) -> Snapshot | None:
    path.write_bytes(content)
    began = time.monotonic()
    try:
        snapshot = read_box(path)
    except InputError as error:
        assert path.name in str(error)
        return None
    assert time.monotonic() - began < SECONDS
    dataclasses.asdict(snapshot)
    return snapshot


def test_undamaged_box_has_no_damage(good: bytes, tmp_path: Path) -> None:
    """Otherwise the tests below prove little."""
    snapshot = survives(good, tmp_path / "a.blackbox")
    assert snapshot is not None
    assert snapshot.damage == ()
    assert snapshot.crash is not None and len(snapshot.crash.native_stack) == 3
    assert [len(thread.native_stack) for thread in snapshot.crash.threads] == [60, 0]
    assert len(snapshot.facts) == 11
    assert len(snapshot.storages) == 3


def test_every_cut_is_survived_and_told(good: bytes, tmp_path: Path) -> None:
    """At each multiple of 64 bytes and around each structure of the header."""
    path = tmp_path / "a.blackbox"
    facts = 0
    for end in sorted({*range(1, 700), *range(0, len(good), 64)}):
        snapshot = survives(good[:end], path)
        if snapshot is not None:
            assert snapshot.damage or end == len(good)
            facts = max(facts, len(snapshot.facts))
            if end >= 8192 + 8192:
                assert len(snapshot.facts) == 11, "the journal lies before the cut"
    assert facts == 11


@pytest.mark.parametrize("seed", range(4))
def test_changed_bytes_are_survived(good: bytes, tmp_path: Path, seed: int) -> None:
    """A few changes each, most of them in sizes, counts and offsets."""
    rng = random.Random(seed)
    (count,) = struct.unpack_from("<I", good, 76)
    starts = [struct.unpack_from("<Q", good, 512 + 40 * i + 8)[0] for i in range(count)]
    for _ in range(150):
        content = bytearray(good)
        for _ in range(rng.choice((1, 2, 8))):
            where = rng.choice((12, 512, 8192, rng.choice(starts), len(good)))
            reach = {12: 500, 512: 40 * count, len(good): len(good)}.get(where, 1200)
            at = rng.randrange(where, where + reach) % len(content)
            new = rng.choice((*INTERESTING, rng.randbytes(1), rng.randbytes(4)))
            content[at : at + len(new)] = new
        survives(bytes(content[: len(good)]), tmp_path / "a.blackbox")


def test_hostile_journal_costs_little(tmp_path: Path) -> None:
    """Only torn entries, magics and half sizes: the search for the next one stays linear."""
    box = Box(journal_bytes=1 << 20)
    for filler in (
        struct.pack("<HHIQII", 0x4A45, 3, 24, 0, 0, 0),
        b"\x45\x4a" * 4,
        struct.pack("<HHIQ", 0x4A45, 3, 1 << 19, 0),
    ):
        box.journal = bytearray((filler * (1 << 20))[: 1 << 20])
        began = time.process_time()
        survives(box.content(), tmp_path / "a.blackbox")
        assert time.process_time() - began < SECONDS


@pytest.mark.slow
def test_report_and_dump_survive_what_the_reader_survives(good: bytes, tmp_path: Path) -> None:
    """Both read the same values."""
    rng = random.Random(99)
    path = tmp_path / "a.blackbox"
    for _ in range(60):
        content = bytearray(good)
        for _ in range(4):
            content[rng.randrange(12, len(content))] = rng.randrange(256)
        path.write_bytes(content)
        try:
            report = build_report(load_job(path))
            assert render_text(report, everything=True) and render_json(report)
            asked = explain_addresses(load_job(path), [BASE, BASE + 4096, BASE + 0x10010])
            assert render_where(asked) and render_json(asked)
            for line in text(collect(str(path))):
                assert line.isprintable()
        except InputError:
            continue
