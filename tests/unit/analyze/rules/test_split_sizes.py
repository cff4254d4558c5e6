"""split-sizes: gloo's abort in an all_to_all, and aborts over other messages."""

from __future__ import annotations

from collections.abc import Sequence
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
IN_TORCH = ("all_to_all_single", f"{TORCH}/distributed/distributed_c10d.py", 5140)
SOURCE = "def route(out, x, counts, {0}):\n    dist.all_to_all_single(out, x, counts, {0})\n"


def aborted(
    run: Path,
    name: str = "alltoall_base_",
    *,
    ranks: int = 2,
    source: str = SOURCE.format("counts"),
    way: Sequence[tuple[str, int]] = (),
    at: tuple[str, int] = ("route", 2),
) -> Report:
    """Rank 0 aborts in the first collective, which rank 1 has finished: it waits in the second.

    `way`: functions and lines that led to the line of `at`, the innermost first.
    """
    program = str(program_in(run, source))
    job = Ranks(ranks)
    for rank in range(ranks):
        box = job.boxes[rank]
        by = box.site(IN_TORCH, (at[0], program, at[1]))
        state = "started" if rank == 0 else "completed"
        group = job.groups[rank]["0"]
        box.collective(name, group=group, by=by, sequence_nr=1, state=state, sizes=[6, 8], nbytes=192)
        if rank:
            box.collective(name, group=group, by=by, sequence_nr=2, state="failed", sizes=[6, 8], nbytes=192)
            job.raised(rank, at=7000)
    box = job.boxes[0].at(6000)
    python = [IN_TORCH, (at[0], program, at[1]), *((function, program, line) for function, line in way)] if way else []
    box.cpp_exception("gloo::EnforceNotMet", TOO_LONG).crash(signal=6, code=-6, sender_pid=box.pid, python=python)
    job.endings[0] = {"signal": 6}
    return build_report(job.job(run))


def test_rank_that_got_more_than_it_had_room_for_has_other_split_sizes(run: Path) -> None:
    """In rows of the tensor; the rank did not miss the next collective by itself."""
    report = aborted(run)
    assert verdict(report) == ("collective-mismatch", "likely")
    assert summary(report) == (
        "Rank 0 got 12 rows from rank 1 in all_to_all_single (collective 1 of the default group) at program.py:2 in "
        "route, where it had asked for 8: the ranks' split sizes do not fit: line 2 passes `counts` both for what is "
        "sent and for what is received."
    )
    assert finding(report, "collective-missing-rank") is None
    assert advice(report).startswith("Line 2 passes `counts` as output_split_sizes and as input_split_sizes: these are")


def test_other_expressions_are_not_said_to_be_equal(run: Path) -> None:
    """The counts that came from the others may be wrong in another way; of three ranks it is not known who sent."""
    report = aborted(run, source=SOURCE.format("sent"), ranks=3)
    assert advice(report).startswith("What a rank receives must be what the others send to it.")
    assert "got 12 rows from another rank" in summary(report)


FUNCTION = """def route(out, x, got, sent):
    dist.all_to_all_single(out, x, got, sent)
def forward(x):
    counts = plan(x)
    got = {0}
    mine = route(x, x, got, counts)
    return route(mine, mine, counts, {1})
"""


@pytest.mark.parametrize("got", ["counts", "list(counts)"])
def test_counts_that_a_line_gives_a_function_for_both(got: str, run: Path) -> None:
    """By what was passed for its two parameters; another line that does so is named."""
    report = aborted(run, source=FUNCTION.format(got, "counts"), way=[("forward", 6)])
    assert "passes `" in summary(report)
    assert "both for what is sent and for what is received" in summary(report)
    report = aborted(run / "plain", source=FUNCTION.replace("got, counts", "counts, counts"), way=[("forward", 6)])
    assert "Line 6 passes `counts` as output_split_sizes and as input_split_sizes" in advice(report)


def test_other_line_that_gives_the_same_twice_is_named(run: Path) -> None:
    """Of the same function, at the same places."""
    source = FUNCTION.format("plan(x)", "counts").replace("x, got, counts)", "x, counts, counts)")
    said = advice(aborted(run, source=source, way=[("forward", 6)]))
    assert "as input_split_sizes, and so does line 7: these are equal only" in said


@pytest.mark.parametrize("apply", ["Exchange.apply", "exchange"])
def test_counts_that_an_autograd_function_is_applied_to(apply: str, run: Path) -> None:
    """Its forward() has the context before what apply() is given."""
    source = (
        "class Exchange(Function):\n"
        "    def forward(ctx, x, got, sent):\n"
        "        dist.all_to_all_single(x, x, got, sent)\n"
        "exchange = Exchange.apply\n"
        "def send(x, counts, other):\n"
        f"    {apply}(x, counts, counts)\n"
        f"    {apply}(x, counts, other)\n"
    )
    report = aborted(run, source=source, way=[("send", 6)], at=("Exchange.forward", 3))
    assert "line 6 passes `counts` both for what is sent and for what is received" in summary(report)
    report = aborted(run / "other", source=source, way=[("send", 7)], at=("Exchange.forward", 3))
    assert "both for what is sent" not in summary(report)


@pytest.mark.parametrize("got", ["exchange(counts)", "[4, 4]"])
def test_counts_that_came_from_elsewhere_are_not_said_to_be_those_sent(got: str, run: Path) -> None:
    """The look-alike: they are wrong for another reason."""
    report = aborted(run, source=FUNCTION.format(got, "counts"), way=[("forward", 6)])
    assert "both for what is sent" not in summary(report)
    assert advice(report).startswith("What a rank receives must be what the others send to it.")


@pytest.mark.parametrize("name", ["allgather_", "allreduce_"])
def test_other_collectives_are_compared_by_their_sizes(name: str, run: Path) -> None:
    """The look-alike: only an all_to_all has split sizes."""
    assert finding(aborted(run, name), "split-sizes") is None
