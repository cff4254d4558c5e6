"""Rules about a wrong set-up of data and model, and about DataLoader workers: each fires; its look-alike does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Finding, Report
from tests.support.collectives import CLOSED, Ranks, call
from tests.support.scenarios import SCRIPT, TORCH
from tests.support.synth import Box

DONE = call()
UNUSED = (
    "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that "
    "your module has parameters that were not used in producing loss.\n"
    "Parameter indices which did not receive grad for rank {}: {}\n In addition, you can set the environment variable"
)
TENSORS = [{"fqn": name, "addr": 0x1000 * n, "nbytes": 64} for n, name in enumerate(("frozen", "a", "b", "c"), 1)]
BUCKET = {"addr": 0x9000, "nbytes": 192, "parameters": {"c": 64, "b": 64, "a": 64}}
SAMPLER = f"{TORCH}/utils/data/distributed.py"


def finding(report: Report, rule: str) -> Finding | None:
    return next((item for item in report.findings or [] if item.id == rule), None)


def summary(report: Report) -> str:
    assert report.verdict is not None
    return report.verdict.summary or ""


# unused-parameters


def unused(run: Path, indices: dict[int, str]) -> Report:
    job = Ranks(2)
    for box in job.boxes:
        box.module("model", TENSORS).buckets("model", [BUCKET])
    job.everybody(DONE)
    for rank, words in indices.items():
        job.raised(rank, UNUSED.format(rank, words), at=3000 + rank)
    for rank in {0, 1} - set(indices):
        job.raised(rank, CLOSED)
    return build_report(job.job(run))


def test_unused_parameters_get_their_names(run: Path) -> None:
    """Indices count the parameters that DDP reduces: the frozen one is none of them."""
    report = unused(run, {0: "1 2", 1: "1 2"})
    assert report.verdict is not None and (report.verdict.class_, report.verdict.rank) == ("misuse", None)
    assert summary(report).endswith(
        "Ranks 0 and 1 left parameters out of the loss, for whose gradients DDP waits: b and c."
    )


@pytest.mark.parametrize("is_ddps", [True, False])
def test_forward_is_only_told_where_ddp_raised(is_ddps: bool, run: Path) -> None:
    """An exception that the program made of it comes from the line of its `raise`."""
    job = Ranks(2)
    for box in job.boxes:
        box.module("model", TENSORS).buckets("model", [BUCKET])
    job.everybody(DONE)
    place = [("_pre_forward", f"{TORCH}/nn/parallel/distributed.py", 1775)] if is_ddps else []
    for rank in (0, 1):
        text = "step 7 failed: " + UNUSED.format(rank, "1 2")
        job.boxes[rank].at(3000 + rank).exception("TrainError", text, [*place, ("main", SCRIPT, 40)]).exit(1)
        job.endings[rank] = {"exit_code": 1}
    assert ("in DDP's forward at" in summary(build_report(job.job(run)))) == is_ddps


@pytest.mark.parametrize("static", [True, False])
def test_static_graph_is_removed_before_unused_parameters_are_looked_for(static: bool, run: Path) -> None:
    """With a static graph, DistributedDataParallel ignores find_unused_parameters (pytorch#98084)."""
    job = Ranks(2)
    told = UNUSED + (", but this is not compatible with static_graph set to True" if static else "")
    for rank in (0, 1):
        job.boxes[rank].module("model", TENSORS).buckets("model", [BUCKET])
    job.everybody(DONE)
    for rank in (0, 1):
        job.raised(rank, told.format(rank, "1 2"), at=3000 + rank)
    report = build_report(job.job(run))
    assert report.verdict is not None
    assert ("remove static_graph=True" in (report.verdict.advice or "")) == static


def test_different_sets_of_unused_parameters_are_told_apart(run: Path) -> None:
    """Ranks that use different parameters diverge."""
    report = unused(run, {0: "1", 1: "2"})
    assert "rank 0 without b; rank 1 without c" in summary(report)


def test_unused_parameters_on_one_rank_blame_it(run: Path) -> None:
    """The other one lost its connection."""
    report = unused(run, {1: "1"})
    assert report.verdict is not None and (report.verdict.class_, report.verdict.rank) == ("misuse", 1)


@pytest.mark.parametrize("went_on", [False, True])
def test_rank_that_was_ended_before_it_raised_is_not_told_to_differ(went_on: bool, run: Path) -> None:
    """Only one that reduces the gradients takes another branch: what the other does in the same place is not known."""
    job = Ranks(2)
    for box in job.boxes:
        box.module("model", TENSORS).buckets("model", [BUCKET])
    job.everybody(DONE)
    if went_on:
        job.calls(0, call(state="started"), first=2)
    place = [("_pre_forward", f"{TORCH}/nn/parallel/distributed.py", 1775)]
    job.boxes[1].at(3000).exception("RuntimeError", UNUSED.format(1, "1 2"), [*place, ("main", SCRIPT, 40)]).exit(1)
    job.endings[1] = {"exit_code": 1}
    job.terminated(0)
    found = build_report(job.job(run))
    assert ("rank 1 had left parameters out of the loss" in summary(found)) == went_on
    assert ("the step before left parameters out of the loss" in summary(found)) != went_on
    words = (finding(found, "unused-parameters") or Finding()).evidence or ()
    assert any("the ranks take different branches" in item for item in words) == went_on
    assert any("rank 0 had reduced none of these gradients either" in item for item in words) != went_on


def test_another_error_of_ddp_is_not_about_unused_parameters(run: Path) -> None:
    """Only that text counts."""
    job = Ranks(2)
    job.everybody(DONE)
    job.raised(1, "Expected to mark a variable ready only once.", at=3000)
    job.terminated(0)
    assert finding(build_report(job.job(run)), "unused-parameters") is None


# sampler-before-process-group


def loaders(run: Path, *, initialized: bool, distributed: bool = False, sampler: str = "RandomSampler") -> Report:
    job = Ranks(2)
    for box in job.boxes:
        value: dict[str, Any] = {"dataset": "TensorDataset", "iterable": False, "sampler": sampler, "samples": 64}
        box._json(42, {**value, "distributed": distributed, "plain": not distributed, "initialized": initialized})
    job.everybody(DONE)
    job.done(0, 1)
    return build_report(job.job(run))


def test_loaders_made_before_the_process_group_without_a_sampler_are_told(run: Path) -> None:
    """Nothing died, and all ranks trained on the same samples."""
    report = loaders(run, initialized=False)
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.confidence) == ("misuse", "likely")
    assert "all of them train on the same samples" in summary(report)


