"""Why a verdict is nothing else: order, refuting facts, and what forums advise."""

from __future__ import annotations

from pathlib import Path

from pytracer.analyze.engine import build_report
from pytracer.report.job import Alternative, Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import died, image
from tests.support.synth import Box

SUSPECTS = ["clone", "barrier", "torch-compile", "version"]


def ids(report: Report) -> list[str | None]:
    return [item.id for item in report.alternatives or []]


def alternative(report: Report, name: str) -> Alternative:
    (found,) = [item for item in report.alternatives or [] if item.id == name]
    return found


def trained() -> Box:
    """A process with a DDP module."""
    bucket = {"addr": s.BUCKET, "nbytes": s.BUCKET_BYTES, "parameters": s.PARAMETERS}
    return Box(pid=101, ppid=99).at(100).alloc(s.BUCKET, s.BUCKET_BYTES).buckets("model", [bucket], 0, rebuilt=False)


@needs_capstone
def test_every_rule_but_the_verdicts_is_listed_once(run: Path) -> None:
    """Findings beside the verdict, then the rules that found nothing; the verdict's rule is not its own alternative."""
    report = build_report(s.use_after_free(run))
    named = [item for item in ids(report) if item not in SUSPECTS]
    checked = {item.id for item in report.checked or []} - {"first-death", "other-death"}
    others = {item.id for item in report.findings or []} - {"use-after-free", "first-death", "other-death"}
    assert len(named) == len(set(named))
    assert set(named) == checked | others
    assert "use-after-free" not in named


@needs_capstone
def test_causes_of_the_same_kind_come_before_others(run: Path) -> None:
    """A memory fault: rules about memory, then advice of forums, then the rest."""
    found = ids(build_report(s.use_after_free(run)))
    assert found.index("wrong-index") < found.index("out-of-bounds") < found.index("memory-hardware-error")
    assert found.index("memory-hardware-error") < found.index("clone") < found.index("oom-kill")
    assert alternative(build_report(s.use_after_free(run)), "oom-kill").close is False


@needs_capstone
def test_popular_suspects_of_a_ddp_crash_are_answered_with_facts(run: Path) -> None:
    """A bucket used after DDP had freed it: a copy is not refuted, and not recommended."""
    report = build_report(s.use_after_free(run))
    assert alternative(report, "clone").result == "cannot-decide"
    assert (alternative(report, "clone").why or "").startswith("use-after-free was found")
    assert alternative(report, "version").result == "cannot-decide"
    assert "no other version of torch" in (alternative(report, "version").why or "")


def test_a_job_without_ranks_has_no_suspects_of_distributed_jobs(run: Path) -> None:
    """One process, no DDP."""
    assert not set(ids(build_report(s.single(run)))) & set(SUSPECTS)


def test_clone_is_not_refuted_where_the_address_is_unexplained(run: Path) -> None:
    """Frees are forgotten; nothing known about an address refutes nothing."""
    box = trained()
    report = died(run, box=box, addr=0x1357_9BDF_0240)
    assert alternative(report, "clone").result == "cannot-decide"


def test_clone_is_refuted_where_no_freed_memory_was_touched(run: Path) -> None:
    """A null pointer has no owner."""
    report = died(run, box=trained(), addr=0)
    found = alternative(report, "clone")
    assert (found.result, found.why) == (
        "refuted",
        "the fault address lay in no storage that had been freed or replaced",
    )


def test_compiled_code_that_was_loaded_is_not_refuted(run: Path) -> None:
    """A library of inductor's; without one, and without a frame of dynamo, compilation played no part."""
    box = trained()
    compiled = image("/tmp/torchinductor_user/ab/cabc.so")
    report = died(run / "1", box=box, addr=0, images=(compiled,))
    assert alternative(report, "torch-compile").result == "cannot-decide"
    box = trained()
    report = died(run / "2", box=box, addr=0, images=(image(s.TORCH_CPU),))
    assert alternative(report, "torch-compile").result == "refuted"


def test_barrier_is_undecided_where_collectives_are_unknown(run: Path) -> None:
    """No rank's collectives were recorded."""
    report = died(run, box=trained(), addr=0)
    assert alternative(report, "barrier").result == "cannot-decide"


def test_nothing_died_and_there_is_nothing_to_explain(run: Path) -> None:
    """A clean job."""
    assert build_report(s.clean(run)).alternatives == []
