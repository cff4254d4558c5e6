"""Run directories of large synthetic jobs: real sizes, written sparsely, made in seconds.

One recording of each kind is built by `tests/support/synth.py`, with rings as full as those of a long training job.
Every other one is a copy with another identity: pid, host, boot and rank are written over placeholders.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytracer.blackbox import schema
from pytracer.blackbox.codec import layout
from tests.support import scenarios as s
from tests.support.synth import Box

RANKS_PER_HOST = 8
_BLOCK = 4096
_WEIGHTS = 0x7F00_0000_0000
_STEPS, _PER_STEP = 250, 4
_HEADER = layout(schema.FILE_HEADER).offsets
_RANK_MARK, _ENVIRONMENT_MARK = b'"rank": 7777777', b"RANK=7777777"
_PIDS = 1000  # ranks of a host have pids from here on; their agent has the one before


@dataclass(frozen=True)
class _Identity:
    pid: int
    ppid: int
    rank: int
    host: int


def write_job(directory: Path, ranks: int) -> int:
    """Writes a job in which one rank faults in backward and all others lose their connections; returns that rank.

    Ranks and hosts are as even as `RANKS_PER_HOST` allows; each host has its agent of torchrun.
    """
    boxes = directory / "boxes"
    boxes.mkdir(parents=True)
    victim = ranks // 2
    peer, died = bytes(_peer(ranks).content()), bytes(_victim(ranks).content())
    for rank in range(ranks):
        host = rank // RANKS_PER_HOST
        identity = _Identity(_PIDS + rank % RANKS_PER_HOST, _PIDS - 1, rank, host)
        _write(boxes, died if rank == victim else peer, identity)
    for host in range(-(-ranks // RANKS_PER_HOST)):
        local = range(min(RANKS_PER_HOST, ranks - host * RANKS_PER_HOST))
        ends = [(_PIDS + i, {"signal": 11} if host * RANKS_PER_HOST + i == victim else {"exit_code": 1}) for i in local]
        agent = s.agent(*ends, at=70_000)
        _write(boxes, bytes(agent.content()), _Identity(_PIDS - 1, 1, -1, host))
    return victim


def _peer(ranks: int) -> Box:
    return s.lost_peer(_worked(ranks).at(65_200))


def _victim(ranks: int) -> Box:
    box = _worked(ranks).at(65_000)
    native = [(s.VICTIM, 0x1100), *((s.TORCH_CPU, 0x9900 + 16 * n) for n in range(40))]
    maps = [
        (0x5555_0000_0000 + n * 0x10_0000, 0x5555_0008_0000 + n * 0x10_0000, "r-xp", 0, s.PYTHON) for n in range(900)
    ]
    return box.crash(addr=8, python=s.BACKWARD, native=native, mappings=maps, node="AddmmBackward0")


def _worked(ranks: int) -> Box:
    """A rank after some steps: four collectives in each, a ring of records, storages, and the names behind them."""
    box = Box(
        pid=_PIDS, ppid=_PIDS - 1, environment=_environment(ranks), records_per_thread=256, freed_per_thread=1024,
        threads_per_chunk=16, slots_log2=16, journal_bytes=2 << 20,
    )  # fmt: skip
    box.versions(python="3.11.7", torch="2.13.0+cpu", cuda=None)
    rank = {"local_rank": None, "world_size": ranks, "backend": "gloo", "init": "env://"}
    box.entry(33, b"{" + _RANK_MARK + b", " + json.dumps(rank).encode()[1:])
    box.group("0", list(range(ranks)))
    tensors = [{"fqn": f"layers.{n}.weight", "addr": _WEIGHTS + n * (4 << 20), "nbytes": 4 << 20} for n in range(300)]
    box.module("model", tensors)
    group = box.group_seen("0", size=ranks)
    sites = [box.site((f"forward_{n}", s.SCRIPT, 10 + n), ("main", s.SCRIPT, 88)) for n in range(400)]
    for n in range(3000):
        box.alloc(0x7E00_0000_0000 + n * (1 << 20), 4096, sites[n % len(sites)])
    for n in range(_STEPS):
        box.at(1000 + n * 250).step(n)
        for bucket in range(_PER_STEP):
            box.event("NODE", f"AddmmBackward{bucket}", n)
            box.collective(
                "gloo:all_reduce",
                group=group,
                state="completed",
                addr=_WEIGHTS,
                nbytes=25 << 20,
                by=sites[bucket],
            )
    box.at(65_000 - 10).collective("gloo:all_reduce", group=group, state="started", addr=_WEIGHTS, nbytes=4096)
    return box


def _environment(ranks: int) -> dict[str, str]:
    """torchrun's, with a placeholder for the rank."""
    return {
        "RANK": "7777777", "WORLD_SIZE": str(ranks), "MASTER_ADDR": "node0", "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "bench", "TORCHELASTIC_RESTART_COUNT": "0",
    }  # fmt: skip


def _write(boxes: Path, content: bytes, identity: _Identity) -> None:
    """The recording with another identity; blocks of zeros take no room on the disk."""
    data = bytearray(content)
    name, boot = f"node{identity.host}", f"b0075f00-0000-4000-8000-{identity.host:012d}"
    for field, size, value in (("pid", 4, identity.pid), ("ppid", 4, identity.ppid), ("start_ticks", 8, identity.pid)):
        data[_HEADER[field] : _HEADER[field] + size] = value.to_bytes(size, "little")
    for field, size, text in (("host", 64, name), ("boot_id", 40, boot)):
        data[_HEADER[field] : _HEADER[field] + size] = text.encode().ljust(size, b"\0")
    _put(data, _RANK_MARK, f'"rank": {identity.rank:7d}'.encode())
    _put(data, _ENVIRONMENT_MARK, f"RANK={identity.rank:07d}".encode())
    with open(boxes / f"{name}.{identity.pid}.blackbox", "wb") as file:
        for at in _used(data):
            os.pwrite(file.fileno(), data[at : at + _BLOCK], at)
        file.truncate(len(data))


def _put(data: bytearray, mark: bytes, text: bytes) -> None:
    at = data.find(mark)
    if at >= 0:
        data[at : at + len(mark)] = text


def _used(data: bytearray) -> Iterator[int]:
    empty = bytes(_BLOCK)
    return (at for at in range(0, len(data), _BLOCK) if data[at : at + _BLOCK] != empty[: len(data) - at])
