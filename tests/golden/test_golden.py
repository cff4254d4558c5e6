"""Today's reader explains recordings of older versions in the same words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytracer.report.job import Report
from tests.golden.reports import GOLDEN, report_of, unpacked
from tests.support.facts import check_facts
from tests.support.report_schema import validate

_BY_RULE = ("checked", "alternatives")  # lists with one item for each rule that there is
ARCHIVES = sorted(GOLDEN.glob("*/*.tar.xz"))


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: f"{path.parent.name}-{path.name[:-7]}")
def test_recording_of_a_released_version_is_explained_as_it_was(archive: Path, tmp_path: Path) -> None:
    """An improved report changes its stored copy, which a reviewer sees; no change is accidental.

    Reports are extended: keys that an older reader did not write, and rules that it did not have and that find nothing,
    are left out of the comparison.
    """
    expected = json.loads(archive.with_suffix("").with_suffix(".json").read_text(encoding="utf-8"))
    text = report_of(unpacked(archive, tmp_path))
    found = json.loads(text)
    assert _as_known_by(expected, found) == expected
    validate(found)
    decoded = msgspec.json.decode(text, type=Report)
    for part in (decoded.verdict, *(decoded.findings or [])):
        assert part is not None
        check_facts(part)


def _as_known_by(older: Any, today: Any) -> Any:
    """Today's report with the keys of the older one only, and without rules that it did not have."""
    if isinstance(older, dict) and isinstance(today, dict):
        known = {key: _as_known_by(older[key], today[key]) for key in today if key in older and key not in _BY_RULE}
        for key in _BY_RULE:
            if key in older:
                ids = {item["id"] for item in older[key]}
                known[key] = _as_known_by(older[key], [item for item in today[key] if item["id"] in ids])
        return known
    if isinstance(older, list) and isinstance(today, list) and len(older) == len(today):
        return [_as_known_by(before, now) for before, now in zip(older, today, strict=True)]
    return today
