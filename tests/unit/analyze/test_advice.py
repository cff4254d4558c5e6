"""What a scheduler is told: never to stop without a certain finding."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from pytracer.analyze import advice
from pytracer.analyze.advice import advise
from pytracer.analyze.rules import RULES
from pytracer.render.advice import render_advice
from pytracer.report import job as r
from pytracer.report.advice import ADVICE, Advice

TABLES = (advice.BUGS, advice.HARDWARE, advice.SUSPECTED, advice.OUTSIDE, advice.NETWORK, advice.UNDECIDED)
PLACE = r.PythonFrame(function="step", file="/job/train.py", line=40)


def _report(rule: str, confidence: str = "certain", cls: str = "abort", **verdict: Any) -> r.Report:
    """A report whose verdict repeats one finding."""
    return r.Report(
        verdict=r.Verdict(
            class_=cls, confidence=confidence, rank=1, pid=102, finding=0, **{"facts": [], "summary": "x", **verdict}
        ),
        findings=[r.Finding(id=rule, confidence=confidence)],
        processes=[r.ProcessReport(pid=101, rank=0, host="node0"), r.ProcessReport(pid=102, rank=1, host="node1")],
    )


def _said(answer: Advice) -> tuple[str | None, str | None, str | None]:
    return answer.advice, answer.reason, answer.confidence


def test_every_rule_has_been_decided_on() -> None:
    """A new rule is listed in exactly one table."""
    listed = list(itertools.chain(*TABLES))
    assert sorted(listed) == sorted({rule.id for rule in RULES})


@pytest.mark.parametrize("confidence", ["likely", "possible", "unknown"])
@pytest.mark.parametrize("rule", sorted({rule.id for rule in RULES}))
def test_no_rule_stops_a_job_without_being_certain(rule: str, confidence: str) -> None:
    """Also not when every attempt ended so."""
    report = _report(rule, confidence, facts=[r.Fact(kind="python-line", python=PLACE)], attempt=1)
    report = r.Report(
        **{name: getattr(report, name) for name in ("verdict", "findings", "processes")},
        attempts=[r.Attempt(attempt=0, verdict=report.verdict)],
    )
    answer = advise(report)
    assert answer.advice in ADVICE
    assert answer.advice != "STOP"
    assert render_advice(answer)


@pytest.mark.parametrize("rule", sorted(advice.BUGS))
def test_certain_bug_stops_the_job(rule: str) -> None:
    """It is likely, not certain, that it happens again: a race may be won the next time."""
    assert _said(advise(_report(rule))) == ("STOP", "bug", "likely")


@pytest.mark.parametrize("rule", sorted(advice.UNDECIDED))
def test_certain_finding_that_may_be_gone_the_next_time_is_no_reason_to_stop(rule: str) -> None:
    """The look-alike: a full disk, a kernel's OOM kill, an exception that depends on the input."""
    assert _said(advise(_report(rule))) == ("UNKNOWN", "undecided", "unknown")


def test_failure_that_was_certain_twice_at_one_line_stops_the_job() -> None:
    """It did happen again."""
    facts = [r.Fact(kind="exception", python=PLACE, exception="ValueError")]
    report = _report("python-exception", cls="python-exception", facts=facts, attempt=0)
    earlier = r.Verdict(class_="python-exception", confidence="certain", facts=facts, attempt=1)
    again = r.Report(verdict=report.verdict, findings=report.findings, attempts=[r.Attempt(attempt=1, verdict=earlier)])
    assert _said(advise(again)) == ("STOP", "again", "certain")
    assert advise(again).attempts == [0, 1]
    assert "attempts 0 and 1 failed in the same way" in render_advice(advise(again))


