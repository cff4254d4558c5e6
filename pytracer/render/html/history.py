"""The fleet at a glance: `pytracer history --html`. A picture of deaths over time, and tables; no script at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from pytracer._printable import printable, shell_command
from pytracer.render.history import about_words, host_words, probability_words, span_words
from pytracer.render.html.document import document
from pytracer.report import history as h

MOST_BARS = 120  # days; a longer time is shown by weeks
COLOURS = 8  # classes with a colour of their own; the last one is all others
_WIDTH, _HEIGHT, _LABEL_ROOM = 1000.0, 200.0, 60.0


@dataclass(frozen=True)
class Bar:
    """One day or week: its pieces from the bottom up, in units of the picture."""

    x: float
    width: float
    title: str
    pieces: Sequence[tuple[int, float, float]]  # number of the class, top, height
    label: str  # below it, where there is one


def render_history_page(answer: h.History) -> str:
    """The page. Everything in `answer` that was not asked for is left out.

    Raises:
        ModuleNotFoundError: jinja2 is not installed (extra `html`).
    """
    shown = printable(answer)
    classes = _classes(shown.periods or ())
    bars = list(_bars(shown.periods or (), classes))
    return document(
        "history.html",
        styles=("style.css", "history.css"),
        title=about_words(shown),
        bars=bars,
        peak=max(
            (sum(period.classes.values()) for period in _folded(shown.periods or ()) if period.classes), default=0
        ),
        width=_WIDTH,
        height=_HEIGHT,
        legend=list(enumerate(classes)),
        groups=[_group(item, raw) for item, raw in zip(shown.groups or (), answer.groups or (), strict=True)],
        more=max(0, (shown.groups_total or 0) - len(shown.groups or ())),
        nodes=shown.nodes or (),
        outliers=sum(1 for node in shown.nodes or () if node.outlier),
        changes=shown.changes or (),
        damaged=shown.damaged or (),
        probability=probability_words,
    )


def _classes(periods: Sequence[h.Period]) -> list[str]:
    """The most frequent ones; `others` for the rest."""
    total: Counter[str] = Counter()
    for period in periods:
        total.update(period.classes or {})
    names = [name for name, _ in total.most_common()]
    return names if len(names) <= COLOURS else [*names[: COLOURS - 1], "others"]


def _bars(periods: Sequence[h.Period], classes: Sequence[str]) -> Iterator[Bar]:
    folded = _folded(periods)
    if not folded:
        return
    highest = max(sum((period.classes or {}).values()) for period in folded) or 1
    step = _WIDTH / len(folded)
    labelled, month_of_label = -_LABEL_ROOM, ""
    for number, period in enumerate(folded):
        counts: Counter[int] = Counter()
        for name, count in (period.classes or {}).items():
            counts[classes.index(name) if name in classes else len(classes) - 1] += count
        pieces, top = [], _HEIGHT
        for index in range(len(classes)):
            height = counts[index] / highest * _HEIGHT
            top -= height
            if height:
                pieces.append((index, round(top, 2), round(height, 2)))
        month = (period.day or "")[:7]
        named = ", ".join(f"{name} {count:,}" for name, count in (period.classes or {}).items())
        title = f"{period.day}: {period.deaths or 0:,} deaths in {period.runs or 0:,} runs" + (
            f" ({named})" if named else ""
        )
        label = month if month != month_of_label and number * step - labelled >= _LABEL_ROOM else ""
        if label:
            labelled, month_of_label = number * step, month
        yield Bar(round(number * step, 2), round(step * 0.86, 2), title, pieces, label)


def _folded(periods: Sequence[h.Period]) -> list[h.Period]:
    """Days without gaps, or weeks where days are too many."""
    days = {day: period for period in periods if (day := _day(period.day)) is not None}
    if not days:
        return []
    first, last = min(days), max(days)
    length = 1 if (last - first).days < MOST_BARS else 7
    count = min((last - first).days // length + 1, 2000)
    return [_sum(first + timedelta(days=length * number), length, days) for number in range(count)]


def _sum(start: date, length: int, days: dict[date, h.Period]) -> h.Period:
    inside = [found for offset in range(length) if (found := days.get(start + timedelta(days=offset))) is not None]
    classes: Counter[str] = Counter()
    for period in inside:
        classes.update(period.classes or {})
    name = start.isoformat() if length == 1 else f"{start.isoformat()}, a week"
    return h.Period(
        day=name, runs=sum(item.runs or 0 for item in inside), deaths=sum(item.deaths or 0 for item in inside),
        classes=dict(classes.most_common()),
    )  # fmt: skip


def _day(text: str | None) -> date | None:
    """None for runs whose start is unknown."""
    try:
        day = date.fromisoformat(text or "")
    except ValueError:
        return None
    return day if day.year > 1970 else None


def _group(shown: h.Group, raw: h.Group) -> dict[str, Any]:
    """`link`: only to the web; a page does not lead to anything else."""
    url = raw.url or ""
    return {
        "deaths": f"{shown.deaths or 0:,}",
        "summary": shown.summary or shown.class_ or "unknown",
        "class": shown.class_ or "unknown",
        "fingerprint": shown.fingerprint,
        "span": span_words(shown),
        "where": host_words(shown),
        "torch": ", ".join(shown.torch or ()),
        "link": url if url.startswith(("https://", "http://")) else None,
        "command": shell_command("pytracer", "inspect", raw.directory) if raw.directory else None,
    }
