"""Items that are left out of a rank's part, between what gives it the part and the loop over it."""

import ast
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.slicing.by_rank import SizeSource, size_source
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.report.job import PythonFrame

STREAM = """class Stream:
    def __init__(self, paths, rank, world):
        self.paths = paths[rank::world]

    def __iter__(self):
        for path in self.paths:
            for doc in open(path):
                {body}

def main(paths, rank, world):
    stream = Stream(paths, rank, world)
    for doc in stream:
        step(doc)
"""
GROUPS = """if group and total + doc.size > 40:
                    yield group
                    group, total = [], 0
                group.append(doc)
                total += doc.size
        if group:
            yield group"""
BUCKETS = """buckets[doc.size].append(doc)
                if len(buckets[doc.size]) == 8:
                    yield buckets.pop(doc.size)"""
LISTS = """def main(paths, rank, world):
    mine = paths[rank::world]
    {0}
    for doc in docs:
        step(doc)
"""


def found(folder: Path, source: str) -> SizeSource:
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    line = source[: source.index("step(doc)")].count("\n") + 1
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    back = Slice(snapshot, [PythonFrame(function="main", file=str(file), line=line)])
    spot = back.spot(0)
    assert spot is not None
    loop = next(item for item in ast.walk(spot.tree) if isinstance(item, ast.For) and item.lineno == line - 1)
    made = size_source(back, loop.iter, spot)
    assert made is not None and made.split is not None
    return made


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (STREAM.replace("{body}", "if keep(doc):\n                    yield doc"), "line 8 (`keep(doc)`)"),
        (
            STREAM.replace("{body}", "if not doc.strip():\n                    continue\n                yield doc"),
            "line 8 ",
        ),
        (LISTS.replace("{0}", "docs = [item for item in mine if item.size > 9]"), "line 3 (`item.size > 9`)"),
        (LISTS.replace("{0}", "docs = list(filter(keep, mine))"), "line 3 (`filter(keep, mine)`)"),
        (LISTS.replace("{0}", "mine = mine\n    docs = mine[mine.score > 0.5]"), "line 4 (`mine[mine.score > 0.5]`)"),
    ],
)
def test_condition_by_which_some_of_the_part_are_left_out(source: str, words: str, tmp_path: Path) -> None:
    said = found(tmp_path, source).left_out_words(str(tmp_path / "train.py"))
    assert said.startswith(f", of which {words}") and said.endswith("leaves out some, if any")


@pytest.mark.parametrize(
    "source",
    [
        STREAM.replace("{body}", "yield doc"),
        STREAM.replace("{body}", "yield doc\n                if full(doc):\n                    report(doc)"),
        STREAM.replace("{body}", GROUPS),
        STREAM.replace("{body}", BUCKETS),
        LISTS.replace("{0}", "docs = [load(item) for item in mine]"),
        LISTS.replace("{0}", "docs = [item for item in paths if keep(item)][rank::world]"),
    ],
    ids=["all", "another statement", "groups", "groups by a key", "no condition", "before the split"],
)
def test_nothing_is_left_out_of_the_part(source: str, tmp_path: Path) -> None:
    assert found(tmp_path, source).left_out is None


ROWS = """class Rows:
    def keep(self, mask):
        self.score = self.score[mask]

    def mark(self, mask):
        self.seen = mask

def clean(rows, rank):
    rows.{method}(rows.score > 2)
    return rows

def main(paths, rank, world):
    rows = clean(paths[rank::world], rank)
    for row in rows:
        step(doc)
"""


@pytest.mark.parametrize(("method", "is_left_out"), [("keep", True), ("mark", False)])
def test_a_method_that_keeps_what_a_mask_selects(method: str, is_left_out: bool, tmp_path: Path) -> None:
    said = found(tmp_path, ROWS.replace("{method}", method)).left_out_words(str(tmp_path / "train.py"))
    assert said == (", of which line 9 (`rows.score > 2`) leaves out some, if any" if is_left_out else "")
