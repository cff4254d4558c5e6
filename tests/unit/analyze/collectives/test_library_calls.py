"""Of a collective that a library called: the function of it that the program called."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import advice
from tests.support.scenarios import TORCH, program_in
from tests.support.synth import Frame

C10D = f"{TORCH}/distributed/distributed_c10d.py"
SOURCE = """def save(opt, rank):
    if rank == 0:
        opt.consolidate_state_dict()
def main(opt, rank):
    save(opt, rank)
    loss.backward()
    dcp.save(state)
"""
BROADCAST = ("broadcast", C10D, 3000)
LOGGED = ("_exception_logger.<locals>.wrapper", f"{TORCH}/distributed/c10d_logger.py", 83)
NO_GRAD = ("context_decorator.<locals>.decorate_context", f"{TORCH}/utils/_contextlib.py", 124)
ZERO = ("ZeroRedundancyOptimizer.consolidate_state_dict", f"{TORCH}/distributed/optim/zero.py", 521)
DCP = ("save", f"{TORCH}/distributed/checkpoint/state_dict_saver.py", 180)
BACKWARD = ("Tensor.backward", f"{TORCH}/_tensor.py", 623)


def summary_of(run: Path, library: list[Frame], own: list[tuple[str, int]]) -> tuple[str, str]:
    """Rank 0 broadcasts from these frames, rank 1 all-reduces in its backward, from where rank 0 has called before."""
    program = str(program_in(run, SOURCE))
    job = Ranks(2)
    stacks = [[*library, *((name, program, line) for name, line in own)], [BACKWARD, ("main", program, 6)]]
    for rank, (box, stack) in enumerate(zip(job.boxes, stacks, strict=True)):
        group, gradient = job.groups[rank]["0"], box.site(BACKWARD, ("main", program, 6))
        box.collective("allreduce_", group=group, by=gradient, sequence_nr=1, state="completed", sizes=[4])
        first = next(frame for frame in stack if frame[1] == program)
        name = "broadcast_" if rank == 0 else "allreduce_"
        box.collective(name, group=group, by=box.site(stack[0], first), sequence_nr=2, state="failed", sizes=[4])
        box.at(7000).exception("RuntimeError", TIME_OUT, stack).exit(1)
    job.endings = {0: {"exit_code": 1}, 1: {"exit_code": 1}}
    report = build_report(job.job(run))
    return (report.verdict.summary if report.verdict is not None else None) or "", advice(report)


def test_function_of_the_library_is_named_in_headline_and_advice(run: Path) -> None:
    """Wrappers that only hand the call on are passed by; the other rank never came there."""
    said, told = summary_of(run, [BROADCAST, LOGGED, ZERO, NO_GRAD], [("save", 3), ("main", 5)])
    inside = "ZeroRedundancyOptimizer.consolidate_state_dict()"
    assert f"rank 0 called broadcast in {inside} at program.py:3 in save; " in said
    assert (
        "rank 1 called all_reduce in Tensor.backward() at program.py:6 in main; the call of rank 0 is below "
        "`if rank == 0:` (program.py:2)." in said
    )
    assert f"so that only some ranks call {inside}" in told


def test_function_of_a_module_is_called_as_the_program_calls_it(run: Path) -> None:
    """`save` alone could be any."""
    said, _ = summary_of(run, [BROADCAST, LOGGED, DCP, NO_GRAD], [("main", 7)])
    assert "rank 0 called broadcast in dcp.save() at program.py:7 in main" in said


@pytest.mark.parametrize("library", [[BROADCAST], [BROADCAST, LOGGED]])
def test_collective_that_the_line_calls_itself_needs_no_other_name(library: list[Frame], run: Path) -> None:
    """The look-alike."""
    said, _ = summary_of(run, library, [("main", 7)])
    assert "rank 0 called broadcast at program.py:7 in main" in said


def test_state_that_one_rank_alone_sets_is_read_by_one_and_set_by_all(run: Path) -> None:
    """Not "keep its result for one rank": the others take part with an empty state."""
    sets = ("set_model_state_dict", f"{TORCH}/distributed/checkpoint/state_dict.py", 1312)
    _, told = summary_of(run, [BROADCAST, LOGGED, sets, NO_GRAD], [("save", 3), ("main", 5)])
    assert "only some ranks call set_model_state_dict(), which is a collective of all ranks: call it on all" in told
    assert "the others pass an empty dict (`{}`)" in told and "printing or saving" not in told
