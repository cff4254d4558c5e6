"""The page of `pytracer history --html` in a real browser."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from pytracer.render.html.history import render_history_page
from pytracer.report import history as h
from tests.browser.conftest import Open
from tests.support.hostile import MARK

EVIL = f"<img src=x onerror=window.{MARK}=1>'\"></svg><script>window.{MARK}=1</script>" * 40
CLASSES = (
    "use-after-free",
    "oom-kill",
    "hang",
    "abort",
    "cuda-error",
    "exit",
    "unknown",
    "misuse",
    "shm-exhausted",
    EVIL,
)


def fleet(text: str, days: int) -> h.History:
    """Every part of an answer, with `text` wherever a job or a user chooses the words."""
    since = date(2026, 1, 1)
    periods = [
        h.Period(day=str(day), runs=90, deaths=40, classes=dict.fromkeys(CLASSES, day.day % 7))
        for day in (since + timedelta(days=number) for number in range(days))
    ]
    group = h.Group(
        fingerprint="f1-0123456789abcdef", deaths=1234, class_="use-after-free", summary=text, place=text, hosts=3,
        host=text, host_deaths=1200, first_seen="2026-01-01T00:00:00Z", last_seen="2026-11-01T00:00:00Z",
        torch=["2.12.1", text], directory=f"/runs/{text}", url=f"https://example.org/{text}",
    )  # fmt: skip
    node = h.Node(
        host=text, runs=90, deaths=40, expected=2.5, probability=1e-12, outlier=True, fingerprints=9, class_=text
    )
    change = h.Change(by="commit", version=text, before=text, summary=text, fingerprint="f1-0", deaths=9, runs=90)
    return h.History(
        store=text, runs=900, deaths=400, first_day="2026-01-01", last_day="2026-11-01", damaged=[text],
        groups=[group] * 12, groups_total=900, nodes=[node] * 5, changes=[change] * 3, periods=periods,
    )  # fmt: skip


@pytest.mark.parametrize("text", ["Rank 3 read freed memory at train.py:12 in step", EVIL], ids=["ordinary", "hostile"])
@pytest.mark.parametrize("days", [1, 30, 400])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_loads_nothing_and_fits_its_screen(text: str, days: int, width: int, scheme: str, visit: Open) -> None:
    """No request, no message in the console, no script, nothing but tables wider than the screen."""
    with visit(render_history_page(fleet(text, days)), width, color_scheme=scheme) as seen:
        assert seen.complaints == [] and seen.requests == [seen.address]
        assert seen.page.evaluate(f"typeof {MARK}") == "undefined"
        assert seen.page.evaluate("document.scripts.length") == 0
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        bars = seen.page.evaluate("document.querySelectorAll('.time g').length")
        assert bars == (days if days <= 120 else 58)
