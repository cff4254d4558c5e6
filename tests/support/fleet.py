"""A fleet's history with known truth: runs on many hosts, frequent and rare causes, one bad host, one regression."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa

from pytracer.history.rows import arrow_schema
from pytracer.history.store import Store

CAUSES, HOSTS = 3000, 500
BAD_HOST, BAD_FACTOR = "node-0137", 6.0
REGRESSION, REGRESSION_FACTOR = 41, 8.0  # a cause that torch 2.13 made more frequent
_CLASSES = (
    "python-exception", "use-after-free", "out-of-bounds", "oom-kill", "missing-rank", "collective-mismatch",
    "null-dereference", "external-kill", "abort", "shm-exhausted", "hang", "cuda-error",
)  # fmt: skip
_TORCH = ("2.11.0", "2.12.1", "2.13.0")
_FRAMES = 12


@dataclass(frozen=True)
class Fleet:
    """How much of it, and from which seed."""

    deaths: int
    clean: int
    days: int = 365
    seed: int = 1
    since: date = date(2025, 11, 1)

    def write(self, store: Store) -> None:
        """All days, one file each, as `history compact` leaves them."""
        random = np.random.default_rng(self.seed)
        causes = _Causes(random)
        for number in range(self.days):
            day = self.since + timedelta(days=number)
            share = slice(number, None, self.days)
            deaths, clean = len(range(self.deaths)[share]), len(range(self.clean)[share])
            torch = min(len(_TORCH) - 1, number * len(_TORCH) // self.days)
            table = causes.day(random, day, deaths, clean, torch)
            store.write_table(day.isoformat(), table)


class _Causes:
    """What each cause looks like; a run takes all of it."""

    def __init__(self, random: np.random.Generator) -> None:
        weights = 1.0 / (np.arange(CAUSES) + 8.0)
        self._weights = weights / weights.sum()
        numbers = range(CAUSES)
        classes = [_CLASSES[random.integers(len(_CLASSES))] for _ in numbers]
        self._of_cause = {
            "class": pa.array(classes),
            "fingerprint": pa.array([f"f1-{random.bytes(8).hex()}" for _ in numbers]),
            "confidence": pa.array([("certain", "likely", "possible")[number % 3] for number in numbers]),
            "finding": pa.array([f"rule-{number % 60}" for number in numbers]),
            "place": pa.array([f"train_{number % 97}.py:{number} in step_{number % 31}" for number in numbers]),
            "signal": pa.array([("SIGSEGV", "SIGABRT", "SIGKILL", None)[number % 4] for number in numbers]),
            "advice": pa.array(
                [f"Check the sizes that step_{number % 31} passes on, and what keeps them." for number in numbers]
            ),
        }
        self._frames = pa.array([_frames(number) for number in numbers], arrow_schema().field("frames").type)

    def day(self, random: np.random.Generator, day: date, deaths: int, clean: int, torch: int) -> pa.Table:
        runs = deaths + clean
        weights = self._weights.copy()
        if torch == len(_TORCH) - 1:
            weights[REGRESSION] *= REGRESSION_FACTOR
        cause = random.choice(CAUSES, runs, p=weights / weights.sum())
        died = np.arange(runs) < deaths
        mask = ~died
        columns: dict[str, Any] = {
            name: values.take(pa.array(cause, mask=mask)) for name, values in self._of_cause.items()
        }
        columns["class"] = pa.array(np.where(died, columns["class"].to_numpy(zero_copy_only=False), "clean"))
        columns["frames"] = self._frames.take(pa.array(cause, mask=mask))
        keys = random.integers(-(2**63), 2**63 - 1, runs)
        midnight = datetime(day.year, day.month, day.day, tzinfo=timezone.utc)
        seconds = np.sort(random.integers(0, 86400, runs))
        started = np.datetime64(midnight.replace(tzinfo=None), "us") + seconds.astype("timedelta64[s]")
        nodes, host, world = _nodes(random, runs, died)
        summaries = [
            f"Rank {number % 8} died at {place}: {number} bytes behind a tensor"
            for number, place in zip(keys % 4096, columns["place"].to_pylist(), strict=True)
        ]
        names = arrow_schema()
        columns |= {
            "run_key": pa.array(keys), "run_id": pa.array([f"job-{key & 0xFFFFFFFF:08x}" for key in keys]),
            "started": pa.array(started, names.field("started").type),
            "added": pa.array(started, names.field("added").type),
            "died": pa.array(died), "summary": pa.array(summaries, mask=mask), "host": pa.array(host, mask=mask),
            "world_size": pa.array(world, pa.int32()), "nodes": nodes, "torch": pa.array([_TORCH[torch]] * runs),
            "python": pa.array(["3.11.7"] * runs), "launcher": pa.array(["torchrun"] * runs),
            "fingerprint_version": pa.array([1] * runs, pa.int32()),
            "directory": pa.array([f"/scratch/runs/{key & 0xFFFFFFFF:08x}" for key in keys]),
        }  # fmt: skip
        arrays = [
            columns[field.name].cast(field.type) if field.name in columns else pa.nulls(runs, field.type)
            for field in names
        ]
        return pa.Table.from_arrays(arrays, schema=names)


def _frames(number: int) -> list[dict[str, Any]]:
    file = f"/srv/team/train_{number % 97}.py"
    python = [
        {
            "native": False,
            "function": f"step_{(number + depth) % 31}",
            "file": file,
            "line": number + depth,
            "own": True,
        }
        for depth in range(_FRAMES // 2)
    ]
    image = {"native": True, "image": "libtorch_cpu.so", "build_id": "a" * 40}
    native = [
        {**image, "function": f"at::native::kernel_{(number * 7 + depth) % 400}", "offset": hex(number * 64 + depth)}
        for depth in range(_FRAMES // 2)
    ]
    return [*native, *python]


def _nodes(random: np.random.Generator, runs: int, died: np.ndarray) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """Hosts of each run, 8 ranks on each; the bad one is the culprit more often than its share."""
    names = np.array([f"node-{number:04d}" for number in range(HOSTS)])
    bad = int(np.flatnonzero(names == BAD_HOST)[0])
    counts = random.choice([1, 2, 4, 8], runs, p=[0.4, 0.3, 0.2, 0.1])
    offsets = np.concatenate([[0], np.cumsum(counts)])
    first = random.integers(0, HOSTS, runs)
    hosts = np.concatenate([(start + np.arange(count)) % HOSTS for start, count in zip(first, counts, strict=True)])
    culprit = np.zeros(len(hosts), bool)
    draw = -np.log(random.random(len(hosts))) / np.where(hosts == bad, BAD_FACTOR, 1.0)  # the smallest: by weight
    for start, end in itertools.pairwise(offsets):
        culprit[start + int(np.argmin(draw[start:end]))] = True
    culprit &= np.repeat(died, counts)
    first_culprit = np.full(runs, names[0])
    rows = np.repeat(np.arange(runs), counts)
    first_culprit[rows[culprit]] = names[hosts[culprit]]
    structure = pa.StructArray.from_arrays(
        [pa.array(names[hosts]), pa.array(np.full(len(hosts), 8), pa.int32()), pa.array(culprit)],
        fields=list(arrow_schema().field("nodes").type.value_type),
    )
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), structure), first_culprit, counts * 8
