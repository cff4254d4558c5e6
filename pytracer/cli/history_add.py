"""Runs on their way into a history: read in this process, in several, or on a cluster of Ray or Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from pytracer._errors import InputError, PytracerError
from pytracer._extras import library
from pytracer.cli.reports import read_report, redacted
from pytracer.history.store import Added, Store

if TYPE_CHECKING:
    from pytracer.history.rows import Row


_BATCH = 2000  # runs in one file: what is lost by Ctrl-C, and how often a store on a network is asked
_MOST_TASKS = 256  # of a cluster: each writes a file for each day that it meets
_LEAST_OF_TASK = 20


@dataclass(frozen=True)
class Outcome:
    """What became of some runs; `failed`: why those that could not be read were not added."""

    added: Added
    failed: tuple[str, ...]


@dataclass(frozen=True)
class Reader:
    """Reads one run; picklable, for other processes."""

    redact: bool
    labels: dict[str, str]
    url: str | None

    def __call__(self, path: Path) -> Row | str:
        """The row of a run; or, in words, why there is none."""
        from pytracer.history.rows import run_row

        try:
            report = read_report([path], progress=False)
            return run_row(redacted(report) if self.redact else report, labels=self.labels, url=self.url)
        except (PytracerError, OSError) as error:
            return f"{path}: not added: {error}"


def add_here(
    store: Store, read: Reader, runs: Sequence[Path], jobs: int, progress: Callable[[int, int], None] | None
) -> Iterator[Outcome]:
    """Reads runs in `jobs` processes; this one writes, a batch at a time."""
    items = _counted(_rows(read, runs, jobs), len(runs), progress)
    while batch := list(islice(items, _BATCH)):
        yield _put(store, batch)


def add_on(
    engine: str, store: Store, read: Reader, runs: Sequence[Path], progress: Callable[[int, int], None] | None
) -> Iterator[Outcome]:
    """Reads and writes runs in tasks of an engine; runs and store must be where its workers find them.

    The engine is that of the environment (RAY_ADDRESS; Spark's configuration), else one of this machine.

    Raises:
        PytracerError: the engine is not installed, or it failed.
    """
    absolute = [path.absolute() for path in runs]
    size = max(_LEAST_OF_TASK, -(-len(absolute) // _MOST_TASKS))
    tasks = [absolute[start : start + size] for start in range(0, len(absolute), size)]
    work = partial(_task, store.url, read)
    done = 0
    try:
        for outcome in (_on_ray if engine == "ray" else _on_spark)(work, tasks):
            done += outcome.added.new + outcome.added.known + len(outcome.failed)
            if progress is not None:
                progress(done, len(runs))
            yield outcome
    except PytracerError:
        raise
    except Exception as error:  # each engine has errors of its own
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise PytracerError(
            f"--engine {engine}: {reason}", "what was added stays: give the same command again once it works"
        ) from error


def listed(runs: Sequence[Path]) -> list[Path]:
    """The runs, with those that stdin names, one in a line, in the place of `-`.

    Raises:
        InputError: stdin names none.
    """
    found: list[Path] = []
    for path in runs:
        if str(path) == "-":
            lines = [line.rstrip("\n") for line in sys.stdin]
            found += [Path(line) for line in lines if line]
        else:
            found.append(path)
    if not found:
        raise InputError("stdin names no run", "give the directories of runs, one in a line")
    return found


def _task(url: str, read: Reader, runs: Sequence[Path]) -> Outcome:
    return _put(Store(url), [read(path) for path in runs])


def _put(store: Store, items: Sequence[Row | str]) -> Outcome:
    added = store.add([item for item in items if not isinstance(item, str)])
    return Outcome(added, tuple(item for item in items if isinstance(item, str)))


def _counted(
    items: Iterator[Row | str], total: int, progress: Callable[[int, int], None] | None
) -> Iterator[Row | str]:
    for done, item in enumerate(items, 1):
        if progress is not None:
            progress(done, total)
        yield item


def _rows(read: Reader, runs: Sequence[Path], jobs: int) -> Iterator[Row | str]:
    if jobs == 1 or len(runs) == 1:
        yield from map(read, runs)
        return
    with ProcessPoolExecutor(min(jobs, len(runs)), mp_context=get_context("spawn")) as pool:
        yield from pool.map(read, runs, chunksize=max(1, min(32, len(runs) // (jobs * 4))))


def _on_ray(work: Callable[[Sequence[Path]], Outcome], tasks: Sequence[Sequence[Path]]) -> Iterator[Outcome]:
    data = library("ray.data", "ray")
    items = [{"runs": [str(path) for path in task]} for task in tasks]
    done = data.from_items(items, override_num_blocks=len(items)).map(partial(_ray_row, work))
    for row in done.iter_rows():
        yield Outcome(Added(row["new"], row["known"]), tuple(row["failed"]))


def _ray_row(work: Callable[[Sequence[Path]], Outcome], row: dict[str, list[str]]) -> dict[str, object]:
    outcome = work([Path(path) for path in row["runs"]])
    return {"new": outcome.added.new, "known": outcome.added.known, "failed": list(outcome.failed)}


def _on_spark(work: Callable[[Sequence[Path]], Outcome], tasks: Sequence[Sequence[Path]]) -> Iterator[Outcome]:
    session = library("pyspark.sql", "spark").SparkSession.builder.appName("pytracer history add").getOrCreate()
    yield from session.sparkContext.parallelize(tasks, len(tasks)).map(work).toLocalIterator()
