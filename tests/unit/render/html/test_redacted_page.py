"""The page of a redacted report has nothing private in it."""

from __future__ import annotations

from pathlib import Path

from pytracer.analyze.engine import build_report
from pytracer.analyze.redaction.report import redact_report
from pytracer.decode.job.load import load_runs
from pytracer.render.html.page import render_html
from tests.support.planted import leaks, planted_run


def test_page_of_a_redacted_report_has_none_of_the_planted_secrets(tmp_path: Path) -> None:
    """In environment, command line, messages, URLs and paths; the page of the report itself shows some of them."""
    report = build_report(load_runs(planted_run(tmp_path / "run")))
    assert leaks(render_html(report))
    assert leaks(render_html(redact_report(report))) == {}