@pytest.mark.parametrize(
    "other",
    [
        {
            "facts": [
                r.Fact(kind="exception", python=r.PythonFrame("step", "/job/train.py", 41), exception="ValueError")
            ]
        },
        {"facts": [r.Fact(kind="exception", python=PLACE, exception="KeyError")]},
        {"facts": []},
        {"confidence": "likely", "facts": [r.Fact(kind="exception", python=PLACE, exception="ValueError")]},
        {"class_": "abort", "facts": [r.Fact(kind="exception", python=PLACE, exception="ValueError")]},
    ],
    ids=["another line", "another exception", "no line", "not certain", "another class"],
)
def test_attempts_that_failed_differently_are_no_repetition(other: dict[str, Any]) -> None:
    """The look-alikes of the test above."""
    facts = [r.Fact(kind="exception", python=PLACE, exception="ValueError")]
    report = _report("python-exception", cls="python-exception", facts=facts)
    earlier = r.Verdict(**{"class_": "python-exception", "confidence": "certain", **other})
    told = r.Report(verdict=report.verdict, findings=report.findings, attempts=[r.Attempt(attempt=1, verdict=earlier)])
    assert advise(told).advice == "UNKNOWN"


def test_hardware_of_a_node_sends_the_job_elsewhere() -> None:
    """Reported by the processor, or by the driver as an Xid about the device."""
    answer = advise(_report("memory-hardware-error", cls="hardware-error"))
    assert (answer.advice, answer.nodes, answer.confidence) == ("RESTART_ELSEWHERE", ["node1"], "certain")
    fallen = advise(_report("cuda-error", cls="cuda-error", facts=[r.Fact(kind="xid", xid=79)]))
    assert (fallen.advice, fallen.nodes) == ("RESTART_ELSEWHERE", ["node1"])


def test_xid_of_the_program_is_its_bug_and_others_are_not() -> None:
    """31: a kernel used an address that is not mapped. 119: the device's own processor does not answer."""
    assert advise(_report("cuda-error", facts=[r.Fact(kind="xid", xid=31)])).advice == "STOP"
    assert advise(_report("cuda-error", facts=[r.Fact(kind="xid", xid=119)])).advice == "UNKNOWN"
    assert advise(_report("cuda-error", facts=[r.Fact(kind="xid", xid=99999)])).advice == "UNKNOWN"


def test_wild_pointer_one_bit_away_from_memory_is_not_called_a_bug() -> None:
    """Memory of the node may be defective: elsewhere it may go on."""
    report = _report("wild-pointer")
    suspected = r.Report(
        verdict=report.verdict,
        findings=[*(report.findings or []), r.Finding(id="flipped-bit")],
        processes=report.processes,
    )
    assert _said(advise(suspected)) == ("RESTART_ELSEWHERE", "suspected-hardware", "possible")


def test_job_that_was_ended_from_outside_may_start_again() -> None:
    """Preemption, a lost node, somebody's kill."""
    assert _said(advise(_report("sigkill", cls="external-kill"))) == ("RESTART", "outside", "likely")
    assert _said(advise(_report("other-death", "likely", cls="external-kill")))[0] == "RESTART"


def test_job_that_reached_a_limit_of_its_own_has_it_again() -> None:
    """The next run has the same limit; whether it comes further depends on the program."""
    assert _said(advise(_report("other-death", cls="resource-limit")))[:2] == ("UNKNOWN", "undecided")
    assert _said(advise(_report("sigkill", "likely", cls="resource-limit")))[:2] == ("UNKNOWN", "undecided")


def test_code_error_stops_and_an_error_of_data_does_not() -> None:
    """NameError is raised again by any input."""
    named = [r.Fact(kind="exception", exception="NameError")]
    assert advise(_report("python-exception", cls="python-exception", facts=named)).advice == "STOP"
    for other in ("ConnectionError", "RuntimeError", "OutOfMemoryError", "KeyError", "ImportError"):
        facts = [r.Fact(kind="exception", exception=other)]
        assert advise(_report("python-exception", cls="python-exception", facts=facts)).advice == "UNKNOWN"


@pytest.mark.parametrize("report", [r.Report(), r.Report(verdict=r.Verdict(class_="clean", confidence="certain"))])
def test_nothing_is_advised_where_nothing_died(report: r.Report) -> None:
    """Nor where nothing is known."""
    assert advise(report).advice == "UNKNOWN"
