"""The page of tried combinations: no cell looks better than its run was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts import support_page

ABOUT = {"python": "3.13.0", "libc": "glibc 2.36", "chroot": False, "install_seconds": 1.5, "date": "2026-11-23"}


def result(**changes: Any) -> dict[str, Any]:
    """One combination that has everything, but for the changes."""
    found = {"missing": [], "without_ptrace": [], "hooks": [["autograd", ""]], "notes": []}
    return ABOUT | found | changes


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "ok"),
        ({"without_ptrace": ["nodes"]}, "ok; without ptrace no nodes"),
        ({"missing": ["names"]}, "without names"),
        ({"missing": ["crash", "names"]}, "FAILED: crash, names"),
        ({"missing": [support_page.HEALTHY]}, "FAILED: healthy run as untraced"),
        ({"missing": ["storages"], "notes": ["the torch hooks are not installed: no library"]}, "core"),
        ({"missing": ["crash"], "notes": ["the torch hooks are not installed: no library"]}, "FAILED: crash"),
        ({"not_tried": "PyPI has no such wheel"}, "-"),
    ],
)
def test_cell_is_ok_only_if_nothing_is_missing(changes: dict[str, Any], expected: str) -> None:
    """A part that is missing is named, and a crash that is not reported is no core level."""
    assert support_page.mark(result(**changes)) == expected


def test_combination_that_was_not_tried_is_listed_with_the_reason(tmp_path: Path) -> None:
    """Also one that nobody gave a CPython or a result for."""
    wheel = tmp_path / "pytracer.whl"
    wheel.write_bytes(b"wheel")
    results = {"3.13 2.14.1": result(), "3.13 2.15.0": ABOUT | {"not_tried": "PyPI has no such wheel"}}
    page = support_page.page(results, wheel, "0123", ["2.13.0", "2.14.1", "2.15.0"])
    assert "| 2.14.1 | ok |" in page
    assert "| 2.15.0 | - |" in page
    assert "| 2.13.0 | - |" in page
    assert "- PyPI has no such wheel: 2.15.0 under 3.13." in page
    assert "- not run: 2.13.0 under 3.13." in page
    assert (
        "- not run, no such CPython was given: every torch under 3.11, every torch under 3.12, every torch under 3.14."
        in page
    )


def test_refusal_of_a_hook_is_in_its_row(tmp_path: Path) -> None:
    """The reason, under the torch that it was given for."""
    wheel = tmp_path / "pytracer.whl"
    wheel.write_bytes(b"wheel")
    results = {"3.13 2.13.0": result(), "3.13 2.14.1": result(hooks=[["autograd", "no such symbol"]])}
    page = support_page.page(results, wheel, "0123", [])
    assert "| hook | 2.13.0 | 2.14.1 |" in page
    assert "| autograd | - | no such symbol |" in page
