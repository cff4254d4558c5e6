"""The page in a real browser: nothing is loaded, nothing complains, and zoom, pointer, keyboard and paper work.

PYTRACER_SCREENSHOTS=DIR keeps a picture of each report, light and dark, wide and narrow.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytracer.report import job as r
from tests.browser.conftest import Open, Visit
from tests.support import crash_scenarios, pages, scenarios
from tests.support.hostile import MARK


def hostile(run: Path) -> r.Report:
    """Every string of the demo is an attack of more than 10 kB."""
    return pages.hostile(scenarios.use_after_free(run), pages.LONG_ATTACK)


def hostile_threads(run: Path) -> r.Report:
    """The same for threads, pointers and memory."""
    return pages.hostile(crash_scenarios.terminated(run))


def poisoned(run: Path) -> r.Report:
    """The attack in every field of a report, also where a job chooses nothing."""
    return pages.poisoned(pages.desync(run))


def crowd(run: Path) -> r.Report:
    """64 ranks, folded."""
    return pages.many_ranks(run, 64, victim=21)


ORDINARY = (pages.use_after_free, pages.cuda_graph, pages.hang, pages.desync, crowd)
HOSTILE = (hostile, hostile_threads, poisoned)
Build = Callable[[Path], r.Report]


def shown(figure: Any) -> float:
    """Bytes or ns of the window: what the script has last drawn."""
    return float(
        figure.evaluate(
            """(figure) => {
              const item = figure.querySelector('svg.i[data-b]');
              const box = item.getBoundingClientRect(), lane = item.parentElement.getBoundingClientRect();
              return (item.dataset.b - item.dataset.a) / box.width * lane.width;
            }"""
        )
    )


def assert_silent(seen: Visit) -> None:
    assert seen.complaints == []
    assert seen.requests == [seen.address]


@pytest.mark.parametrize("build", [*ORDINARY, *HOSTILE])
def test_nothing_is_loaded_and_nothing_complains(build: Build, visit: Open, tmp_path: Path) -> None:
    """No request but the file itself, no message in the console, no breach of the policy, whatever the names are."""
    with visit(build(tmp_path / "run")) as seen:
        for plot in seen.page.query_selector_all(".plot"):
            plot.hover()
            plot.focus()
            for key in ("ArrowRight", "ArrowDown", "ArrowUp", "ArrowLeft", "+", "-", "a", "0", "Escape"):
                seen.page.keyboard.press(key)
        for button in seen.page.query_selector_all("button"):
            button.click()
        seen.page.evaluate("document.querySelectorAll('details').forEach((item) => { item.open = true; })")
        assert_silent(seen)
        assert seen.page.evaluate(f"typeof {MARK}") == "undefined"
        assert seen.page.evaluate("document.scripts.length") == 1
        assert seen.page.evaluate("document.querySelectorAll('img, iframe, object, embed, form, input').length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("build", [*ORDINARY, *HOSTILE])
def test_page_fits_its_screen(build: Build, width: int, scheme: str, visit: Open, tmp_path: Path) -> None:
    """Nothing but tables is wider than the screen, on a phone either; texts do not lie above each other."""
    with visit(build(tmp_path / "run"), width, color_scheme=scheme) as seen:
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        keep = os.environ.get("PYTRACER_SCREENSHOTS")
        if keep:
            seen.page.screenshot(path=f"{keep}/{build.__name__}-{scheme}-{width}.png", full_page=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(scheme: str, visit: Open, tmp_path: Path) -> None:
    """At least 4.5 to 1, as WCAG 2 asks, in both schemes, which differ."""
    with visit(pages.use_after_free(tmp_path / "run"), color_scheme=scheme) as seen:
        style = "(s) => getComputedStyle(document.querySelector(s))"
        back = luminance(seen.page.evaluate(f"({style})('body').backgroundColor"))
        assert (back > 0.5) == (scheme == "light")
        for selector in ("body", "h1", ".headline", "nav a", ".rows dt", ".plot .name .dim", "td"):
            text = luminance(seen.page.evaluate(f"({style})('{selector}').color"))
            ratio = (max(text, back) + 0.05) / (min(text, back) + 0.05)
            assert ratio >= 4.5, (selector, ratio)
        for selector in (".lane .named", ".lane .completed", ".lane .open"):  # the labels on them
            label = luminance(seen.page.evaluate(f"({style})('.lane text').fill"))
            fill = seen.page.evaluate(f"({style})('{selector} > rect').fill")
            if fill.startswith("rgb"):
                ratio = (max(label, luminance(fill)) + 0.05) / (min(label, luminance(fill)) + 0.05)
                assert ratio >= 3.5, (selector, ratio)


def luminance(color: str) -> float:
    """Relative luminance, WCAG 2."""
    channels = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_zoom_keeps_the_scale(visit: Open, tmp_path: Path) -> None:
    """Two storages of one size stay equally wide at every zoom; 0 goes back to the beginning."""
    with visit(pages.use_after_free(tmp_path / "run")) as seen:
        figure = seen.page.query_selector("#memory .figure")
        before = shown(figure)
        figure.query_selector("button[data-do=in]").click()
        assert shown(figure) == pytest.approx(before / 2, rel=0.02)
        figure.query_selector("button[data-do=out]").click()
        assert shown(figure) == pytest.approx(before, rel=0.02)
        figure.query_selector("button[data-do=all]").click()
        assert shown(figure) > before
        widths = figure.eval_on_selector_all(
            "svg.lane svg.i.named", "(items) => items.map((item) => item.getBoundingClientRect().width)"
        )
        assert len(widths) == 2 and widths[0] == pytest.approx(widths[1], abs=1)
        figure.query_selector(".plot").focus()
        seen.page.keyboard.press("0")
        assert shown(figure) == pytest.approx(before, rel=0.02)


def test_pointing_at_a_storage_tells_size_name_and_both_ends_of_its_life(visit: Open, tmp_path: Path) -> None:
    """In the line below the figure, for screen readers, too."""
    with visit(pages.use_after_free(tmp_path / "run")) as seen:
        figure = seen.page.query_selector("#memory .figure")
        figure.query_selector("svg.i.freed").hover()
        told = figure.query_selector(".details").inner_text()
        assert told.startswith("freed storage of 4.0 MiB, 0x7f3000000000 to 0x7f3000400000")
        assert "DDP bucket 0 of model (generation 0)" in told and "allocated " in told and "freed " in told
        assert figure.query_selector(".details").get_attribute("aria-live") == "polite"
        assert figure.query_selector("svg.i.freed").get_attribute("aria-label") == told


def test_keyboard_reaches_everything_in_a_figure(visit: Open, tmp_path: Path) -> None:
    """Tab to the figure, arrows from item to item and lane to lane."""
    with visit(pages.use_after_free(tmp_path / "run")) as seen:
        seen.page.query_selector("#ranks .plot").focus()
        assert seen.page.evaluate("document.activeElement.classList.contains('plot')")
        told: dict[str, None] = {}
        for key in [*["ArrowRight"] * 8, "ArrowDown", *["ArrowLeft"] * 8, *["ArrowRight"] * 8]:
            seen.page.keyboard.press(key)
            told[seen.page.query_selector("#ranks .details").inner_text().split("\n")[0]] = None
        words = "\n".join(told)
        for part in ("all_reduce #1: completed", "step 1 at", "rank 1: SIGSEGV", "rank 0: RuntimeError"):
            assert part in words, words


def test_dragging_moves_the_window(visit: Open, tmp_path: Path) -> None:
    """And does not change the scale."""
    with visit(pages.use_after_free(tmp_path / "run")) as seen:
        figure = seen.page.query_selector("#memory .figure")
        figure.query_selector("button[data-do=in]").click()
        item = figure.query_selector("svg.i.freed")
        before, scale = item.bounding_box(), shown(figure)
        box = figure.query_selector("svg.lane.live").bounding_box()
        seen.page.mouse.move(box["x"] + 300, box["y"] + 5)
        seen.page.mouse.down()
        seen.page.mouse.move(box["x"] + 350, box["y"] + 5, steps=4)
        seen.page.mouse.up()
        assert item.bounding_box()["x"] == pytest.approx(before["x"] + 50, abs=2)
        assert shown(figure) == pytest.approx(scale, rel=0.02)


@pytest.mark.parametrize("build", ORDINARY)
def test_page_is_complete_without_javascript(build: Build, visit: Open, tmp_path: Path) -> None:
    """Figures are drawn, what needs the script is hidden, and all details can be opened."""
    report = build(tmp_path / "run")
    with visit(report, java_script_enabled=False) as seen:
        assert_silent(seen)
        assert report.verdict is not None
        assert seen.page.locator("h1").inner_text() == report.verdict.summary
        assert not seen.page.locator(".tools").first.is_visible()
        for lane in seen.page.locator("svg.lane svg.i > rect").all()[:5]:
            assert lane.bounding_box()["width"] > 0
        closed = seen.page.locator("details:not([open]) > summary").last
        closed.click()
        assert seen.page.locator("details[open] > summary").last.is_visible()


def test_everything_is_open_on_paper_and_closed_again_afterwards(visit: Open, tmp_path: Path) -> None:
    """As PDF, too."""
    with visit(pages.use_after_free(tmp_path / "run")) as seen:
        count = "document.querySelectorAll('details:not([open])').length"
        before = seen.page.evaluate(count)
        assert before > 0
        seen.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert seen.page.evaluate(count) == 0
        seen.page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert seen.page.evaluate(count) == before
        assert seen.page.pdf()[:5] == b"%PDF-"


def test_page_of_a_notebook_runs_in_its_frame(visit: Open, browser: Any, tmp_path: Path) -> None:
    """`Report._repr_html_` in a page of another origin: the script runs, and reaches nothing outside."""
    report = pages.use_after_free(tmp_path / "run")
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><title>notebook</title>{report._repr_html_()}", encoding="utf-8")
    page = browser.new_page()
    seen = Visit(page, notebook)
    frame = page.frames[1]
    frame.wait_for_selector(".tools:not([hidden])")
    assert frame.locator("h1").inner_text() == (report.verdict.summary if report.verdict else None)
    assert page.title() == "notebook" and seen.complaints == []
    page.close()
