"""Dumps of torch's Flight Recorder, merged with recordings of the same operations."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from pytracer._errors import InputError
from pytracer.analyze.engine import build_report
from pytracer.decode.formats.flight_recorder import find_dumps, read_dump
from pytracer.decode.formats.flight_recorder_writer import flight_form, json_form
from pytracer.decode.job.load import load_runs
from tests.support.synth import WALL, Box, write_run

START = 5_000_000_000  # of a synthetic recording, monotonic


def entry(number: int, op: str = "all_reduce", state: str = "completed", **more: Any) -> dict[str, Any]:
    """As torch 2.13 writes it with NCCL."""
    at = WALL + START + number * 1_000_000_000
    return {
        "record_id": number - 1, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": number,
        "p2p_seq_id": 0, "op_id": number, "profiling_name": f"nccl:{op}", "time_created_ns": at,
        "time_discovered_started_ns": at + 5, "time_discovered_completed_ns": at + 9 if state == "completed" else None,
        "input_sizes": [[4, 2]], "input_dtypes": ["Float"], "output_sizes": [[4, 2]], "output_dtypes": ["Float"],
        "state": state, "retired": state == "completed", "timeout_ms": 600000, "is_p2p": False,
        "frames": [
            {"name": "all_reduce", "filename": "/env/site-packages/torch/distributed/distributed_c10d.py", "line": 9},
            {"name": "main", "filename": "/job/train.py", "line": 12},
        ],
    } | more  # fmt: skip


def dump(path: Path, *entries: dict[str, Any], as_json: bool = False, **more: Any) -> Path:
    content = {
        "version": "2.10", "entries": list(entries),
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}, **more,
    }  # fmt: skip
    path.write_bytes(json.dumps(content).encode() if as_json else pickle.dumps(content, 2))
    return path


def rank(number: int, *ops: str, state: str = "completed") -> Box:
    box = Box(pid=101 + number, ppid=1, rank=number).rank(number)
    group = box.group_seen(rank=number)
    for n, op in enumerate(ops, 1):
        box.at(n * 1000).collective(op, sequence_nr=n, state=state, sizes=(4, 2), group=group)
    return box


@pytest.mark.parametrize("as_json", [False, True])
def test_a_dump_is_read(as_json: bool, tmp_path: Path) -> None:
    """Both forms: the operation, its group, its sizes, its call site; the rank is in the file's name."""
    read = read_dump(dump(tmp_path / "nccl_trace_rank_7", entry(1, "_all_gather_base"), as_json=as_json))
    assert (read.rank, read.version, read.groups, read.notes) == (7, "2.10", {"0": (0, 1)}, ())
    (item,) = read.entries
    assert (item.op, item.backend, item.group, item.sequence_nr) == ("all_gather_into_tensor", "nccl", "0", 1)
    assert (item.state, item.input_sizes, item.dtype, item.timeout_ms) == ("completed", ((4, 2),), "float32", 600000)
    assert item.python is not None
    assert item.caller is not None
    assert (item.caller.file, item.caller.line) == ("/job/train.py", 12)


def test_gloo_writes_no_states_and_an_empty_group(tmp_path: Path) -> None:
    """As torch 2.13: a completed operation may have failed, which is reported."""
    odd: dict[str, Any] = {
        "state": "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
    }
    items = [entry(1, **odd | {"retired": True}), entry(2, **odd | {"retired": False})]
    config = {"": {"name": "", "desc": "", "ranks": "[]"}}
    read = read_dump(dump(tmp_path / "rank_0", *items, pg_config=config))
    assert [item.state for item in read.entries] == ["ended", "scheduled"]
    assert read.groups == {}
    assert "not known whether they failed" in read.notes[0]
    assert "which ranks" in read.notes[1]


def test_peers_of_messages_are_read(tmp_path: Path) -> None:
    """`send 0->1` has 1 on the other side, and so has `recv 0<-1`."""
    message: dict[str, Any] = {"is_p2p": True, "p2p_seq_id": 3}
    path = dump(tmp_path / "rank_0", entry(1, "send 0->1", **message), entry(1, "recv 0<-1", **message))
    assert [(e.op, e.peer, e.sequence_nr) for e in read_dump(path).entries] == [("send", 1, 3), ("recv", 1, 3)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"{", "is no dump"),
        (b"[" * 100_000, "is no dump"),
        (b"{" + b'"a":[' * 5000, "is no dump"),
        (b"{}", "is a dump of version unknown"),
        (pickle.dumps([1]), "is no dump of the Flight Recorder"),
        (pickle.dumps({"version": "1.5", "entries": []}), "version 1.5"),
        (pickle.dumps(Path("x")), "nothing of it was run"),
    ],
)
def test_what_is_no_dump_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    """In one sentence that names the file."""
    path = tmp_path / "rank_0"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        read_dump(path)
    assert "rank_0" in str(caught.value)


@pytest.mark.parametrize("value", [None, 7, -1, 2**80, "x" * 2000, [], [[[]]], {}, [None], True, 1.5])
def test_any_value_in_any_place_is_survived(value: Any, tmp_path: Path) -> None:
    """A dump is untrusted: any field may have any value."""
    for number, key in enumerate(entry(1)):
        path = dump(tmp_path / f"rank_{number}", entry(1) | {key: value}, entry(2))
        assert read_dump(path).entries[-1].sequence_nr == 2
        load_runs(write_run(tmp_path / f"run{number}", rank(number, "allreduce_")), [path])
    for key in ("pg_config", "pg_status", "pytracer"):
        read_dump(dump(tmp_path / "rank_0", entry(1), **{key: value}))


