"""Whether a first exception would have ended the run: by the `finally` or `except` that failed on its way."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.processes.handlers import ended_by_first
from pytracer.report.job import HandledExceptionReport, PythonFrame

FORMS = [
    ("try:\n    work()\nexcept KeyError:\n    flush()\n    raise\n", 4, True),
    ("try:\n    work()\nfinally:\n    flush()\n", 4, True),
    ("try:\n    work()\nexcept KeyError:\n    flush()\n", 4, False),  # it goes on after that
    ("try:\n    work()\nfinally:\n    pass\nflush()\n", 5, False),
    ("try:\n    work()\nexcept KeyError:\n    flush()\n    raise ValueError() from None\n", 4, False),
    ("with folder():\n    work()\n", 1, True),
    ("with folder():\n    pass\nwork()\n", 1, False),
    ("with folder():\n    work()\nflush()\n", 3, False),
    ("try:\n    pass\nexcept KeyError:\n    flush()\n    raise\nwork()\n", 4, False),
]


@pytest.mark.parametrize(("source", "line", "ends"), FORMS)
def test_only_what_is_passed_on_ends_a_run(source: str, line: int, ends: bool, tmp_path: Path) -> None:
    """Where the handler gives up the exception, the second one is the reason."""
    file = tmp_path / "train.py"
    file.write_text(source, encoding="utf-8")
    first_line = source.split("\n").index("    work()" if "    work()" in source else "work()") + 1
    first = HandledExceptionReport(
        type="KeyError",
        message="'a'",
        python_stack=[PythonFrame(function="<module>", file=str(file), line=first_line)],
    )
    stack = [PythonFrame(function="<module>", file=str(file), line=line)]
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    assert ended_by_first(snapshot, stack, first) is ends
