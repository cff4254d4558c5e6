"""Outputs of a reduce-overhead function that a later run has overwritten, with the message of torch 2.11."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame

PROGRAM = """@torch.compile(mode="reduce-overhead")
def cell(x, state):
    return torch.tanh(state + x)
def main(xs):
    state, kept = xs[0], []
    for x in xs:
        state = cell(x, state)
        kept.append(cell(x, x))
    return torch.stack(kept)
main(xs)
"""
MESSAGE = (
    "Error: accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run. Stack trace: "
    'File "{file}", line 3, in cell\n    return torch.tanh(state + x). To prevent overwriting, clone the tensor'
)
TREES = PythonFrame(function="format_item", file="/x/site-packages/torch/_inductor/cudagraph_trees.py", line=126)


def said(folder: Path, frames: list[tuple[str, int]], below: list[PythonFrame], message: str = MESSAGE) -> Explanation:
    file = folder / "train.py"
    file.write_text(PROGRAM, encoding="utf-8")
    report = ExceptionReport(type="RuntimeError", message=message.replace("{file}", str(file)))
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    stack = [PythonFrame(function=name, file=str(file), line=line) for name, line in frames]
    found = explained(snapshot, report, [*below, *stack])
    assert found.failure is None
    return found


def test_output_that_is_kept_is_to_be_cloned_where_it_is_returned(tmp_path: Path) -> None:
    """Both calls of that name are told: either may have made it."""
    found = said(tmp_path, [("main", 9), ("<module>", 10)], [])
    assert found.subject is not None and found.words is not None
    assert "an output of cell(), made at line 3, was used after a later run" in found.subject
    assert "`cell(x, state).clone()` at train.py:7 and `cell(x, x).clone()` at train.py:8" in found.words


def test_output_that_is_passed_back_is_to_be_cloned_there(tmp_path: Path) -> None:
    """The failing line is inside of the compiled function; what called it counts."""
    found = said(tmp_path, [("cell", 1), ("main", 7), ("<module>", 10)], [TREES])
    assert found.subject is not None and found.words is not None
    assert "was passed to a later call at train.py:7 in main" in found.subject
    assert "`cell(x, state).clone()` at train.py:7 (each tensor" in found.words and "train.py:8" not in found.words


def test_message_without_a_line_of_the_program_says_nothing_of_it(tmp_path: Path) -> None:
    """Before torch 2.2 there was no stack trace."""
    message = MESSAGE.split(" Stack trace")[0]
    assert said(tmp_path, [("main", 9), ("<module>", 10)], [], message).subject is None


def test_other_errors_of_the_trees_are_not_taken_for_it(tmp_path: Path) -> None:
    """An error that only names the same line."""
    message = MESSAGE.replace("has been overwritten by a subsequent run", "was not found")
    assert said(tmp_path, [("main", 9), ("<module>", 10)], [], message).subject is None
