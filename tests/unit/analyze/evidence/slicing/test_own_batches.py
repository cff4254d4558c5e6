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
LISTED = """class Sampler:
    def __iter__(self):
{0}
    def _batches(self):
        batches, batch, total = [], [], 0
        for i in self.order:
            if batch and total + self.lengths[i] > self.most:
                batches.append(batch)
                batch, total = [], 0
            batch.append(i)
            total += self.lengths[i]
        batches.append(batch)
        return batches
"""
PACKED = """class Packed(Dataset):
    def __init__(self, docs, block):
        self.chunks, chunk, total = [], [], 0
        for doc in docs:
            if chunk and total + len(doc) > block:
                self.chunks.append(chunk)
                chunk, total = [], 0
            chunk.append(doc)
            total += len(doc)
    def __getitem__(self, i):
        return self.chunks[i]
    {0}
"""
COUNTING = """def batches(rows, size):
    batch = []
    for {0}:
        batch.append(row)
        if {1}:
            yield batch
            batch = []
def is_full(batch, size):
    return len(batch) >= size
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
        (sampler(test="if sum(map(len, batch)) > self.most:"), EACH),
        (sampler(), "for batch in DataLoader(Sampler(lengths, 4096), batch_size=None):"),
    ],
    ids=["sampler", "wrapped", "loader", "sum", "range", "enumerate", "longest", "map", "no batches of its own"],
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


def listed(*lines: str) -> str:
    return LISTED.replace("{0}", "\n".join(f"        {line}" for line in lines))


@pytest.mark.parametrize(
    "lines",
    [
        ("return iter(self._batches())",),
        ("yield from self._batches()",),
        ("batches = self._batches()", "random.shuffle(batches)", "return iter(batches)"),
        ("for batch in self._batches():", "    yield self.collate(batch)"),
    ],
    ids=["returned", "yield from", "shuffled", "each"],
)
def test_rule_of_a_list_that_is_handed_on_is_found(lines: tuple[str, ...], tmp_path: Path) -> None:
    """Made by a method of its own."""
    words = rule(tmp_path, listed(*lines))
    assert words is not None and "(`if batch and total + self.lengths[i] > self.most:`)" in words


@pytest.mark.parametrize(
    "lines",
    [
        (
            "batches = self._batches()",
            "batches = batches[: len(batches) // self.world * self.world]",
            "return iter(batches[self.rank :: self.world])",
        ),
        ("return iter(self._batches()[self.rank :: self.world])",),
        ("for n, batch in enumerate(self._batches()):", "    if n % self.world == self.rank:", "        yield batch"),
        (
            "batches = self._batches()",
            "while len(batches) < self.most_of_all_ranks:",
            "    batches.append(batches[-1])",
            "return iter(batches)",
        ),
        ("return self.deal(self._batches())",),
    ],
    ids=["cut", "strided", "in turn", "padded", "dealt out"],
)
def test_rule_of_a_list_that_is_dealt_out_is_not_found(lines: tuple[str, ...], tmp_path: Path) -> None:
    """The ranks can have as many of them."""
    assert rule(tmp_path, listed(*lines)) is None


@pytest.mark.parametrize(
    ("made", "more"),
    [
        (PACKED, "batch_size=8, sampler=DistributedSampler(data)"),
        (PACKED.replace("{0}", "def __iter__(self):\n        return iter(self.chunks)"), "batch_size=8"),
        (
            PACKED.replace("{0}", "def __iter__(self):\n        return iter(self.chunks)"),
            "batch_size=None, sampler=own",
        ),
    ],
    ids=["sampler", "batches of its items", "sampler of items"],
)
def test_items_of_a_data_set_are_not_taken_for_batches(made: str, more: str, tmp_path: Path) -> None:
    """A loader makes batches of them, as many for as many items."""
    assert rule(tmp_path, made, f"for batch in DataLoader(Packed(docs, 512), {more}):") is None


@pytest.mark.parametrize(
    ("over", "test"),
    [
        ("i, row in tqdm(enumerate(rows))", "(i + 1) % size == 0"),
        ("i, row in tqdm(enumerate(rows))", "i >= size"),
        ("i, row in zip(itertools.count(1), rows)", "i % size == 0"),
        ("i, row in zip(itertools.count(1), rows)", "i > size"),
        ("row in reversed(range(len(rows)))", "row > size"),
        ("row in rows", "is_full(batch, size)"),
        ("row in rows", "len(batch) == size or row is rows[-1]"),
        ("row in rows", "len(list(batch)) == size"),
        ("row in rows", "len(list(batch)) >= size"),
        ("row in rows", "len(torch.stack(batch)) >= size"),
        ("row in rows", "sum(1 for _ in batch) >= size"),
        ("row in rows", "row is not None and len(batch) >= size"),
    ],
)
def test_test_that_counts_items_is_no_rule_by_what_is_in_them(over: str, test: str, tmp_path: Path) -> None:
    """By whatever it counts them."""
    made = COUNTING.replace("{0}", over).replace("{1}", test)
    assert rule(tmp_path, made, "for batch in batches(rows, 32):") is None


def test_generator_of_rows_with_a_length_of_their_own_is_found(tmp_path: Path) -> None:
    """The other side of those that count."""
    made = COUNTING.replace("{0}", "i, row in tqdm(enumerate(rows))").replace(
        "{1}", "sum(len(x) for x in batch) > size"
    )
    assert rule(tmp_path, made, "for batch in batches(rows, 32):") is not None
