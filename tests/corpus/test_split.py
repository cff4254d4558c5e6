"""Programs of the corpus in two files: the same class and lines, each with the file that it is of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conditions import needs_capstone, needs_native
from tests.corpus.test_corpus import CASES, PROGRAMS, VARIABLES, command_of
from tests.support.crash import traced_run
from tests.support.split_program import split_program

pytestmark = [pytest.mark.slow, needs_native, needs_capstone]

_OFTEN = ("u16_recursion_limit", "c15_train_detector_ddp", "u33_loader_key_error", "v24_barrier_of_everyone")
_MORE = ("o21_train_treelstm", "g23_compiled_recsys", "i03_hard_negatives", "c07_detect_faces", "g07_modelnet_views")
_CASES = {case["id"]: case for _, case in CASES}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [*_OFTEN, *(pytest.param(name, marks=pytest.mark.every_case) for name in _MORE)])
def test_program_in_two_files_is_explained_as_in_one(name: str, tmp_path: Path) -> None:
    """A line that stands with a file has a statement there."""
    case = _CASES[name]
    main = split_program(PROGRAMS / f"{name}.py", tmp_path)
    done = traced_run(*command_of(case, main), run=tmp_path / "run", options=(), **VARIABLES)
    verdict = done.report.verdict
    assert verdict is not None
    assert verdict.class_ in case["class"], verdict.summary  # a name, or a list of names
    for word in case["headline"]:
        assert _is_said(name, word, verdict.summary or ""), verdict.summary
    for word in case["next"]:
        assert any(_is_said(name, one, verdict.advice or "") for one in word.split("|")), verdict.advice
    for file, line in re.findall(rf"\b((?:parts_)?{name}\.py):(\d+)", f"{verdict.summary} {verdict.advice}"):
        assert (tmp_path / file).read_text(encoding="utf-8").split("\n")[int(line) - 1].strip(), (file, line)


def _is_said(name: str, word: str, text: str) -> bool:
    """A line of one file may be `line 7` or have its file."""
    pattern = re.escape(word).replace(r"line\ ", r"(?:line |[\w.]+\.py:)")
    pattern = re.sub(rf"{re.escape(re.escape(name))}\\\.py:", r"(?:line |[\\w.]+\\.py:)", pattern)
    return re.search(pattern, text) is not None
