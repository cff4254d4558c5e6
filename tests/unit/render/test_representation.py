"""What Python, IPython and notebooks show of a report."""

from __future__ import annotations

import html
import subprocess
import sys
from pathlib import Path

from pytracer.analyze.engine import build_report
from pytracer.render.html.page import render_html
from pytracer.render.text import render_text
from pytracer.report import job as r
from tests.support import scenarios as s
from tests.support.cli import ROOT, clean_environment
from tests.support.hostile import assert_harmless, hostile_part


def test_repr_is_one_line_with_the_verdict(tmp_path: Path) -> None:
    """A REPL does not print thousands of fields."""
    report = build_report(s.use_after_free(tmp_path))
    assert repr(report).startswith("<Report use-after-free (certain): Rank 1 read freed memory")
    assert "\n" not in repr(report) and repr(r.Report()) == "<Report without a verdict: >"


def test_print_shows_the_text_report(tmp_path: Path) -> None:
    """IPython, too."""
    report = build_report(s.use_after_free(tmp_path))
    assert str(report) + "\n" == render_text(report)
    shown: list[str] = []

    class Printer:
        def text(self, words: str) -> None:
            shown.append(words)

    report._repr_pretty_(Printer(), False)
    assert shown == [str(report)]


def test_notebook_shows_the_page_in_a_frame_of_its_own(tmp_path: Path) -> None:
    """The frame may run the page's script, and is not of the notebook's origin."""
    report = build_report(s.use_after_free(tmp_path))
    frame = report._repr_html_()
    assert frame.startswith('<iframe sandbox="allow-scripts" ') and frame.endswith('"></iframe>')
    assert html.unescape(frame.partition('srcdoc="')[2].removesuffix('"></iframe>')) == render_html(report)
    assert frame.count('"') == 2 * frame.partition("srcdoc=")[0].count("=") + 2, "no attribute ends early"


def test_notebook_without_jinja2_shows_the_text() -> None:
    """The extra `html` is not installed."""
    program = """
import sys
sys.modules["jinja2"] = None
from pytracer.report.job import Report, Verdict
print(Report(verdict=Verdict(summary="<b>bold</b>"))._repr_html_())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=clean_environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("<pre>&lt;b&gt;bold&lt;/b&gt;") and done.stdout.endswith("</pre>\n")


def test_hostile_report_is_shown_harmlessly() -> None:
    """A REPL is a terminal."""
    for seed in range(3):
        report = hostile_part(r.Report, seed)
        assert_harmless(repr(report))
        assert_harmless(str(report))


def test_text_is_returned_in_a_notebooks_kernel_too(tmp_path: Path) -> None:
    """rich recognizes a kernel by IPython's shell, and would display the text instead."""
    program = (
        "import builtins, sys\n"
        "class ZMQInteractiveShell: pass\n"
        "builtins.get_ipython = lambda: ZMQInteractiveShell()\n"
        "from pytracer.render.text import render_text\n"
        "from pytracer.report.job import Report, Verdict\n"
        "text = render_text(Report(verdict=Verdict(summary='Rank 1 died.')))\n"
        "print(repr(text))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=clean_environment(), capture_output=True, text=True, check=True
    )
    assert "Rank 1 died." in done.stdout
    assert done.stdout.startswith(("'Rank", '"Rank'))
