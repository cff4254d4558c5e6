"""Ranks whose DistributedDataParallel has other options call other collectives: the option, its line, and its value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.blackbox.numbers import Entry
from pytracer.report.job import Report
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import advice
from tests.support.scenarios import TORCH, program_in
from tests.support.synth import Frame

SOURCE = """def settings(rank):
    cfg = {"lr": 0.1, "check": False}
    if rank == 0:
        cfg.update(check=True)
    return cfg

def wrap(model, cfg):
    return DDP(model, find_unused_parameters=cfg["check"])

def main(rank):
    cfg = settings(rank)
    model = wrap(Net(), cfg)
    for step in range(cfg["steps"]):
        loss = model(batch())
        loss.backward()
        opt.step()
main(rank)
"""
BACKWARD = ("_engine_run_backward", f"{TORCH}/autograd/graph.py", 979)
FORWARD = ("DistributedDataParallel._pre_forward", f"{TORCH}/nn/parallel/distributed.py", 1775)
BITMAP = "find_unused_parameters"


_WRAP = 8


def report_of(
    run: Path,
    settings: tuple[dict[str, Any], dict[str, Any]],
    source: str = SOURCE,
    *,
    role: str = "parameter",
    sides: tuple[Frame, Frame] = (BACKWARD, FORWARD),
    names: tuple[str, str] = ("allreduce_", "broadcast_"),
    hook: str | None = None,
    at: tuple[int, int] = (15, 14),
) -> Report:
    """Rank 0 fails in a call of its backward, rank 1 in one of its next forward."""
    program = str(program_in(run, source))
    job = Ranks(2)
    for rank, (box, place, line) in enumerate(zip(job.boxes, sides, at, strict=True)):
        tensor = {"fqn": "w", "role": role, "addr": 0x1000, "nbytes": 64}
        caller = {"function": "wrap", "file": program, "line": 8}
        box.module("Net", [tensor], settings=settings[rank], caller=caller)
        if hook is not None and rank == 1:
            box._json(int(Entry.HOOK), {"module": "Net", "hook": hook})
        stack = [place, ("main" if line != _WRAP else "wrap", program, line), ("<module>", program, 17)]
        by, op = box.site(place, stack[1]), names[rank]
        box.collective(op, group=job.groups[rank]["0"], by=by, sequence_nr=1, state="failed", dtype="Int", sizes=[6])
        box.at(7000).exception("RuntimeError", TIME_OUT, stack).exit(1)
    job.endings = {0: {"exit_code": 1}, 1: {"exit_code": 1}}
    return build_report(job.job(run))


def headline(report: Report) -> str:
    return (report.verdict.summary if report.verdict is not None else None) or ""


def test_option_that_differs_is_the_reason_and_its_value_is_followed(run: Path) -> None:
    """To the line below the branch on the rank that sets it: the dict was made with another value."""
    report = report_of(run, ({BITMAP: True}, {BITMAP: False}))
    begin = f"DistributedDataParallel has {BITMAP}=True on rank 0 and False on rank 1 (program.py:8 in wrap)."
    assert headline(report).startswith(begin)
    assert advice(report).startswith(f"Pass the same {BITMAP} on all ranks")
    assert (
        "At line 8 `cfg['check']` is True on rank 0 and False on rank 1: line 4 (`cfg.update(check=True)`) sets it "
        in (advice(report))
    )
    assert "below `if rank == 0:` (line 3)" in advice(report) and "more rounds" not in advice(report)


def test_constant_is_quoted(run: Path) -> None:
    """Where ranks run other lines or programs, it is all that there is to say."""
    report = report_of(run, ({BITMAP: True}, {BITMAP: False}), SOURCE.replace('cfg["check"]', "True"))
    assert advice(report).endswith("line 8 passes `find_unused_parameters=True`.")


@pytest.mark.parametrize(
    "settings",
    [
        ({BITMAP: True}, {BITMAP: True}),
        ({}, {BITMAP: True}),
        ({BITMAP: True, "static_graph": True}, {BITMAP: False, "static_graph": True}),
        ({"broadcast_buffers": True}, {"broadcast_buffers": False}),
    ],
)
def test_options_without_effect_are_no_reason(settings: tuple[dict[str, Any], dict[str, Any]], run: Path) -> None:
    """The look-alikes: the same, not recorded, ignored with a static graph, or for buffers that there are not."""
    assert headline(report_of(run, settings)).startswith("Ranks disagree in")


def test_broadcast_of_buffers_needs_a_buffer(run: Path) -> None:
    """The case that fires."""
    report = report_of(run, ({"broadcast_buffers": True}, {"broadcast_buffers": False}), role="buffer")
    assert headline(report).startswith("DistributedDataParallel has broadcast_buffers=True on rank 0 and False on rank")


def test_collectives_of_the_program_itself_have_other_reasons(run: Path) -> None:
    """The look-alike: neither call is DDP's."""
    own = ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252)
    report = report_of(run, ({BITMAP: True}, {BITMAP: False}), sides=(own, own))
    assert headline(report).startswith("Ranks disagree in")


def test_communication_hook_of_one_rank_is_named_with_its_line(run: Path) -> None:
    """And with the branch that it is below."""
    register = "    if slow(rank):\n        model.register_comm_hook(None, compress)\n"
    source = SOURCE.replace("    for step in", f"{register}    for step in")
    report = report_of(run, ({}, {}), source, hook="compress")
    assert headline(report).startswith(
        "DistributedDataParallel has the communication hook compress on rank 1 and none on"
    )
    assert "Line 14 (`model.register_comm_hook(None, compress)`) registers it below `if slow(rank):` (line 13)" in (
        advice(report)
    )


def test_attribute_of_a_config_is_followed_and_wrapping_itself_communicates(run: Path) -> None:
    """The broadcast of the first state has other sizes on the line that wraps the module; `cfg.check` is set below."""
    source = SOURCE.replace('cfg = {"lr": 0.1, "check": False}', "cfg = Config()").replace('cfg["check"]', "cfg.check")
    source = source.replace("cfg.update(check=True)", "cfg.check = True")
    wrapping = ("_sync_params_and_buffers", f"{TORCH}/distributed/utils.py", 300)
    report = report_of(run, ({BITMAP: True}, {BITMAP: False}), source, sides=(wrapping, wrapping), at=(8, 8))
    assert headline(report).startswith("DistributedDataParallel has find_unused_parameters=True on rank 0")
    assert "line 4 (`cfg.check = True`) sets it below `if rank == 0:` (line 3)" in advice(report)
