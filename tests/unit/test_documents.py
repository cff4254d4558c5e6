"""The documents: links have targets, and named source files exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("README.md")])
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_SOURCE = re.compile(r"`([\w./-]+\.(?:py|cpp|cc|h|allow))`")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """Files, and headings by the names that GitHub gives them."""
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        target, _, heading = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name} links to {link}"
        if heading:
            names = {_anchor(text) for text in _HEADING.findall(path.read_text(encoding="utf-8"))}
            assert heading in names, f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_source_files_that_a_page_names_exist(page: Path) -> None:
    """By a path from the root or from a folder below it, or by name alone."""
    named = set(_SOURCE.findall(page.read_text(encoding="utf-8")))
    assert sorted(name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in _sources())) == []


@cache
def _sources() -> tuple[str, ...]:
    folders = ("benchmarks", "csrc", "examples", "pytracer", "scripts", "tests")
    return ("setup.py", *(str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.*")))


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
