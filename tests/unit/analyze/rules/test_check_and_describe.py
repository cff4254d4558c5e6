"""Rules judge first and describe afterwards: `check` never needs `describe`, which changes no judgement."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NoReturn, get_args

import pytest

from pytracer.analyze.engine import Concluded, build_report, conclude, job_view
from pytracer.analyze.rules import RULES
from pytracer.analyze.timeline.clock import RunClock
from pytracer.decode.job.merge import load_job
from pytracer.report.job import Confidence, VerdictClass
from tests.golden.reports import GOLDEN, unpacked
from tests.support.cli import ROOT

ARCHIVES = sorted(GOLDEN.glob("*/*.tar.xz"))


def judged(concluded: Concluded) -> list[tuple[str, str, str, list[int]]]:
    """The judgements as plain data, in order."""
    return [
        (rule.id, item.verdict_class, item.confidence, [view.index for view in item.views])
        for rule, item in concluded.conclusions
    ]


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name[:-7])
def test_rules_judge_without_any_words(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings, confidences and their order are the same when no rule can describe anything."""

    def wordless(*_: object) -> NoReturn:
        raise AssertionError("a rule was asked for words while rules were judging")

    job = load_job(unpacked(archive, tmp_path))
    report = build_report(job)
    for rule in RULES:
        monkeypatch.setattr(type(rule), "describe", wordless)
    concluded = conclude(job_view(job, RunClock(job)))
    assert [(name, confidence) for name, _, confidence, _ in judged(concluded)] == [
        (item.id, item.confidence) for item in report.findings or []
    ]
    assert [item.id for item in concluded.checked] == [item.id for item in report.checked or []]


def test_describing_changes_no_judgement(tmp_path: Path) -> None:
    """The same words whenever they are asked for, and the judgements stay as they were."""
    job = load_job(unpacked(GOLDEN / "0.1" / "ddp-use-after-free.tar.xz", tmp_path))
    concluded = conclude(job_view(job, RunClock(job)))
    before = judged(concluded)
    first = [rule.describe(concluded.job, item) for rule, item in concluded.conclusions]
    again = [rule.describe(concluded.job, item) for rule, item in reversed(concluded.conclusions)]
    assert first == again[::-1] and first
    assert judged(concluded) == before == judged(conclude(job_view(job, RunClock(job))))


def test_verdict_classes_and_confidences_are_documented() -> None:
    """docs/reference/report.md lists the classes that rules can give, and no others."""
    text = (ROOT / "docs" / "reference" / "report.md").read_text(encoding="utf-8")
    table = text.split("| class | what happened |")[1].split("\n\n")[0]
    names = [name for row in table.splitlines()[2:] for name in re.findall(r"`([a-z-]+)`", row.split("|")[1])]
    assert sorted(names) == sorted(get_args(VerdictClass))
    assert get_args(Confidence)[:3] == ("certain", "likely", "possible")