def test_dumps_are_found_by_torchs_names(tmp_path: Path) -> None:
    """No other file is taken for one."""
    for name in ("nccl_trace_rank_0", "comm_lib_trace_rank_12", "rank3.json", "notes.txt", "rank_x", "my.rank_1.pkl"):
        (tmp_path / name).write_bytes(b"x")
    found = [path.name for path in find_dumps([tmp_path])]
    assert found == ["comm_lib_trace_rank_12", "my.rank_1.pkl", "nccl_trace_rank_0", "rank3.json"]


def test_a_dump_completes_the_black_box(tmp_path: Path) -> None:
    """Ours first; the state that is further on, and operations that the recording does not have, come from the dump."""
    run = write_run(tmp_path / "run", rank(0, "allreduce_", state="started"))
    dump(run / "nccl_trace_rank_0", entry(1), entry(2, "broadcast", "started"))
    job = load_runs(run)
    first, second = job.ranks[0].snapshot.collectives
    assert (first.op, first.state, first.sizes, first.number) == ("all_reduce", "completed", (4, 2), 1)
    assert (second.op, second.state, second.group, second.number) == ("broadcast", "started", "0", 0)
    assert second.scheduled_ns == START + 2_000_000_000
    (use,) = job.flight
    assert (use.rank, use.pid, use.entries, use.known, use.added, use.last) == (0, 101, 2, 1, 1, {"0": 2})


def test_a_dump_of_another_run_is_not_used(tmp_path: Path) -> None:
    """Older than the process, or with other operations at the same numbers; or of a rank without a recording."""
    run = write_run(tmp_path / "run", rank(0, "allreduce_", "allreduce_"))
    old = entry(1) | {"time_created_ns": WALL - 100_000_000_000}
    paths = [
        dump(tmp_path / "old_rank_0", old),
        dump(tmp_path / "other_rank_0", entry(1, "broadcast"), entry(2, "broadcast")),
        dump(tmp_path / "rank_5", entry(1)),
        dump(tmp_path / "nobody", entry(1)),
        dump(tmp_path / "rank_00", entry(1), pytracer={"rank": 0}),
    ]
    before = load_runs(run).ranks[0].snapshot.collectives
    job = load_runs(run, paths)
    assert job.ranks[0].snapshot.collectives == before
    assert [use.pid for use in job.flight] == [None] * 5
    reasons = [
        "older than the run",
        "records other operations",
        "no black box of rank 5",
        "neither its name",
        "pytracer",
    ]
    assert all(word in use.notes[0] for word, use in zip(reasons, job.flight, strict=True))


def test_damaged_dumps_do_not_stop_the_others(tmp_path: Path) -> None:
    """They are damage; a named file that does not exist is an error."""
    run = write_run(tmp_path / "run", rank(0))
    (run / "nccl_trace_rank_0").write_bytes(b"\x80\x02c")
    job = load_runs(run, [dump(tmp_path / "rank_0", entry(1))])
    assert [use.added for use in job.flight] == [1]
    assert [item.file for item in job.damage] == ["nccl_trace_rank_0"]
    with pytest.raises(InputError, match="there is no"):
        load_runs(run, [tmp_path / "missing"])


def test_what_we_write_is_what_torch_writes(tmp_path: Path) -> None:
    """The same keys, read back to the same operations; in JSON, too."""
    run = write_run(tmp_path / "run", rank(0, "allreduce_", "broadcast_").group("0", [0, 1], description="default_pg"))
    form = flight_form(load_runs(run).ranks[0])
    assert set(entry(1)) <= set(form["entries"][0])
    assert form["entries"][1]["profiling_name"] == "gloo:broadcast"
    assert form["pg_config"] == {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    for path, content in (
        (tmp_path / "rank_0", pickle.dumps(form, 2)),
        (tmp_path / "rank_0.json", json.dumps(json_form(form)).encode()),
    ):
        path.write_bytes(content)
        read = read_dump(path)
        assert read.own
        assert [(e.op, e.sequence_nr, e.state, e.input_sizes, e.dtype) for e in read.entries] == [
            ("all_reduce", 1, "completed", ((4, 2),), "float32"),
            ("broadcast", 2, "completed", ((4, 2),), "float32"),
        ]


def test_what_a_dump_does_not_tell_is_no_mismatch(tmp_path: Path) -> None:
    """Rank 0 is known from its dump, without reduce operation, rank 1 from its recording. Sizes that differ count."""
    for wrong in (False, True):
        other = Box(pid=102, ppid=1, rank=1).rank(1)
        group = other.group("0", [0, 1]).group_seen(rank=1)
        other.at(1000).collective(
            "allreduce_", sequence_nr=1, sizes=(4, 2), group=group, reduce_op=0, state="completed"
        )
        run = write_run(tmp_path / str(wrong), Box(pid=101, ppid=1, rank=0).rank(0).group("0", [0, 1]), other)
        sizes = [[5, 2]] if wrong else [[4, 2]]
        path = dump(tmp_path / "rank_0", entry(1, input_sizes=sizes, output_sizes=sizes))
        report = build_report(load_runs(run, [path]))
        assert report.collectives is not None
        (found,) = report.collectives.groups or []
        assert (found.mismatch is not None) == wrong
