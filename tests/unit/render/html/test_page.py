"""The page: complete without JavaScript, harmless whatever the job is called, and of bounded size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytracer.render.html.document import LONGEST_TEXT
from pytracer.render.html.page import EVIDENCE, render_html
from pytracer.report import job as r
from tests.support import crash_scenarios as c
from tests.support import pages, scenarios
from tests.support.hostile import assert_harmless, hostile_part
from tests.support.pages import Page

_TAGS = (
    *("html", "head", "meta", "title", "style", "script", "body", "header", "nav", "main", "section", "article"),
    *("svg", "defs", "pattern", "rect", "circle", "path", "line", "text", "g", "figure", "figcaption"),
    *("h1", "h2", "h3", "h4", "p", "div", "span", "b", "strong", "bdi", "a", "button", "details", "summary"),
    *("table", "thead", "tbody", "tr", "th", "td", "ul", "ol", "li", "dl", "dt", "dd"),
)
REPORTS = (pages.use_after_free, pages.hang, pages.desync, pages.cuda_graph)


def assert_safe(text: str) -> Page:
    """Only elements of the templates, one script and one style with the hashes of the policy, nothing to load."""
    page = Page(text)
    tags = [tag for tag, _ in page.elements]
    assert set(tags) <= set(_TAGS), set(tags) - set(_TAGS)
    assert (tags.count("script"), tags.count("style"), tags.count("title") >= 1) == (1, 1, True)
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on") and name not in ("style", "src", "srcset", "action", "xlink:href"), name
            assert name != "href" or (value or "").startswith("#"), value
            assert name not in ("autofocus", "onfocus", "onerror"), tag
    assert page.policy == (
        f"default-src 'none'; style-src {page.hash_of('style')}; script-src {page.hash_of('script')}; "
        "base-uri 'none'; form-action 'none'"
    )
    return page


@pytest.mark.parametrize("build", REPORTS)
def test_page_needs_nothing_but_itself(build: Callable[[Path], r.Report], tmp_path: Path) -> None:
    """One file, under a policy that allows its own style and script by their hashes."""
    assert_safe(render_html(build(tmp_path)))


def test_first_screen_is_headline_culprit_memory_and_next_step(tmp_path: Path) -> None:
    """In this order, as text."""
    report = pages.use_after_free(tmp_path)
    assert report.verdict is not None and report.verdict.summary and report.verdict.advice
    text = Page(render_html(report)).text
    places = [
        text.index(words)
        for words in (report.verdict.summary, "Died first rank 1, pid 102", "What it touched freed storage of 4.0 MiB")
    ]
    assert places == sorted(places)
    assert "Next " + report.verdict.advice in text


def test_page_without_javascript_has_everything_as_text_and_tables(tmp_path: Path) -> None:
    """Memory with both ends of each life, ranks, both stacks, findings with evidence, and what was not found."""
    report = pages.use_after_free(tmp_path)
    page = Page(render_html(report))
    for finding in report.findings or []:
        assert all(line in page.text for line in finding.evidence or []), finding.id
    for item in report.checked or []:
        assert item.id is not None and item.id in page.words
    for words in (
        "DDP bucket 0 of model (generation 0)", "DDP bucket 0 of model (generation 1)",
        "allocated", "DistributedDataParallel._pre_forward", "Peek.backward", "read_sum(float const*, unsigned long)",
        "all_reduce #2", "rax", "Checked, not found", "ranks 0 and 1", "SIGSEGV",
    ):  # fmt: skip
        assert words in page.text, words
    titles = [words for words in page.words if words.startswith("freed storage of 4.0 MiB, 0x")]
    assert titles and "allocated" in titles[0] and "\nfreed" in titles[0]


def test_who_waits_for_whom_is_a_sentence(tmp_path: Path) -> None:
    """The ranks that waited, the one that they waited for, and the collective."""
    text = Page(render_html(pages.hang(tmp_path))).text
    assert "Ranks 0, 1 and 3 waited for rank 2 in all_reduce #3 of group 0, since " in text


def test_disagreement_is_a_table_with_the_odd_rank_marked(tmp_path: Path) -> None:
    """Who called what, from which line."""
    text = Page(render_html(pages.desync(tmp_path))).text
    assert "ranks disagree on op" in text and "rank 1 (odd one out)" in text
    assert "broadcast float32 [16] from rank 1" in text and "train.py:41 in step" in text


def test_freed_input_of_a_cuda_graph_is_drawn(tmp_path: Path) -> None:
    """And what lies in its memory now."""
    page = Page(render_html(pages.cuda_graph(tmp_path)))
    assert f"input of the CUDA graph {pages.DEVICE:#x}" in page.text
    assert any(words.startswith("freed block of 8.0 MiB on cuda:0") for words in page.words)
    assert "train.py:47 in next_batch" in page.text


@pytest.mark.parametrize("seed", range(12))
def test_page_of_any_report_is_harmless(seed: int) -> None:
    """Every field of every type of the report is an attack, or missing."""
    text = render_html(hostile_part(r.Report, seed))
    assert_harmless("".join(assert_safe(text).words), least_indent=0)


@pytest.mark.parametrize(
    "build", [scenarios.use_after_free, scenarios.detail, c.terminated, c.overflow, c.heap_damage, scenarios.clean]
)
def test_page_of_a_hostile_job_is_harmless(build: Callable[[Path], object], tmp_path: Path) -> None:
    """Markup, template syntax, controls, line breaks, 10 kB; every string of the decoded job."""
    job = build(tmp_path)
    text = render_html(pages.hostile(job))  # type: ignore[arg-type]
    page = assert_safe(text)
    assert "<script>document" not in text and "\u202e" not in text and "\x1b" not in text
    assert "\\u202e" in page.text and "\\x1b[31m" in page.text, "they are shown as escapes"
    assert "49" not in page.text.partition("{{7*7}}")[0][-4:] and "{{7*7}}" in page.text


@pytest.mark.parametrize("build", REPORTS)
def test_page_of_a_poisoned_report_is_harmless(build: Callable[[Path], r.Report], tmp_path: Path) -> None:
    """A report may come from a program that is not ours."""
    assert_safe(render_html(pages.poisoned(build(tmp_path))))


def test_names_of_ten_kilobytes_are_cut(tmp_path: Path) -> None:
    """With a count; the JSON has all of them."""
    text = render_html(pages.hostile(scenarios.use_after_free(tmp_path), pages.LONG_ATTACK))
    page = assert_safe(text)
    assert len(text) < 1_000_000 and "more characters)" in page.text
    assert max(map(len, page.words)) < 10 * LONGEST_TEXT


def test_page_of_eight_busy_ranks_is_below_a_megabyte(tmp_path: Path) -> None:
    """All crashed, with 40 threads of 100 frames, three groups and hundreds of storages."""
    assert len(render_html(pages.busy_job(tmp_path)).encode()) < 1_000_000


@pytest.mark.parametrize("count", [64, pytest.param(1024, marks=pytest.mark.slow)])
def test_page_of_many_ranks_folds_them(count: int, tmp_path: Path) -> None:
    """Two kinds of ranks, a lane for each of their groups; long lists of evidence are cut with a count."""
    report = pages.many_ranks(tmp_path, count, victim=21)
    text = render_html(report)
    page = assert_safe(text)
    lanes = [a.get("aria-label") for tag, a in page.elements if tag == "svg" and "lane" in (a.get("class") or "")]
    named = [lane for lane in lanes if lane]
    assert named == [
        "rank 21", "group 0 (default_pg)", "group 3 (mesh_tp)",
        f"ranks 0-20 and 22-{count - 1}", "group default_pg", "group mesh_tp",
    ]  # fmt: skip
    assert f"Ranks 0-20 and 22-{count - 1} waited for rank 21 in all_reduce #3" in page.text
    assert len(text) < 250_000
    evidence = max(len(finding.evidence or []) for finding in report.findings or [])
    assert evidence > EVIDENCE and f"... {evidence - EVIDENCE} more in --json" in page.text


def test_what_was_redacted_is_counted(tmp_path: Path) -> None:
    """The page of a redacted report says so."""
    import msgspec

    report = msgspec.structs.replace(pages.use_after_free(tmp_path), removed={"secrets": 2, "hosts": 1})
    assert "redacted 2 secrets, 1 host name" in Page(render_html(report)).text


def test_report_without_anything_has_a_page() -> None:
    """Any field may be null."""
    assert "No verdict." in Page(render_html(r.Report())).text
