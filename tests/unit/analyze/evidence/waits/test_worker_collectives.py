"""A collective in a DataLoader worker that was forked, and what looks like one."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.waits.worker_collectives import collective_in_worker, worker_advice
from pytracer.report.job import PythonFrame
from tests.support.scenarios import TORCH, program_in

SOURCE = """def same_length(batch):
    dist.all_reduce(longest(batch))
def main():
    loader = DataLoader(data, batch_size=8, collate_fn=same_length, num_workers=2)
    for batch in loader:
        step(batch)
"""
C10D = f"{TORCH}/distributed/distributed_c10d.py"
LOOP = PythonFrame(function="_worker_loop", file=f"{TORCH}/utils/data/_utils/worker.py", line=374)


def worker(
    run: Path, called: str = "all_reduce", *, forked: bool = True, loop: bool = True, source: str = SOURCE
) -> Any:
    """Its frames, then those of the parent at the fork."""
    program = str(program_in(run, source))
    stack = [
        PythonFrame(function=called, file=C10D, line=3252),
        PythonFrame(function="same_length", file=program, line=2),
        *([LOOP] if loop else []),
        PythonFrame(function="main", file=program, line=5),
    ]
    snapshot = SimpleNamespace(
        worker=SimpleNamespace(worker_id=0),
        facts=[SimpleNamespace(mono_ns=50 if forked else 150)],
        created_mono_ns=100,
        argv=(),
        created_wall_ns=time.time_ns() + 10**9,
        pid=7,
    )
    process = SimpleNamespace(snapshot=snapshot, role="dataloader-worker", rank=None, parent_rank=1)
    return SimpleNamespace(python_stack=stack, process=process)


def test_collective_of_a_forked_worker_is_found(run: Path) -> None:
    """With the line, and what to do: the loader and what runs in its workers are named."""
    found = collective_in_worker(worker(run))
    assert found is not None
    assert found.words == "DataLoader worker 0 of rank 1 stands in all_reduce() at program.py:2 in same_length"
    assert worker_advice(found).startswith(
        "`same_length` runs in the worker processes of the loader of line 4 (collate_fn=same_length, num_workers=2): "
        "call no collectives there. Do what needs all_reduce() in the main process, in the loop of line 5,"
    )


def test_loader_that_is_made_elsewhere_is_not_named(run: Path) -> None:
    """Only its workers are."""
    found = collective_in_worker(worker(run, source=SOURCE.replace("loader = DataLoader(", "loader = make(")))
    assert found is not None and worker_advice(found).startswith("`same_length` runs in the loader's worker processes:")


@pytest.mark.parametrize("changed", [{"forked": False}, {"loop": False}, {"called": "get_rank"}])
def test_look_alikes(changed: dict[str, Any], run: Path) -> None:
    """A worker that was spawned, a process that is none, a function that does not communicate."""
    assert collective_in_worker(worker(run, **changed)) is None
