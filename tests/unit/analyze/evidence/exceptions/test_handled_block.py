"""The `except` or `finally` that a program was in while it handled an exception, by its own source."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.exceptions.handled import Handled
from pytracer.report.job import HandledExceptionReport, PythonFrame

PROGRAM = """def close():
    dist.all_gather(sizes, size)
def check():
    raise ValueError("loss is NaN")
def main():
    try:
        check()
    except ValueError:
        close()
        raise
    finally:
        close()
    close()
main()
"""


@pytest.mark.parametrize(
    ("line", "raised_at", "words"),
    [
        (9, 7, "the `except` of line 8"),
        (12, 7, "the `finally` of line 12"),
        (13, 7, None),
        (12, 13, None),
    ],
    ids=["except", "finally", "behind both", "raised elsewhere"],
)
def test_block_that_the_program_was_in(line: int, raised_at: int, words: str | None, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(PROGRAM, encoding="utf-8")

    def stack(*places: tuple[str, int]) -> list[PythonFrame]:
        return [PythonFrame(function=name, file=str(file), line=number) for name, number in places]

    snapshot = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9)
    view: Any = SimpleNamespace(
        python_stack=stack(("close", 2), ("main", line), ("<module>", 14)), process=SimpleNamespace(snapshot=snapshot)
    )
    report = HandledExceptionReport(type="ValueError", python_stack=stack(("check", 4), ("main", raised_at)))
    assert Handled(view, report).block == words
