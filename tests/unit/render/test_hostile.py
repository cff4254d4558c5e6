"""The author of a job or a recording chooses names, messages and paths; no printer lets them control a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pytracer.analyze.engine import build_report
from pytracer.analyze.where import explain_addresses
from pytracer.decode.types.snapshot import Job
from pytracer.render.json import render_json
from pytracer.render.live import render_live
from pytracer.render.style import Style
from pytracer.render.text import render_text
from pytracer.render.where import render_where
from pytracer.report import job as r
from pytracer.report.live import LiveReport
from pytracer.report.where import WhereReport
from tests.support import crash_scenarios as c
from tests.support import scenarios as s
from tests.support.hostile import MARK, TEXT, assert_harmless, hostile_copy, hostile_part

SCENARIOS = (s.use_after_free, s.detail, s.single, c.terminated, c.overflow, c.ended_by_name, c.heap_damage)
ROW = 3  # labels and titles are further left than this


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("width", [60, 100])
def test_every_string_of_the_report_is_printed_harmlessly(seed: int, width: int) -> None:
    """Every field of every type that the report is made of, found by walking the types."""
    report = hostile_part(r.Report, seed)
    for everything in (False, True):
        assert_harmless(render_text(report, Style(width=width), everything=everything), least_indent=ROW)
        styled = render_text(report, Style(True, width), everything=everything)
        assert_harmless(styled, least_indent=ROW, styled=True)
    assert TEXT in str(msgspec.to_builtins(report, enc_hook=str)) or "EVIL" in str(
        report
    )  # the report itself stays as it was


@pytest.mark.parametrize("seed", range(4))
def test_every_string_of_an_answer_of_where_is_printed_harmlessly(seed: int) -> None:
    """The same for addresses."""
    assert_harmless(render_where(hostile_part(WhereReport, seed)), least_indent=ROW)


@pytest.mark.parametrize("seed", range(4))
def test_every_string_of_a_live_report_is_printed_harmlessly(seed: int) -> None:
    """The same for a running job, whose threads name themselves."""
    assert_harmless(render_live(hostile_part(LiveReport, seed), everything=bool(seed % 2)))


@pytest.mark.parametrize("build", SCENARIOS)
def test_sentences_made_of_a_hostile_job_are_harmless(tmp_path: Path, build: Callable[[Path], Job]) -> None:
    """Summaries, evidence and advice of the rules; every string of the decoded job is an attack."""
    job = hostile_copy(build(tmp_path / "run"))
    report = build_report(job)
    assert MARK in str(report)
    for everything in (False, True):
        assert_harmless(render_text(report, everything=everything), least_indent=ROW)
    assert_harmless(render_where(explain_addresses(job, ["0x7f5000000040"], pid=job.processes[0].snapshot.pid)))


@pytest.mark.parametrize("kind", [r.Report, WhereReport])
def test_json_is_exact_and_ascii(kind: type) -> None:
    """A terminal shows ASCII; a parser gets the recorded values."""
    report = hostile_part(kind, 3)
    text = render_json(report)
    assert re.fullmatch(r"[\n -~]*", text)
    assert json.loads(text) == msgspec.to_builtins(report, enc_hook=str)


def test_command_that_shows_more_is_one_word_for_a_shell() -> None:
    """It leads to the directory itself, not to its escaped name."""
    report = r.Report(
        run=r.Run(directory="/tmp/a b\x1b[31m'\n; rm x"), verdict=r.Verdict(class_="unknown", summary="x")
    )
    assert r"pytracer inspect $'/tmp/a b\x1b[31m\'\x0a; rm x' --all" in render_text(report)


def test_rows_of_a_message_stay_below_each_other() -> None:
    """A message of several lines keeps its first ones, indented; its rows are no rows of the report."""
    message = "first\nnext     rm -rf /\nthird\nfourth"
    process = r.ProcessReport(
        pid=1, status=r.Status(kind="exception"), exception=r.ExceptionReport(type="E", message=message)
    )
    verdict = r.Verdict(class_="python-exception", pid=1, summary=f"Process 1 raised E: {message}.", advice="Read it.")
    text = render_text(r.Report(verdict=verdict, processes=[process]))
    rows = [line.split()[0] for line in text.splitlines() if line[:1].strip()]
    assert rows == ["Process", "python-exception:", "error", "next"]
    assert "\n         next     rm -rf /\n         third\n         ... 1 more line\n" in text


def test_markup_of_rich_is_text() -> None:
    """Square brackets in names are only brackets."""
    why = "[red]x[/red] [link=http://x.example]y[/link] :skull:"
    ended = r.Status(kind="exited", exit_code=1)
    process = r.ProcessReport(pid=1, rank=0, role="rank", status=ended, why=why)
    other = msgspec.structs.replace(process, pid=2, rank=1)
    report = r.Report(verdict=r.Verdict(class_="unknown", summary="[bold]s[/bold]"), processes=[process, other])
    text = render_text(report, everything=True)
    assert "[bold]s[/bold]" in text
    assert "[red]x[/red] [link=http://x.example]y[/link] :skull:" in " ".join(text.split())
