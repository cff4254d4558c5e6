"""The report as JSON: the whole of it, and nothing else."""

from __future__ import annotations

import msgspec

from pytracer.analyze.report_parts import Part


def render_json(report: Part) -> str:
    """One JSON object of a report, indented, with a newline at its end. Its schema is docs/report.md."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"
