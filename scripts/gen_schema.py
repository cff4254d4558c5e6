"""Writes pytracer/report/report.schema.json from the types of the report; with --check, compares instead."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "pytracer" / "report" / "report.schema.json"


def report_schema() -> str:
    """JSON Schema (2020-12) of what `pytracer inspect --json` prints."""
    sys.path.insert(0, str(ROOT))
    from pytracer.report.job import Report

    schema = msgspec.json.schema(Report, schema_hook=_as_text)
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=1) + "\n"


def _as_text(kind: type) -> dict[str, str]:
    """Evidence: a str with a kind, of which JSON has the sentence."""
    if issubclass(kind, str):
        return {"type": "string"}
    raise NotImplementedError(kind)


def main() -> int:
    """Write or compare; returns the exit code."""
    schema = report_schema()
    if "--check" in sys.argv[1:]:
        if not TARGET.exists() or TARGET.read_text() != schema:
            print(f"{TARGET.relative_to(ROOT)} is out of date; run python scripts/gen_schema.py", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(schema)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
