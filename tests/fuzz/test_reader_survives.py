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
from pytracer.decode.merge import load_job
from pytracer.decode.reader import read_box
from pytracer.decode.snapshot import Snapshot
from pytracer.render.json import render_json
from pytracer.render.text import render_text
from pytracer.render.where import render_where
from tests.support.synth import Box
from tests.support.synth_threads import OtherThread

BASE = 0x7F00_0000_0000
SECONDS = 5  # for one read of a box of 100 KB, which takes about two milliseconds
INTERESTING = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\xff" * 8, bytes(8))


def small_box() -> bytes:
    """Every kind of content, in little room."""
    shape = {"threads_per_chunk": 2, "records_per_thread": 16, "graves_per_thread": 16, "slots_log2": 4}
    box = Box(rank=1, journal_bytes=8192, epoch_slots=64, **shape)  # type: ignore[arg-type]
    box.versions(python="3.11", torch="2.13").group("0", [0, 1]).note("hooks installed")
    box.module("model", [{"fqn": "w", "addr": BASE, "nbytes": 4096}])
    box.buckets("model", [{"addr": BASE + 0x10000, "nbytes": 8192, "parameters": {"w": 4096, "b": 4096}}])
    box.alloc(BASE, 4096, by=("f", "f.py", 9)).alloc(
        BASE + 0x10000, 1 << 20, by=box.site(("g", "g.py", 4), ("h", "h.py", 8), "AddBackward0", 3)
    )
    box.grave(BASE + 0x20000, 256, by="MulBackward0", freed_by=("f", "f.py", 12), tid=55).busy(BASE + 0x40)
    box.free(BASE + 0x10000, by=("f", "f.py", 13))
    box.step(3).mark("here").event("NODE", "MulBackward0", 7, [BASE])
    box.collective("gloo:all_reduce", addr=BASE, nbytes=4096, state="completed").collective("gloo:broadcast", nbytes=4)
    box.exception("ValueError", "bad", [("f", "f.py", 9)]).wait(77, signal=9).cpp_exception("E", "what")
    box.crash(
        addr=BASE + 0x10010, node="N5torch8autograd9generated12MulBackward0E", node_sequence_nr=7,
        python=[("f", "f.py", 9), ("main", "f.py", 30)], other_python={0x99: [("w", "w.py", 1)]},
        native=[("/gone/x.so", 0x1100), ("/gone/y.so", 0x2200), (None, 0x5010)], build_ids={"/gone/x.so": b"\x01" * 20},
        mappings=[(0x5000, 0x6000, "r-xp", 0, "/gone/z.so"), (0x7000, 0x8000, "rw-p", 0, "")],
        also=[(55, 11, 1, 0x10, 0x20)], code_bytes=b"\x8b\x07",
        abort_text="free(): invalid pointer", sender_command=["kill", "-11"], fault_file=(4096, 0, 0x01021994),
        memory=[("rdi", BASE, BASE - 16, b"\x01" * 64)], loaded=["/gone/z.so"], threads_how=1,
        threads=[OtherThread(55, "w", [("/gone/x.so", 0x10)] * 60, pthread=0x99, total=100), OtherThread(56, state=0)],
    )  # fmt: skip
    return box.content()


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
    """Else the tests below would prove little."""
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
    """A few changes each, most of them where sizes, counts and offsets lie."""
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
    """Nothing but torn entries, magics and half sizes: the search for the next one stays linear."""
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


def test_report_and_dump_survive_what_the_reader_survives(good: bytes, tmp_path: Path) -> None:
    """They see the same values."""
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
