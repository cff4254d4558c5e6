"""Reports against the JSON Schema that is shipped with the package."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, get_args

import jsonschema
import msgspec

from pytracer import report
from pytracer.render.json import render_json
from pytracer.report.job import FactKind, Report

SCHEMA = Path(report.__file__).with_name("report.schema.json")


def validated(found: Report) -> Report:
    """The same report, whose JSON follows the schema, and whose sentences have their facts.

    Raises:
        jsonschema.ValidationError: it does not follow it.
    """
    validate(json.loads(render_json(found)))
    check_facts(found)
    return found


def check_facts(found: Report) -> None:
    """Every sentence of evidence has a fact of a known kind, with data."""
    verdicts = [found.verdict, *(item.verdict for item in found.attempts or [])]
    for part in (*verdicts, *(found.findings or [])):
        sentences, facts = (part.evidence or [], part.facts or []) if part is not None else ([], [])
        assert len(sentences) == len(facts), (sentences, facts)
        for sentence, fact in zip(sentences, facts, strict=True):
            assert fact.kind in get_args(FactKind), (sentence, fact)
            assert len(msgspec.to_builtins(fact)) > 1, f"a fact without data: {sentence!r}"


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
