"""What sys.exit() was given, where that is neither None nor a whole number."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.ends.exit_condition import exit_condition
from pytracer.analyze.evidence.ends.exit_values import exit_value
from pytracer.report.job import PythonFrame

PROGRAM = """import sys
def train(steps):
    return {returns}
def main():
    metrics = train(3)
    return metrics
if __name__ == "__main__":
    sys.exit({given})
"""


def stack_of(folder: Path, returns: str, given: str) -> tuple[Any, list[PythonFrame]]:
    """The process, and its stack at line 8."""
    program = folder / "train.py"
    program.write_text(PROGRAM.format(returns=returns, given=given), encoding="utf-8")
    return SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, argv=("train.py",)), [
        PythonFrame(function="<module>", file=str(program), line=8)
    ]


@pytest.mark.parametrize(
    ("returns", "words"),
    [
        ("{'loss': 1.0}", "main() returns a dict (line 3)"),
        ("'done'", "main() returns a str (line 3)"),
        ("True", "main() returns True, which is 1 (line 3)"),
    ],
)
def test_value_that_is_no_status(returns: str, words: str, tmp_path: Path) -> None:
    """As far back as it was made."""
    found = exit_value(*stack_of(tmp_path, returns, "main()"), 1)
    assert found is not None
    assert found.words.startswith(words)
    assert "Call main() alone at line 8" in found.advice


@pytest.mark.parametrize(
    ("returns", "given", "status"),
    [("1", "main()", 1), ("None", "main()", 1), ("check(steps)", "main()", 1), ("{}", "1", 1), ("{}", "main()", 2)],
)
def test_other_exits_are_not_laid_to_a_value(returns: str, given: str, status: int, tmp_path: Path) -> None:
    """Statuses, and what the source does not show."""
    assert exit_value(*stack_of(tmp_path, returns, given), status) is None


def test_main_part_of_a_file_is_no_condition_of_an_exit(tmp_path: Path) -> None:
    """It always holds where a program is started."""
    assert exit_condition(*stack_of(tmp_path, "1", "main()")) is None
