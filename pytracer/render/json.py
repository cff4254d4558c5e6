"""The report as JSON: the whole of it, and nothing else."""

from __future__ import annotations

import msgspec

from pytracer.analyze.report import Report


def render_json(report: Report) -> str:
    """One JSON object, indented, with a newline at its end. Its schema is docs/report.md."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"
