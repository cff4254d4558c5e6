"""Light reading of large jobs: what is omitted, what must not change, and the suspects in full."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer._errors import InputError
from pytracer.analyze.engine import build_report
from pytracer.decode.job import merge
from pytracer.decode.job.detail import in_full
from pytracer.decode.recording.reader import read_box
from tests.support import scenarios as s
from tests.support.synth import Box, write_run

ADDR = 0x7F30_0000_0000
SAME = (
    "pid", "host", "boot_id", "state", "exit_code", "exit_mono_ns", "argv", "environment", "rank", "versions", "waits",
    "groups", "threads", "last_mono_ns", "dataloader_worker", "damage",
)  # fmt: skip


def worked(collectives: int = 200) -> Box:
    """A rank with records, storages, a module and many collectives; the last two are open."""
    box = s.rank(1).module("model", [{"fqn": "w", "addr": ADDR, "nbytes": 64}]).alloc(ADDR, 64)
    groups = [box.group_seen("0"), box.group_seen("1")]
    box.collective("gloo:all_reduce", sequence_nr=1, group=groups[1], state="started")
    for number in range(1, collectives + 1):
        state = "completed" if number < collectives else "started"
        box.at(100 + number).collective("gloo:all_reduce", sequence_nr=number, group=groups[0], state=state)
    return box.mark("the last record", tid=300)


def test_light_reading_tells_the_same_about_the_end(tmp_path: Path) -> None:
    """Identity, state, ends of children, groups, threads and the last moment."""
    path = worked().wait(7, exit_code=3).exception("ValueError", "bad").at(900).exit(1).write(tmp_path / "a.blackbox")
    full, light = read_box(path), read_box(path, light=True)
    assert {name: getattr(light, name) for name in SAME} == {name: getattr(full, name) for name in SAME}
    assert (light.light, full.light, light.events, len(light.storages)) == (True, False, (), 0)
    left_out = [fact for fact in full.facts if fact not in light.facts]
    assert {fact.kind for fact in left_out} == {"MODULE"}


def test_light_reading_keeps_the_last_collectives_and_the_open_ones(tmp_path: Path) -> None:
    """Of a ring that went round, too: the open one of another group is the oldest."""
    path = worked().write(tmp_path / "a.blackbox")
    full, light = read_box(path).collectives, read_box(path, light=True).collectives
    assert len(light) < len(full) == 201
    assert set(light) < set(full) and light[-64:] == full[-64:]
    assert (light[0].group, light[0].state) == ("1", "started")


def test_light_crash_keeps_what_it_died_of(tmp_path: Path) -> None:
    """Signal, address, stacks, and the mappings around what was touched."""
    maps = [(n << 20, (n << 20) + 4096, "rw-p", 0, "") for n in range(1, 400)]
    box = worked().crash(addr=(200 << 20) + 8, python=s.BACKWARD, native=s.NATIVE, mappings=maps)
    path = box.write(tmp_path / "a.blackbox")
    full, light = read_box(path).crash, read_box(path, light=True).crash
    assert full is not None and light is not None
    for name in ("signal", "code", "fault_addr", "python_stack", "native_stack", "thread_name", "mono_ns", "hits"):
        assert getattr(light, name) == getattr(full, name)
    assert any(m.start == 200 << 20 for m in light.mappings) and len(light.mappings) < 12


@pytest.mark.parametrize("size", [0, 7, 11, 100, 511, 600, 8192, 9000, 60_000, 200_000, 300_000])
def test_light_reading_survives_a_box_that_is_cut_off(size: int, tmp_path: Path) -> None:
    """As the full one: damage or an error, nothing else."""
    path = tmp_path / "a.blackbox"
    path.write_bytes(worked().crash(addr=8, native=s.NATIVE).content()[:size])
    found = []
    for light in (False, True):
        try:
            found.append([(item.what) for item in read_box(path, light=light).damage if "cut off" in item.what])
        except InputError as error:
            found.append([str(error)])
    assert found[0] == found[1]


def large(run: Path) -> Path:
    """Forty ranks: one faults in backward, the others lose their connections."""
    boxes, ends = [], []
    for number in range(40):
        box = s.rank(number, world_size=40).at(300)
        box.collective("gloo:all_reduce", sequence_nr=1, group=box.group_seen("0"))
        box.alloc(ADDR, 4096).free(ADDR).at(1000)
        if number == 17:
            box.crash(addr=ADDR + 8, python=s.BACKWARD, native=s.NATIVE, registers={"trapno": 14})
        else:
            s.lost_peer(box.at(1100 + number))
        boxes.append(box)
        ends.append((101 + number, {"signal": 11} if number == 17 else {"exit_code": 1}))
    return write_run(run, s.agent(*ends), *boxes)


def test_large_job_is_judged_as_if_all_had_been_read(tmp_path: Path) -> None:
    """The same verdict, order and reasons; only the one that died first is read in full."""
    run = large(tmp_path)
    full, light = build_report(merge.load_job(run)), build_report(merge.load_job(run, light=True))
    assert light.verdict == full.verdict
    assert light.verdict is not None and (light.verdict.class_, light.verdict.rank) == ("use-after-free", 17)
    for one, other in zip(full.processes or [], light.processes or [], strict=True):
        assert (one.rank, one.primary, one.why, one.started, one.ended) == (
            other.rank, other.primary, other.why, other.started, other.ended,
        )  # fmt: skip
        assert one.fault == other.fault


def test_small_job_is_read_in_full(tmp_path: Path) -> None:
    """Light reading begins where full reading takes too long."""
    job = merge.load_job(write_run(tmp_path, worked()), light=True)
    assert not any(process.snapshot.light for process in job.processes)


def test_box_that_is_gone_stays_as_it_was(tmp_path: Path) -> None:
    """It was removed between the two readings."""
    job = merge.load_job(large(tmp_path), light=True)
    (tmp_path / "boxes" / "node0.118.blackbox").unlink()
    index = next(i for i, process in enumerate(job.processes) if process.rank == 17)
    assert in_full(job, [index]) == job