def test_loaders_made_later_or_with_the_sampler_are_fine(run: Path) -> None:
    """Each rank may have its own dataset."""
    for number, report in enumerate(
        [
            loaders(run / "a", initialized=True),
            loaders(run / "b", initialized=False, distributed=True, sampler="DistributedSampler"),
        ]
    ):
        assert (report.verdict and report.verdict.class_, report.findings) == ("clean", []), number


def test_sampler_that_raised_is_named(run: Path) -> None:
    """All ranks raised the same."""
    job = Ranks(2, grouped=False)
    for rank, box in enumerate(job.boxes):
        text = "Default process group has not been initialized, please make sure to call init_process_group."
        box.at(2000).exception("ValueError", text, [("__init__", SAMPLER, 70), ("main", SCRIPT, 12)]).exit(1)
        job.endings[rank] = {"exit_code": 1}
    report = build_report(job.job(run))
    assert report.verdict is not None and report.verdict.class_ == "misuse"
    assert "init_process_group" in (report.verdict.advice or "")


def test_same_error_from_elsewhere_is_not_the_samplers(run: Path) -> None:
    """all_reduce() before init_process_group() raises the same text."""
    job = Ranks(2, grouped=False)
    text = "Default process group has not been initialized, please make sure to call init_process_group."
    job.raised(0, text, type_name="ValueError")
    job.terminated(1)
    report = build_report(job.job(run))
    assert finding(report, "sampler-before-process-group") is None


# worker-death


def worker(job: Ranks, message: str) -> None:
    rank = job.boxes[1]
    rank.wait(501, signal=11)
    job.raised(1, message, at=3000)
    job.raised(0, CLOSED, at=4000)


def test_rank_only_reports_its_worker(run: Path) -> None:
    """The worker's fault is the verdict."""
    job = Ranks(2)
    job.everybody(DONE)
    child = Box(pid=501, ppid=102, argv=("python", "train.py"))
    child._json(40, {"worker_id": 0, "num_workers": 1, "seed": 0, "dataset": "Images"})
    child.at(2900).crash()
    worker(job, "DataLoader worker (pid(s) 501) exited unexpectedly")
    job.boxes.append(child)
    report = build_report(job.job(run))
    assert report.verdict is not None and report.verdict.class_ == "null-dereference"
    found = finding(report, "worker-death")
    assert found is not None and found.ranks == [1] and "a consequence" in (found.summary or "")


def test_worker_without_a_record_is_told(run: Path) -> None:
    """Only the message was recorded."""
    job = Ranks(2)
    job.everybody(DONE)
    worker(job, "DataLoader worker (pid 501) is killed by signal: Killed. ")
    found = finding(build_report(job.job(run)), "worker-death")
    assert found is not None and found.summary == "A DataLoader worker of rank 1 (pid 501) is killed by signal: Killed."


def test_exception_from_a_worker_is_no_worker_death(run: Path) -> None:
    """The worker lives and passes its exception on."""
    job = Ranks(2)
    job.everybody(DONE)
    job.raised(1, "Caught ValueError in DataLoader worker process 0.", type_name="ValueError", at=3000)
    job.terminated(0)
    assert finding(build_report(job.job(run)), "worker-death") is None
