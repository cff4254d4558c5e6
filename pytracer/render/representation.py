"""What Python, IPython and notebooks show of a `Report`."""

from __future__ import annotations

from html import escape

from pytracer._printable import one_line
from pytracer.render.text import render_text
from pytracer.report.job import Report, Verdict

FRAME_PIXELS = 720


def repr_words(report: Report) -> str:
    """One line."""
    verdict = report.verdict or Verdict()
    confidence = f" ({verdict.confidence})" if verdict.confidence and verdict.class_ != verdict.confidence else ""
    return one_line(f"<Report {verdict.class_ or 'without a verdict'}{confidence}: {verdict.summary or ''}>")


def text(report: Report) -> str:
    """The text report, without the last line break."""
    return render_text(report).rstrip("\n")


def frame(report: Report) -> str:
    """The page in a frame that shares nothing with the notebook; without the extra `html`, the text."""
    from pytracer.render.html.page import render_html

    try:
        page = render_html(report)
    except ModuleNotFoundError as error:
        if error.name not in ("jinja2", "markupsafe"):
            raise
        return f"<pre>{escape(text(report))}</pre>"
    return (
        f'<iframe sandbox="allow-scripts" width="100%" height="{FRAME_PIXELS}" title="pytracer report" '
        f'srcdoc="{escape(page)}"></iframe>'
    )
