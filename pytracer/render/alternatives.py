"""Why a verdict is nothing else: the list of `--explain`."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from pytracer.render.printing import Hanging
from pytracer.report import job as r

_RESULTS = {"also-found": "also found", "refuted": "no", "cannot-decide": "cannot decide"}

_SUSPECTS = ("clone", "barrier", "torch-compile", "version")  # whose names are no explanations


def refused_explanations(report: r.Report) -> Iterator[RenderableType]:
    """One line for each explanation that could be asked for; the others are counted."""
    close = [item for item in report.alternatives or [] if item.close]
    if not close:
        return
    yield Text()
    yield Text("Why it is nothing else, the most plausible first:")
    for number, item in enumerate(close, 1):
        result = _RESULTS.get(item.result or "", item.result)
        line = Text(f"{number:2}. ").append(item.id or "?", style="bold")
        what = f" ({item.says})" if item.id in _SUSPECTS else ""
        yield Hanging(line.append(f"{what}: {result}: {item.why}"))
    if len(close) < len(report.alternatives or []):
        yield Text("    rules about other kinds of deaths found nothing: --checked", style="dim")
