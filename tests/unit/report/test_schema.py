"""The JSON Schema of the report: reports of all kinds match it, and other JSON does not.

The reports of `tests/support/deaths.py` and of the golden recordings are validated where they are made.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import Job
from pytracer.render.json import render_json
from pytracer.report.job import Report
from tests.support import crash_scenarios as c
from tests.support import scenarios as s
from tests.support.hostile import hostile_part
from tests.support.report_schema import validate, validated

ROOT = Path(__file__).resolve().parents[3]
SCENARIOS = (s.use_after_free, s.detail, s.clean, s.single, c.terminated, c.overflow, c.ended_by_name, c.heap_damage)


@pytest.mark.parametrize("build", SCENARIOS)
def test_report_of_a_scenario_keeps_the_schema(build: Callable[[Path], Job], tmp_path: Path) -> None:
    """As `inspect --json` prints it."""
    validated(build_report(build(tmp_path / "run")))


@pytest.mark.parametrize("seed", range(4))
def test_every_field_of_the_report_is_in_the_schema(seed: int) -> None:
    """Filled at random, by the types."""
    validate(json.loads(render_json(hostile_part(Report, seed))))


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "use-after-free"},
        {"processes": [{"pid": "101"}]},
        {"findings": [{"evidence": [{"text": "it is an object"}]}]},
        {"version": None},
    ],
)
def test_other_types_are_refused(change: dict[str, Any]) -> None:
    """The schema rejects something."""
    with pytest.raises(jsonschema.ValidationError):
        validate({**json.loads(render_json(Report())), **change})


def test_new_keys_are_allowed() -> None:
    """Keys may be added within a version."""
    validate({**json.loads(render_json(Report())), "weather": "fine"})


def test_schema_is_up_to_date() -> None:
    """`make lint` checks the same."""
    subprocess.run([sys.executable, ROOT / "scripts/gen_schema.py", "--check"], check=True, cwd=ROOT)
