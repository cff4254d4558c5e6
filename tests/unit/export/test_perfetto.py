"""The trace for Perfetto: tests/integrations/test_trace_processor.py reads the same with Perfetto itself."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.job.merge import load_job
from pytracer.decode.types.snapshot import Job
from pytracer.export.perfetto import perfetto_trace
from pytracer.export.storage_total import storage_totals
from tests.support.cli import only_line, pytracer
from tests.support.collectives import Ranks, call
from tests.support.late_rank import OTHER_HOST, late_rank
from tests.support.synth import Box, write_run

Event = dict[str, Any]


def _events(job: Job) -> list[Event]:
    events: list[Event] = json.loads(perfetto_trace(job, build_report(job)))["traceEvents"]
    return events


def _calls(events: list[Event], number: int) -> dict[int, Event]:
    """The slices of a collective by rank."""
    return {e["args"]["rank"]: e for e in events if e.get("args", {}).get("sequence_nr") == number and e["ph"] == "X"}


def test_which_rank_entered_last_and_how_long_the_others_waited_is_in_the_trace(tmp_path: Path) -> None:
    """Collective 9: rank 2 enters 350 ms after rank 0."""
    calls = _calls(_events(late_rank(tmp_path)), 9)
    assert max(calls, key=lambda rank: calls[rank]["ts"]) == 2
    assert {rank: e["args"]["last_rank"] for rank, e in calls.items()} == dict.fromkeys(range(4), 2)
    assert calls[0]["args"]["waited_for_last_rank_ns"] == 350_000_000
    assert calls[2]["args"]["entered_last"] is True


def test_order_that_two_clocks_cannot_decide_is_not_claimed(tmp_path: Path) -> None:
    """Rank 2 runs on another host, 2 ms before rank 3: the collectives before, of 5 ms each, compare the clocks."""
    events = _events(late_rank(tmp_path, boot_id_of_last=OTHER_HOST, late_ms=8))
    for call_of_rank in _calls(events, 9).values():
        assert "last_rank" not in call_of_rank["args"]
        assert "waited_for_last_rank_ns" not in call_of_rank["args"]
    assert _calls(events, 9)[2]["args"]["clock_error_ns"] > 0


def test_a_rank_that_never_came_is_waited_for_and_nobody_is_the_last(tmp_path: Path) -> None:
    """Rank 1 exits before the second collective."""
    ranks = Ranks(2)
    ranks.everybody(call())
    ranks.calls(0, call(state="started"), first=2)
    ranks.done(1)
    ranks.terminated(0)
    events = _events(ranks.job(tmp_path))
    assert any(e["name"] == "waits for rank 1" for e in events)
    assert "last_rank" not in _calls(events, 2)[0]["args"]
    assert _calls(events, 2)[0]["args"]["state"] == "started"


def test_arrows_lead_from_the_first_call_to_the_last_through_all_others(tmp_path: Path) -> None:
    """Slices of one collective share a number; only the first has no arrow in, only the last none out."""
    calls = _calls(_events(late_rank(tmp_path)), 9)
    assert {e["bind_id"] for e in calls.values()} == {"0x9"}
    ends = [(e["flow_in"], e["flow_out"]) for e in sorted(calls.values(), key=lambda e: e["ts"])]
    assert ends == [(False, True), (True, True), (True, True), (True, False)]


def test_slices_of_a_track_nest_or_follow_one_another(tmp_path: Path) -> None:
    """Collectives of one group that overlap get a second track: viewers drop or shift what only overlaps."""
    box = Box(rank=0, world_size=1)
    group = box.group("0", [0]).group_seen("0", size=1)
    for number in range(1, 4):
        box.at(number * 0.4).collective("allreduce_", sequence_nr=number, state="completed", group=group)
    box.at(20).exit(0)
    write_run(tmp_path, box)
    spans: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in _events(load_job(tmp_path, symbols=False)):
        if event["ph"] == "X":
            spans.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    assert len(spans) > 1
    for found in spans.values():
        for begin, end in found:
            assert not any(begin < other < end < last for other, last in found)


def test_ranges_steps_marks_and_the_death_are_on_their_tracks(tmp_path: Path) -> None:
    """A range that never ended lasts until the process did; an autograd node has no end and is an instant."""
    box = Box(rank=0, world_size=1)
    box.at(10).step(3).at(20).event("RANGE_BEGIN", "forward").event("NODE", "AddmmBackward0", 7).at(30)
    box.event("RANGE_END", "forward").at(40).step(4).event("RANGE_BEGIN", "backward").at(60)
    box.crash(signal=11, addr=0x10, python=[("train", "train.py", 30)])
    write_run(tmp_path, box)
    events = {e["name"]: e for e in _events(load_job(tmp_path, symbols=False)) if e["ph"] in "Xi"}
    assert events["step 3"]["dur"] == pytest.approx(30_000, abs=1_000)
    assert events["forward"]["dur"] == pytest.approx(10_000, abs=1_000)
    assert events["backward"]["args"]["state"] == "open"
    assert (events["AddmmBackward0"]["ph"], events["AddmmBackward0"]["args"]["sequence_nr"]) == ("i", 7)
    assert (events["SIGSEGV"]["s"], events["SIGSEGV"]["args"]["primary"]) == ("p", True)


def test_total_of_storages_follows_allocations_and_frees(tmp_path: Path) -> None:
    """Up by the size of each, down again; the last value is what lives at the end."""
    box = Box(rank=0, world_size=1)
    box.at(10).step(1).alloc(0x7F0000000000, 4096).at(20).step(2).alloc(0x7F0000010000, 1000)
    box.at(30).step(3).free(0x7F0000000000).at(40).exit(0)
    write_run(tmp_path, box)
    snapshot = load_job(tmp_path, symbols=False).processes[0].snapshot
    totals = [nbytes for _, nbytes in storage_totals(snapshot)]
    assert totals[-1] == snapshot.live_bytes(on_cpu=True) == 1000
    assert max(totals) == 5096


def test_total_of_storages_begins_where_no_freed_one_is_forgotten(tmp_path: Path) -> None:
    """A thread that freed more than it remembers: the sum before would be too small, so there is none."""
    box = Box(rank=0, world_size=1)
    for number in range(1500):
        box.at(10 + number).step(number).alloc(0x7F0000000000, 4096).free(0x7F0000000000)
    box.at(2000).exit(0)
    write_run(tmp_path, box)
    snapshot = load_job(tmp_path, symbols=False).processes[0].snapshot
    first, _ = next(iter(storage_totals(snapshot)))
    assert first - snapshot.created_mono_ns > 400 * 1_000_000


def test_storages_of_an_ended_process_are_gone_in_the_trace(tmp_path: Path) -> None:
    """A viewer draws the last value on to the end of the trace."""
    box = Box(rank=0, world_size=1)
    box.at(10).step(1).alloc(0x7F0000000000, 4096).at(40).exit(0)
    write_run(tmp_path, box)
    values = [e["args"]["bytes"] for e in _events(load_job(tmp_path, symbols=False)) if e["ph"] == "C"]
    assert (max(values), values[-1]) == (4096, 0)


def test_export_writes_the_files_and_refuses_to_overwrite_them(tmp_path: Path) -> None:
    """`.gz` is compressed; the second time needs --force."""
    late_rank(tmp_path / "run")
    done = pytracer("export", "run", "--perfetto", "trace.json.gz", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    again = pytracer("export", "run", "--perfetto", "trace.json.gz", cwd=tmp_path)
    assert again.returncode == 2
    assert "trace.json.gz exists" in only_line(again)
    assert pytracer("export", "run", "--perfetto", "trace.json.gz", "--force", cwd=tmp_path).returncode == 0
    nothing = pytracer("export", "run", cwd=tmp_path)
    assert (nothing.returncode, "no format was given" in only_line(nothing)) == (2, True)
