"""Lists of objects of another length on each rank, by the first message of their broadcast."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support.collectives import TIME_OUT, Ranks, call
from tests.support.deaths import advice
from tests.support.scenarios import TORCH, program_in


def broadcast_of(run: Path, line: str, dtype: str) -> str:
    """Rank 0 broadcasts two elements, rank 1 one, from a line of the program."""
    program = program_in(run, f"def share(objects):\n    {line}\n")
    job = Ranks(2)
    for rank, count in ((0, 2), (1, 1)):
        values = dict(call("broadcast_", root=0, state="failed", dtype=dtype, sizes=[count]))
        name, _ = values.pop("name"), values.pop("line")
        box = job.boxes[rank]
        by = box.site(("broadcast", f"{TORCH}/distributed/distributed_c10d.py", 3100), ("share", str(program), 2))
        box.collective(name, group=job.groups[rank]["0"], by=by, **{"sequence_nr": 1, **values})
        job.raised(rank, TIME_OUT, at=7000 + rank)
    return advice(build_report(job.job(run)))


def test_lengths_of_lists_of_objects_are_told(run: Path) -> None:
    """The first message of such a call has one size for each object."""
    said = broadcast_of(run, "dist.broadcast_object_list(objects, src=0)", "Long")
    assert said.startswith("The lists that are given to broadcast_object_list() have other lengths: 2 on rank 0 and 1")


@pytest.mark.parametrize(
    ("line", "dtype"),
    [("dist.broadcast(objects, src=0)", "Long"), ("dist.broadcast_object_list(objects, src=0)", "Byte")],
)
def test_other_tensors_are_no_lists_of_objects(line: str, dtype: str, run: Path) -> None:
    """The look-alikes: a tensor of the program's own; the objects themselves."""
    assert "lists" not in broadcast_of(run, line, dtype)
