"""Reports against the JSON Schema that is shipped with the package."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

from pytracer import report
from pytracer.render.json import render_json
from pytracer.report.job import Report

SCHEMA = Path(report.__file__).with_name("report.schema.json")


def validated(found: Report) -> Report:
    """The same report, whose JSON follows the schema.

    Raises:
        jsonschema.ValidationError: it does not follow it.
    """
    validate(json.loads(render_json(found)))
    return found


def validate(content: object) -> None:
    """As `validated`, for a report that is JSON already."""
    error = jsonschema.exceptions.best_match(_validator().iter_errors(content))
    if error is not None:
        raise error


@cache
def _validator() -> Any:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)
