"""Digests: what a report rests on survives; whatever is wrong with one is named, and the others count."""

from __future__ import annotations

import struct
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import msgspec
import pytest

from pytracer._errors import InputError
from pytracer.analyze.digest import BYTES_PER_RANK, digest_name, make_digest
from pytracer.analyze.engine import build_report
from pytracer.decode.formats.digest import Digest, decode_digest, encode_digest
from pytracer.decode.job.digests import are_digests, load_digests
from pytracer.decode.job.load import load_runs
from pytracer.decode.job.merge import load_job
from pytracer.decode.types.journal import MadeGroup, SeenGroup
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import Report
from tests.conditions import needs_core
from tests.support import scenarios as s
from tests.support.cli import ROOT, only_line, pytracer
from tests.support.synth import Box, write_run

SIZE = 4
ENVIRONMENT = {"WORLD_SIZE": str(SIZE), "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}


def rank_box(rank: int, job: str = "29500") -> Box:
    """A rank of a job of four, two to a node; rank 1 faults, and the others lose their connections."""
    environment = {**ENVIRONMENT, "MASTER_PORT": job, "RANK": str(rank)}
    node = rank // 2
    box = Box(pid=100 + rank, ppid=99, rank=rank, world_size=SIZE, environment=environment, host=f"node{node}")
    box.boot_id = f"b0075f00-0000-4000-8000-{node:012d}"
    box.versions(python="3.11.7", torch="2.13.0+cpu", cuda=None)
    box.group("0", range(SIZE))
    group = box.group_seen("0", size=SIZE)
    for number in range(1, 200):
        box.at(100 + number).collective("gloo:all_reduce", sequence_nr=number, group=group, state="completed")
    box.at(400).collective("gloo:all_reduce", sequence_nr=200, group=group, state="started")
    if rank == 1:
        return box.at(500).crash(addr=8, python=s.BACKWARD, native=[(s.VICTIM, 0x1100)], node="AddmmBackward0")
    return s.lost_peer(box.at(700))


def nodes(folder: Path, count: int = 2) -> list[Path]:
    """The run directories of the nodes."""
    runs = []
    for node in range(count):
        run = folder / f"run{node}"
        run.mkdir(parents=True)
        runs.append(write_run(run, rank_box(2 * node), rank_box(2 * node + 1)))
    return runs


def digests(folder: Path, runs: list[Path]) -> Path:
    """Their digests."""
    folder.mkdir(exist_ok=True)
    for run in runs:
        job = load_runs(run)
        (folder / digest_name(job)).write_bytes(make_digest(job))
    return folder


def said(report: Report) -> tuple[object, ...]:
    verdict = report.verdict
    assert verdict is not None
    return verdict.class_, verdict.rank, verdict.confidence, verdict.summary


def test_reader_gets_back_what_was_written(tmp_path: Path) -> None:
    """Every field of a light snapshot, but what is derived from others; equal calls are stored once."""
    (run, _) = nodes(tmp_path)
    job = load_job(run, light=True)
    again = decode_digest(encode_digest(Digest(job, "1")), "x").job
    for one, other in zip(job.processes, again.processes, strict=True):
        assert replace(one, snapshot=other.snapshot) == other
        differing = [
            f.name for f in fields(Snapshot) if getattr(one.snapshot, f.name) != getattr(other.snapshot, f.name)
        ]
        assert set(differing) <= {"facts", "events"}
        groups = (MadeGroup, SeenGroup)
        assert other.snapshot.facts == tuple(f for f in one.snapshot.facts if not isinstance(f.data, groups))


def test_digests_give_the_verdict_of_the_recordings(tmp_path: Path) -> None:
    """Of two nodes, without any recording; the report names those that would tell more."""
    runs = nodes(tmp_path)
    folder = digests(tmp_path / "digests", runs)
    full = build_report(load_runs(runs))
    for run in runs:
        run.rename(run.with_name(f"{run.name}-elsewhere"))
    report = build_report(load_digests([str(folder)]))
    assert said(report) == said(full) and said(full)[:2] == ("null-dereference", 1)
    assert report.run is not None and report.run.digests is not None
    assert report.run.digests.count == 2 and report.run.digests.missing_ranks == []
    (unread,) = report.run.digests.unread or []
    assert unread.startswith("node0:") and unread.endswith("101.blackbox")
    found = build_report(load_digests([str(folder)], [str(tmp_path / "run0-elsewhere")]))
    assert found.run is not None and found.run.digests is not None and found.run.digests.unread == []
    assert said(found) == said(full)


def test_recording_of_another_process_is_not_taken_for_the_suspects(tmp_path: Path) -> None:
    """It has the same name, as on another machine."""
    runs = nodes(tmp_path)
    folder = digests(tmp_path / "digests", runs)
    box = next((runs[0] / "boxes").glob("*101.blackbox"))
    Box(pid=101, ppid=99, rank=1, host="elsewhere").write(box)
    report = build_report(load_digests([str(folder)]))
    assert report.run is not None and report.run.digests is not None and len(report.run.digests.unread or []) == 1


def test_digest_is_small(tmp_path: Path) -> None:
    """8 KB for each rank at most, whatever a rank has recorded."""
    for rank in range(2):
        box = rank_box(rank)
        for number in range(3000):
            box.exception("ValueError", f"{number * 7919} {'x' * 200}")
        box.write(tmp_path / f"{rank}.blackbox")
    assert len(make_digest(load_job(tmp_path))) <= 2 * BYTES_PER_RANK


@pytest.mark.parametrize("left", [0, 1, 40, 87, 500, -1])
def test_torn_digest_is_named_and_the_others_count(left: int, tmp_path: Path) -> None:
    """Wherever it was cut off."""
    folder = digests(tmp_path / "digests", nodes(tmp_path))
    torn = sorted(folder.iterdir())[1]
    torn.write_bytes(torn.read_bytes()[:left])
    report = build_report(load_digests([str(folder)]))
    assert said(report)[:2] == ("null-dereference", 1)
    assert [(item.file, "torn" in (item.what or "")) for item in report.damage or []] == [(torn.name, True)]
    assert report.run is not None and report.run.digests is not None
    assert report.run.digests.missing_ranks == [2, 3]


def test_changed_newer_and_foreign_files_are_named(tmp_path: Path) -> None:
    """Each by one line; none of them stops the rest."""
    folder = digests(tmp_path / "digests", nodes(tmp_path))
    good = sorted(folder.iterdir())[0].read_bytes()
    changed = bytearray(good)
    changed[-9] ^= 1
    (folder / "changed.digest").write_bytes(changed)
    (folder / "newer.digest").write_bytes(good[:20] + struct.pack("<H", 9) + good[22:])
    (folder / "foreign.digest").write_bytes(b"PK\x03\x04" * 100)
    other = tmp_path / "other"
    other.mkdir()
    job = load_runs(write_run(other, rank_box(0, job="1234")))
    (folder / "other.digest").write_bytes(make_digest(job))
    report = build_report(load_digests([str(folder)]))
    assert said(report)[:2] == ("null-dereference", 1)
    told = {item.file: item.what or "" for item in report.damage or []}
    assert told["changed.digest"] == "changed.digest is damaged: its checksum is wrong"
    assert told["newer.digest"] == "newer.digest is a digest of version 9.0, this pytracer reads 1"
    assert told["foreign.digest"] == "foreign.digest is no digest"
    assert told["other.digest"] == "it is of another job, master node0:1234, and is left out"
    assert len(told) == 4


def test_later_digest_of_a_node_counts_and_nothing_counts_twice(tmp_path: Path) -> None:
    """As of a job that was digested while it ran, and at its end, under two names."""
    runs = nodes(tmp_path)
    folder = digests(tmp_path / "digests", runs)
    early = Box(pid=101, ppid=99, rank=1, world_size=SIZE, environment={**ENVIRONMENT, "RANK": "1"}, host="node0")
    early.boot_id = "b0075f00-0000-4000-8000-000000000000"
    (tmp_path / "early").mkdir()
    job = load_runs(write_run(tmp_path / "early", early))
    (folder / "a-first.digest").write_bytes(make_digest(job))
    report = build_report(load_digests([str(folder)]))
    assert said(report)[:2] == ("null-dereference", 1)
    assert sorted(item.pid or 0 for item in report.processes or []) == [100, 101, 102, 103]


def test_folder_of_recordings_is_no_folder_of_digests(tmp_path: Path) -> None:
    """Even with a digest in it; and one that is empty is neither."""
    (run, _) = nodes(tmp_path)
    digests(run, [run])
    (tmp_path / "empty").mkdir()
    assert not are_digests([str(run)]) and not are_digests([str(tmp_path / "empty")]) and not are_digests([])
    assert are_digests(["s3://bucket/job"])


def test_hostile_content_is_one_error(tmp_path: Path) -> None:
    """A body that announces a group of 2^40 members, and one that is no digest at all."""
    import hashlib
    import zlib

    job = load_job(nodes(tmp_path)[0])
    good = encode_digest(Digest(job, "1"))
    body = msgspec.msgpack.decode(zlib.decompress(good[72:]))
    body["members"] = [[[0, 1, 1 << 40]]]
    for content in (msgspec.msgpack.encode(body), b"\x93\x01\x02\x03", b""):
        packed = zlib.compress(content)
        data = good[:24] + struct.pack("<QQ32s", len(packed), len(content), hashlib.sha256(packed).digest()) + packed
        with pytest.raises(InputError, match=r"^x is damaged: "):
            decode_digest(data, "x")


# The commands


def test_digest_is_written_by_the_command_and_read_by_inspect(tmp_path: Path) -> None:
    """Into a folder that does not exist yet, each node under its own name; a second time replaces the first."""
    runs = nodes(tmp_path)
    for run in (*runs, runs[0]):
        done = pytracer("digest", str(run), "-o", "digests", cwd=tmp_path)
        assert done.returncode == 0 and ", 2 ranks\n" in done.stdout, done.stderr
    assert len(list((tmp_path / "digests").iterdir())) == 2
    done = pytracer("inspect", "digests", cwd=tmp_path)
    assert done.stdout.startswith("Rank 1 accessed memory through a null pointer"), done.stderr
    assert "digests  from 2 digests" in done.stdout


def test_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """A file where the folder should be, and a URL of no file system."""
    (run, _) = nodes(tmp_path)
    (tmp_path / "file").write_text("mine")
    done = pytracer("digest", str(run), "-o", "file/job", cwd=tmp_path)
    assert done.returncode == 1 and "cannot be written: " in only_line(done)
    assert (tmp_path / "file").read_text() == "mine"
    done = pytracer("digest", str(run), "-o", "nobody://bucket/job", cwd=tmp_path)
    assert done.returncode == 1 and "nobody://bucket/job" in only_line(done)


def test_inspect_of_a_folder_with_only_torn_digests_is_one_line(tmp_path: Path) -> None:
    """With the name of the first."""
    (tmp_path / "a.digest").write_bytes(b"\x89pytracer")
    done = pytracer("inspect", ".", cwd=tmp_path)
    assert done.returncode == 1 and "a.digest is torn" in only_line(done)


@needs_core
def test_launcher_writes_a_digest_and_the_status_stays(tmp_path: Path) -> None:
    """By --digest; where it cannot be written there is one line, and the status is the job's."""
    job = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"]
    done = pytracer("run", "--digest", "digests", "-o", "run", "--", *job, cwd=tmp_path)
    assert done.returncode == 139, done.stderr
    (file,) = (tmp_path / "digests").iterdir()
    (process,) = decode_digest(file.read_bytes(), "x").job.processes
    assert (process.status_kind, process.signal) == ("signaled", 11)
    (tmp_path / "file").write_text("mine")
    done = pytracer("run", "--digest", "file/x", "-o", "again", "--", *job, cwd=tmp_path)
    assert done.returncode == 139
    assert len([line for line in done.stderr.splitlines() if "cannot be written: " in line]) == 1, done.stderr


def test_writer_that_takes_too_long_is_ended() -> None:
    """As one whose store does not answer."""
    program = (
        "import time; from pytracer.cli.background import Background; writer = Background(set(), 'no digest'); "
        "print(writer.start(lambda: time.sleep(600)), writer.finish(0.1)); "
        "print(writer.start(lambda: None), writer.finish(60))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "True False\nTrue True\n", done.stderr
