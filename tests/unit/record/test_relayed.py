"""Which exceptions are about another process's death, and what is printed below them."""

from __future__ import annotations

import os
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytracer.record import relayed

if TYPE_CHECKING:
    from pytracer.record.conclusion import ReportJson


def of_package(module: str, name: str) -> type[Exception]:
    return type(name, (Exception,), {"__module__": module})


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("ray.exceptions", "RayActorError"),
        ("ray.train.v2.api.exceptions", "TrainingFailedError"),
        ("torch.multiprocessing.spawn", "ProcessException"),
        ("submitit.core.utils", "UncompletedJobError"),
    ],
)
def test_subclasses_of_what_parents_raise_are_relayed(module: str, name: str) -> None:
    """Ray's RayTaskError(ValueError) is a class made for the occasion."""
    kind = type("Made", (of_package(module, name), ValueError), {})
    assert relayed.is_relayed(kind())


@pytest.mark.parametrize(("module", "name"), [("program", "RayActorError"), ("ray.exceptions", "GetTimeoutError")])
def test_other_exceptions_are_not(module: str, name: str) -> None:
    """Of the same name, or of the same package."""
    assert not relayed.is_relayed(of_package(module, name)())


def test_exception_that_was_raised_from_a_relayed_one_is_relayed() -> None:
    """Unless the program said `from None`."""
    error = RuntimeError("no samples")
    error.__context__ = BrokenProcessPool()
    assert relayed.is_relayed(error)
    error.__suppress_context__ = True
    assert not relayed.is_relayed(error)
    assert not relayed.is_relayed(None)


@pytest.mark.parametrize(
    "verdict",
    [
        None,
        {"summary": None, "class": "unknown"},
        {"summary": "Nothing died.", "class": "clean", "pid": None},
        {"summary": "It raised ActorDiedError.", "class": "python-exception", "pid": os.getpid()},
    ],
)
def test_report_about_no_other_process_is_no_headline(verdict: dict[str, Any] | None) -> None:
    """Nothing is printed then."""
    assert relayed.headline(cast("ReportJson", {"verdict": verdict, "processes": []})) is None


def test_disagreement_of_ranks_is_a_headline_without_a_culprit() -> None:
    """It has no pid. Control characters of the job's are not printed."""
    verdict = {"summary": "Ranks disagree at a\x1b[31m.py:3.", "class": "collective-mismatch", "pid": None}
    assert (
        relayed.headline(cast("ReportJson", {"verdict": verdict, "processes": []}))
        == "pytracer: Ranks disagree at a\\x1b[31m.py:3."
    )
