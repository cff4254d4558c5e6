"""Batches that a program makes by a rule of its own: by what is in them, or by how many items there are."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.slicing.own_batches import own_batches
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.report.job import PythonFrame

SAMPLER = """class Sampler:
    def __init__(self, lengths, most):
        self.lengths, self.most = lengths, most
    def __iter__(self):
        batch, total = [], 0
        for {0}:
            {1}
                yield batch
                batch, total = [], 0
            batch.append(i)
            total += {2}
        if batch:
            yield batch
"""
LOOP = """def main(model, lengths):
    sampler = Sampler(lengths, 4096)
    {0}
        step(model, batch)
main(model, lengths)
"""
OVER, EACH = "i in self.indices", "for batch in sampler:"
FULL = "if batch and total + self.lengths[i] > self.most:"
LENGTH = "self.lengths[i]"


def rule(folder: Path, sampler: str, each: str = EACH) -> str | None:
    """What ends a batch of the loop, as said in its file."""
    text = sampler + LOOP.replace("{0}", each)
    file = folder / "train.py"
    file.write_text(text, encoding="utf-8")
    line = next(n for n, item in enumerate(text.splitlines(), 1) if "step(model" in item)
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    frames = [
        PythonFrame(function="main", file=str(file), line=line),
        PythonFrame(function="<module>", file=str(file), line=line + 1),
    ]
    loop = next(item for item in ast.walk(ast.parse(text)) if isinstance(item, ast.For) and item.lineno == line - 1)
    found = own_batches(Slice(snapshot, frames), 0, loop)
    return found.rule(str(file)) if found is not None else None


def sampler(over: str = OVER, test: str = FULL, grows: str = LENGTH) -> str:
    return SAMPLER.replace("{0}", over).replace("{1}", test).replace("{2}", grows)


@pytest.mark.parametrize(
    ("made", "each"),
    [
        (sampler(), EACH),
        (sampler(), "for n, batch in enumerate(tqdm(sampler)):"),
        (sampler(), "for batch in DataLoader(data, batch_sampler=Sampler(lengths, 4096), num_workers=2):"),
        (sampler(test="if total >= self.most:"), EACH),
        (sampler("i in range(len(self.lengths))"), EACH),
        (sampler("i, length in enumerate(self.lengths)", "if total + length > self.most:", "length"), EACH),
        (sampler(test="if max(self.lengths[k] for k in batch + [i]) * len(batch) > self.most:"), EACH),
        (sampler().replace("yield batch\n                batch,", "made.append(batch)\n                batch,"), EACH),
    ],
    ids=["sampler", "wrapped", "loader", "sum", "range", "enumerate", "longest", "list of batches"],
)
def test_rule_by_what_is_in_a_batch_is_found(made: str, each: str, tmp_path: Path) -> None:
    """With its line."""
    words = rule(tmp_path, made, each)
    assert words is not None and words.startswith("line 7 (`if ") and words.endswith(" ends a batch by what is in it")


@pytest.mark.parametrize(
    ("made", "each"),
    [
        (sampler(test="if len(batch) == self.most:"), EACH),
        (sampler(test="if total == self.most:", grows="1"), EACH),
        (sampler("i in range(len(self.lengths))", "if (i + 1) % self.most == 0:", "1"), EACH),
        (sampler("n, i in enumerate(self.indices)", "if batch and n % self.most == 0:", "1"), EACH),
        (sampler(test="if total > self.most and self.verbose:").replace("yield batch", "print(batch)"), EACH),
        (sampler(), "for batch in DataLoader(data, batch_size=4):"),
        (sampler(), "for batch in lengths:"),
    ],
    ids=["by length", "by a count", "by the index", "by the round", "gives nothing", "other loader", "list"],
)
def test_nothing_is_found_where_the_number_of_items_decides(made: str, each: str, tmp_path: Path) -> None:
    """The look-alikes: as many items give as many batches."""
    assert rule(tmp_path, made, each) is None
