"""The buffers that a forward of DistributedDataParallel broadcasts, and the rows of ranks at different operations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import advice, finding, summary
from tests.support.scenarios import TORCH, program_in
from tests.support.synth import Frame

DDP = f"{TORCH}/nn/parallel/distributed.py"
FORWARD: Sequence[Frame] = (
    ("DistributedDataParallel._distributed_broadcast_coalesced", DDP, 2363),
    ("DistributedDataParallel.forward", DDP, 1650),
)
SOURCE = """from torch import cat
def refresh(encoder, rank):
    {0}
        vectors = cat(encoder(part))
def main():
    refresh(encoder, rank)
    dist.barrier()
main()
"""
BUCKET = 1 << 20
BUFFER = ("bank.positions", "int64")
MEAN = ("norm.running_mean", "float32")


def reported(
    run: Path, test: str = "if rank == 1:", buffers: Sequence[tuple[str, str]] = (BUFFER,), source: str = SOURCE
) -> Report:
    """Rank 1 in the forward of a wrapped model, rank 0 in a barrier behind it; both recorded these buffers."""
    program = str(program_in(run, source.format(test)))
    job = Ranks(2)
    barrier: Frame = ("barrier", f"{TORCH}/distributed/distributed_c10d.py", 5000)
    ways: list[list[Frame]] = [
        [barrier, ("main", program, 7)],
        [*FORWARD, ("refresh", program, 4), ("main", program, 6)],
    ]
    for rank, (box, way) in enumerate(zip(job.boxes, ways, strict=True)):
        if buffers:
            tensors = [
                {"fqn": name, "addr": 4096 * (n + 1), "nbytes": 512, "role": "buffer", "dtype": dtype}
                for n, (name, dtype) in enumerate(buffers)
            ]
            box.module("Encoder", tensors)
        box.buckets("Encoder", [{"addr": BUCKET, "nbytes": 512, "parameters": {"head.weight": 512}}])
        stack = [*way, ("<module>", program, 8)]
        by = box.site(way[0], next(frame for frame in way if frame[1] == program))
        name, dtype = ("barrier", "float32") if rank == 0 else ("broadcast_", "int64")
        box.collective(
            name,
            group=job.groups[rank]["0"],
            by=by,
            sequence_nr=1,
            state="failed",
            addr=BUCKET,
            sizes=[64],
            nbytes=512,
            dtype=dtype,
            root=0 if rank == 1 else -1,
        )
        box.at(7000).exception("RuntimeError", TIME_OUT, stack).exit(1)
        job.endings[rank] = {"exit_code": 1}
    return build_report(job.job(run))


def test_buffers_are_named_and_the_model_by_its_variable(run: Path) -> None:
    """What to do is said once; who left out the call is known."""
    report = reported(run)
    assert summary(report).endswith("the call of rank 1 is below `if rank == 1:` (program.py:3).")
    assert "from where" not in summary(report)
    said = advice(report)
    assert "use `encoder.module` there, or take it out of that branch" in said
    assert said.endswith(
        "Each forward of DistributedDataParallel broadcasts the buffers (`bank.positions`), after eval() as well; with "
        "broadcast_buffers=False it does not."
    )
    found = finding(report, "collective-mismatch")
    assert found is not None and not found.missing


@pytest.mark.parametrize(
    ("buffers", "words"),
    [
        ((BUFFER, MEAN), "broadcasts the buffers (`bank.positions` and `norm.running_mean`), "),
        ((MEAN,), "broadcasts the buffers, "),
        ((), "broadcasts the buffers, "),
    ],
    ids=["all dtypes", "of another dtype alone", "not recorded"],
)
def test_all_buffers_of_the_module_in_the_broadcast_are_counted(
    buffers: Sequence[tuple[str, str]], words: str, run: Path
) -> None:
    """Each forward sends those of every dtype; a module without one of that dtype is not the one that was called."""
    assert words in advice(reported(run, buffers=buffers))


def test_model_inside_is_told_where_no_branch_on_the_rank_is_named(run: Path) -> None:
    """The look-alike."""
    said = advice(reported(run, "if changed(vectors):"))
    assert "outside of the training loop call the model inside (`model.module(...)`)" in said


def test_rows_name_the_own_call_of_each_rank(run: Path) -> None:
    """A barrier has no bucket, also where what it passes lies where one had been."""
    report = reported(run)
    rows = {item.rank: item for item in report.processes or []}
    assert rows[0].why == "called barrier, rank 1 broadcast"
    assert rows[1].why == "called broadcast, rank 0 barrier"
    buffers = [call.buffer for rank in (0, 1) if (call := rows[rank].last_collective) is not None]
    assert [item.bucket_index if item is not None else None for item in buffers] == [None, 0]


def test_forward_of_a_training_step_is_not_advised_to_go_without(run: Path) -> None:
    """Its gradients are reduced next: the advice is for a forward that only some ranks come to."""
    trained = SOURCE.replace("vectors = cat(encoder(part))", "vectors = cat(encoder(part))\n        vectors.backward()")
    assert "broadcasts the buffers" not in advice(reported(run, source=trained))
