"""Digests: what a report rests on survives; whatever is wrong with one is named, and the others count."""

from __future__ import annotations

import random
import string
import struct
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import msgspec
import pytest

from pytracer._errors import InputError
from pytracer.analyze.digest import BYTES_PER_RANK, digest_name, make_digest, most_bytes
from pytracer.analyze.engine import build_report
from pytracer.decode.formats.digest import Digest, encode_digest
from pytracer.decode.formats.digest_reader import decode_digest
from pytracer.decode.job.detail import in_full
from pytracer.decode.job.digest_names import are_digests
from pytracer.decode.job.digests import load_digests
from pytracer.decode.job.load import load_runs
from pytracer.decode.job.merge import load_job
from pytracer.decode.types.journal import MadeGroup, SeenGroup
from pytracer.decode.types.snapshot import GroupList, Job, Snapshot
from pytracer.report.job import Report
from tests.conditions import needs_core
from tests.support import scenarios as s
from tests.support.cli import ROOT, only_line, pytracer
from tests.support.synth import Box, write_run
from tests.unit.decode.formats.test_flight_recorder import dump, entry

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


def incompressible(count: int) -> str:
    """As many letters, the same ones each time."""
    draw = random.Random(1)
    return "".join(draw.choices(string.ascii_letters + string.digits, k=count))


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


def test_groups_that_all_ranks_made_are_one_list(tmp_path: Path) -> None:
    """Each rank keeps its own view of the groups of which it is a member."""
    runs = []
    for node in (0, 1):
        boxes = [rank_box(2 * node), rank_box(2 * node + 1)]
        for box in boxes:
            for number in range(20):
                members = (2 * (number % 2), 2 * (number % 2) + 1)
                if number % 2 == node:
                    box.group(str(number + 1), members, description=f"stage{number}")
                else:
                    box.group(None, members, None, description=None)
        (tmp_path / f"run{node}").mkdir()
        runs.append(write_run(tmp_path / f"run{node}", *boxes))
    whole = load_runs([str(run) for run in runs])
    job = load_digests([str(digests(tmp_path / "digests", runs))])
    lists = [process.snapshot.groups for process in job.ranks]
    assert all(isinstance(item, GroupList) for item in lists)
    assert len({id(item.made) for item in lists if isinstance(item, GroupList)}) == 1
    assert [tuple(item) for item in lists] == [tuple(process.snapshot.groups) for process in whole.ranks]
    own = [[group.name for group in process.snapshot.own_groups] for process in job.ranks]
    assert own[0] == own[1] != own[2] == own[3]
    assert all(len(names) == 11 for names in own)


def test_what_is_equal_in_many_digests_is_one_object(tmp_path: Path) -> None:
    job = load_digests([str(digests(tmp_path / "digests", nodes(tmp_path)))])
    lost = [process for process in job.ranks if process.rank != 1]
    assert len({id(process.exception) for process in lost}) == 1
    assert len({id(process.snapshot.groups[0].ranks) for process in job.ranks}) == 1


def test_digest_is_small(tmp_path: Path) -> None:
    """8 KB for each rank at most, whatever a rank has recorded."""
    for rank in range(2):
        box = rank_box(rank)
        for number in range(3000):
            box.exception("ValueError", f"{number * 7919} {'x' * 200}")
        box.write(tmp_path / f"{rank}.blackbox")
    assert len(make_digest(load_job(tmp_path))) <= 2 * BYTES_PER_RANK


def test_dumps_add_to_digests_what_they_add_to_recordings(tmp_path: Path) -> None:
    """Of a rank of which only the digest is known, and of a suspect whose recording is read in full."""
    runs = nodes(tmp_path)
    folder = digests(tmp_path / "digests", runs)
    dumps = [
        dump(tmp_path / f"nccl_trace_rank_{rank}", entry(200, input_sizes=[[4]]), entry(201, "broadcast", "started"))
        for rank in (0, 1)
    ]
    full = load_runs(runs, dumps)
    job = load_digests([str(folder)], [], None, dumps)
    assert [(use.rank, use.pid, use.known, use.added) for use in job.flight] == [(0, 100, 1, 1), (1, 101, 1, 1)]
    closer = in_full(job, [next(n for n, item in enumerate(job.processes) if item.rank == 1)])
    assert [item.snapshot.light for item in closer.ranks] == [True, False, True, True]
    assert len(closer.ranks[1].snapshot.collectives) == len(full.ranks[1].snapshot.collectives) == 201
    for rank in range(SIZE):
        last = [(item.sequence_nr, item.op, item.state) for item in full.ranks[rank].snapshot.collectives[-40:]]
        for some in (job, closer):
            assert [(c.sequence_nr, c.op, c.state) for c in some.ranks[rank].snapshot.collectives[-40:]] == last
    assert said(build_report(job)) == said(build_report(full))
    with pytest.raises(InputError, match="there is no"):
        load_digests([str(folder)], [], None, [tmp_path / "missing"])


def crowded(folder: Path, *, groups: int, children: int) -> Job:
    """A node of one rank that faulted, with as many groups and as many children that failed before."""
    rank = rank_box(1)
    for number in range(1, groups + 1):
        rank.group(str(number), [0, 1], description=f"expert parallel group {number}")
        there = rank.group_seen(str(number), size=2)
        rank.at(200 + number / 10).collective("gloo:all_reduce", sequence_nr=7, group=there, state="completed")
    failed = []
    for number in range(children):
        rank.at(300 + number / 10).wait(1000 + number, exit_code=1)
        child = Box(pid=1000 + number, ppid=101, host="node0").at(250 + number / 10)
        failed.append(child.exception("ValueError", f"{number * 7919} {'x' * 600}").exit(1))
        failed[-1].boot_id = rank.boot_id
    rank.crash(addr=8, python=s.BACKWARD, native=[(s.VICTIM, 0x1100)], node="AddmmBackward0")
    folder.mkdir()
    return load_runs(write_run(folder, rank, *failed))


@pytest.mark.parametrize(("groups", "children"), [(800, 0), (0, 160), (300, 160)])
def test_digest_stays_below_its_bound_and_says_what_it_left_out(groups: int, children: int, tmp_path: Path) -> None:
    """A rank with hundreds of groups and of failed children: of what is left out, nothing is said."""
    job = crowded(tmp_path / "run", groups=groups, children=children)
    content = make_digest(job)
    assert len(content) <= most_bytes(job) == BYTES_PER_RANK
    reduced = decode_digest(content, "x").job
    assert [item.rank for item in reduced.ranks] == [1]
    said = [item.what for item in reduced.damage]
    assert any("process groups of each rank" in what for what in said) == (groups > 0)
    assert any("processes that failed" in what for what in said) == (children > 0)
    kept = {item.name for item in reduced.ranks[0].snapshot.groups}
    assert {item.group for item in reduced.ranks[0].snapshot.collectives} <= kept
    assert not groups or {"0", str(groups)} <= kept  # the one that it waits in, and the last one
    assert len(reduced.processes) == len(job.processes) or children


def test_digest_that_cannot_be_small_says_so(tmp_path: Path) -> None:
    """Identity is never left out, whatever its size; the command has one line."""
    rank = Box(pid=101, ppid=99, rank=0, environment={**ENVIRONMENT, "SLURM_NODELIST": incompressible(20_000)})
    (tmp_path / "run").mkdir()
    done = pytracer("digest", str(write_run(tmp_path / "run", rank)), "-o", "one.digest", cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "one.digest").stat().st_size > BYTES_PER_RANK
    assert "the digest is larger than 8 KB for each rank: " in done.stderr


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
