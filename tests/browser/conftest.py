"""A headless Chromium, which must be installed (Debian: chromium; or named by CHROMIUM), driven by playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytracer.render.html.page import render_html
from pytracer.report.job import Report

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


class Visit:
    """A page that is shown, and what happened in it: console, errors, dialogs, requests."""

    def __init__(self, page: Any, file: Path) -> None:
        self.page, self.address = page, file.as_uri()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(self.address)


Open = Callable[..., AbstractContextManager[Visit]]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One browser for all tests."""
    api = pytest.importorskip("playwright.sync_api", reason="make test-browser installs it")
    if CHROMIUM is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    with api.sync_playwright() as playwright:
        # As root, Chromium does not start with its sandbox.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Open:
    """Writes the page of a report, or a page, and shows it; `width` and the options of a browser context."""

    @contextmanager
    def opened(report: Report | str, width: int = 1280, **options: Any) -> Iterator[Visit]:
        file = tmp_path / "report.html"
        file.write_text(report if isinstance(report, str) else render_html(report), encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        try:
            yield Visit(context.new_page(), file)
        finally:
            context.close()

    return opened
