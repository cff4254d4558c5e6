"""split-sizes: gloo's abort in an all_to_all, and aborts over other messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import Ranks
from tests.support.deaths import advice, finding, summary, verdict
from tests.support.scenarios import TORCH, program_in

TOO_LONG = (
    "[enforce fail at ../pair.cc:456] op.preamble.length <= op.nbytes. 384 vs 256. Received data size doesn't match"
)
SOURCE = "def route(out, x, counts, {0}):\n    dist.all_to_all_single(out, x, counts, {0})\n"


def aborted(
    run: Path, name: str = "alltoall_base_", *, ranks: int = 2, source: str = SOURCE.format("counts")
) -> Report:
    """Rank 0 aborts in the first collective, which rank 1 has finished: it waits in the second."""
    program = str(program_in(run, source))
    job = Ranks(ranks)
    for rank in range(ranks):
        box = job.boxes[rank]
        by = box.site(("all_to_all_single", f"{TORCH}/distributed/distributed_c10d.py", 5140), ("route", program, 2))
        state = "started" if rank == 0 else "completed"
        group = job.groups[rank]["0"]
        box.collective(name, group=group, by=by, sequence_nr=1, state=state, sizes=[6, 8], nbytes=192)
        if rank:
            box.collective(name, group=group, by=by, sequence_nr=2, state="failed", sizes=[6, 8], nbytes=192)
            job.raised(rank, at=7000)
    box = job.boxes[0].at(6000)
    box.cpp_exception("gloo::EnforceNotMet", TOO_LONG).crash(signal=6, code=-6, sender_pid=box.pid)
    job.endings[0] = {"signal": 6}
    return build_report(job.job(run))


def test_rank_that_got_more_than_it_had_room_for_has_other_split_sizes(run: Path) -> None:
    """In rows of the tensor; the rank did not miss the next collective by itself."""
    report = aborted(run)
    assert verdict(report) == ("collective-mismatch", "likely")
    assert summary(report) == (
        "Rank 0 got 12 rows from rank 1 in all_to_all_single (collective 1 of the default group) at program.py:2 in "
        "route, where it had asked for 8: the ranks' split sizes do not fit."
    )
    assert advice(report).startswith("Line 2 passes `counts` as output_split_sizes and as input_split_sizes, which are")


def test_other_expressions_are_not_said_to_be_equal(run: Path) -> None:
    """The counts that came from the others may be wrong in another way; of three ranks it is not known who sent."""
    report = aborted(run, source=SOURCE.format("sent"), ranks=3)
    assert advice(report).startswith("What a rank receives must be what the others send to it.")
    assert "got 12 rows from another rank" in summary(report)


@pytest.mark.parametrize("name", ["allgather_", "allreduce_"])
def test_other_collectives_are_compared_by_their_sizes(name: str, run: Path) -> None:
    """The look-alike: only an all_to_all has split sizes."""
    assert finding(aborted(run, name), "split-sizes") is None
