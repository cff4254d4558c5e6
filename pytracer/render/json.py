"""The report as JSON: the whole of it, and nothing else."""

from __future__ import annotations

import json

import msgspec

from pytracer._printable import ascii_json
from pytracer.report.process import Part


def render_json(report: Part) -> str:
    """One JSON object of a report, indented, with a newline at its end (docs/reference/report-schema.md)."""
    return json_text(report, indent=2)


def json_text(value: object, *, indent: int | None = None) -> str:
    """Plain data as JSON with a newline at its end.

    All of it is ASCII, also when names hold control characters: a terminal shows it, and every parser reads it.
    """
    try:
        data = msgspec.json.encode(value)
        text = (msgspec.json.format(data, indent=indent) if indent else data).decode()
    except UnicodeEncodeError:  # bytes of a path that are not UTF-8: half surrogates, which msgspec does not write
        text = json.dumps(msgspec.to_builtins(value), indent=indent)
    return ascii_json(text) + "\n"
