"""What was printed before an exit, as far as its lines show that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice
from tests.support.synth import Box


def missing(report: Report) -> list[str]:
    return [text for item in report.findings or [] for text in item.missing or []]


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ("pass", "find out why that held"),
        ("log.info('%s', path)", "find out why that held"),
        ("done.put(path)", "find out why that held"),
        ("log.error('%s: bad', path)", "ine 3 printed or logged `'%s: bad'`"),
        ("explain(path)", "what it printed before may say more"),
    ],
)
def test_output_is_advised_only_where_a_line_may_have_written(before: str, told: str, run: Path) -> None:
    """The condition is the reason, so the status need not carry one."""
    script = run / "train.py"
    script.write_text(f"def load(path):\n    if path.stat().st_size == 0:\n        {before}\n        sys.exit(3)\n")
    os.utime(script, (0, 0))
    report = build_report(s.load(run, Box(pid=101, ppid=99).at(50).exit_request(3, [("load", str(script), 4)]).exit(3)))
    assert told in advice(report)
    assert not any("carries no reason" in item for item in missing(report))


def test_exit_without_a_condition_has_no_known_reason(run: Path) -> None:
    """The look-alike: the line stands below nothing."""
    report = build_report(s.load(run, Box(pid=101, ppid=99).at(50).exit_request(3, [("main", s.SCRIPT, 4)]).exit(3)))
    assert any("carries no reason" in item for item in missing(report))
