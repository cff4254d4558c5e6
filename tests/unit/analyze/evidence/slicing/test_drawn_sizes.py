"""Sizes that come from what each rank draws for itself."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.slicing.drawn_sizes import drawn_size
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.report.job import PythonFrame

SNAPSHOT: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**13)
HEAD = "import random, torch\nimport numpy as np\n"
TRAIN = """\
def train(rows, rank, n, p):
    {0}
    for row in kept:
        step(row)
"""
DATA = """\
class Rows:
    def __init__(self, shard, rng, p):
        rows = load(shard)
        self.rows = rows[{mask}]
    def __len__(self):
        return len(self.rows)
def generator(seed):
    return np.random.default_rng({seed})
def main(rank):
    rng = generator(42)
    train, other = Rows(rank, rng, 0.5), Rows(9, np.random.default_rng(0), 0.5)
    for row in DataLoader(train, batch_size=4):
        step(row)
main(int(os.environ["RANK"]))
"""
STREAM = """\
class Clips:
    def __iter__(self):
        for row in self.rows:
            if random.random() > 0.5:
                continue
            yield row
def main():
    for row in DataLoader(Clips()):
        step(row)
"""
SUBSET = """\
class Ratings:
    def __init__(self, users):
        g = torch.Generator().manual_seed(11)
        self.user = torch.randint(0, users, (400,), generator=g)
    def keep(self, count):
        kept = np.random.choice(np.unique(self.user), count, replace=False)
        mask = torch.isin(self.user, torch.from_numpy(kept))
        self.user, self.left = self.user[mask], 0
        return self
    def __len__(self):
        return len(self.user)
def main():
    data = Ratings(60).keep(30)
    loader = DataLoader(data, sampler=DistributedSampler(data))
    for row in loader:
        step(row)
main()
"""


def drawn(folder: Path, source: str) -> str | None:
    """What the rounds of the first loop that calls step() come from."""
    (folder / "train.py").write_text(HEAD + source)
    tree = ast.parse(HEAD + source)
    loop = next(item for item in ast.walk(tree) if isinstance(item, ast.For) and "step" in ast.unparse(item.body[0]))
    file = str(folder / "train.py")
    slice_ = Slice(SNAPSHOT, [PythonFrame(file=file, line=loop.body[0].lineno)])
    spot = slice_.spot(0)
    assert spot is not None
    found = drawn_size(slice_, {file: tree}, loop.iter, spot)
    return found.words(file) if found is not None else None


@pytest.mark.parametrize(
    ("made", "call"),
    [
        ("kept = rows[np.random.rand(n) < p]", "`np.random.rand`"),
        ("kept = [row for row in rows if random.random() < p]", "`random.random`"),
        ("kept = rows[:random.randint(1, n)]", "`random.randint`"),
        ("kept = rows[torch.from_numpy(np.random.random(n) < p).nonzero()]", "`np.random.random`"),
        ("kept = list(filter(lambda row: random.random() < p, rows))", "`random.random`"),
        (
            "kept = []\n    for row in rows:\n        if random.random() < p:\n            kept.append(row)",
            "`random.random`",
        ),
        ("kept = range(int(np.random.default_rng().integers(n)))", "`np.random.default_rng().integers`"),
    ],
)
def test_draw_that_nothing_seeds_is_of_each_rank(made: str, call: str, tmp_path: Path) -> None:
    """A mask, a condition, a number."""
    said = drawn(tmp_path, TRAIN.format(made))
    assert said is not None
    assert f"({call}) draws on each rank for itself: no line seeds " in said


@pytest.mark.parametrize(
    "made",
    [
        "kept = rows[torch.rand_like(rows) < p]",
        "kept = rows[torch.empty(n).uniform_() < p]",
        "kept = rows[torch.empty(n, dtype=torch.bool).bernoulli_(p)]",
        "kept = rows[:int(torch.poisson(p))]",
    ],
)
def test_draw_of_torch_that_a_line_seeds_by_the_rank(made: str, tmp_path: Path) -> None:
    """Of the size of another tensor, and into a tensor; torch begins with one seed on all ranks."""
    said = drawn(tmp_path, f"torch.manual_seed(7 + rank)\n{TRAIN.format(made)}")
    assert said is not None
    assert said.endswith("draws on each rank for itself: line 3 seeds by the rank")
    assert drawn(tmp_path, TRAIN.format(made)) is None


@pytest.mark.parametrize(
    ("before", "made"),
    [
        ("", "kept = rows[np.random.permutation(n)[:40]]"),
        ("", "kept = random.sample(rows, 40)"),
        ("", "kept = np.random.choice(rows, 40)"),
        ("", "kept = np.random.rand(40)"),
        ("torch.manual_seed(rank)\n", "kept = torch.rand_like(rows)"),
        ("torch.manual_seed(rank)\n", "kept = torch.empty(n).uniform_()"),
        ("", "kept = rows[torch.rand(n) < p]"),
        ("np.random.seed(3)\n", "kept = rows[np.random.rand(n) < p]"),
        ("seed_everything(3)\n", "kept = rows[np.random.rand(n) < p]"),
        ("rng = np.random.default_rng(3)\n", "kept = rows[rng.random(n) < p]"),
        ('context = get_context("fork")\n', "kept = rows[np.random.rand(n) < p]"),
        ("Process(target=train).start()\n", "kept = rows[np.random.rand(n) < p]"),
        ("", "kept = rows[rows > p]"),
        ("", "kept = [row + random.random() for row in rows]"),
    ],
)
def test_draws_that_leave_as_many_or_are_alike(before: str, made: str, tmp_path: Path) -> None:
    """The look-alikes: as many whatever is drawn, one seed on all ranks (torch begins with one), values alone."""
    assert drawn(tmp_path, before + TRAIN.format(made)) is None


def test_generator_that_is_handed_to_a_data_set_is_followed_to_its_seed(tmp_path: Path) -> None:
    """Of two data sets of one class, that of the loop."""
    source = DATA.replace("{mask}", "rng.random(len(rows)) < p")
    for seed in ("seed + rank", 'seed + int(os.environ["RANK"])', "seed + dist.get_rank()"):
        said = drawn(tmp_path, source.replace("{seed}", seed))
        assert said == "line 6 (`rng.random`) draws on each rank for itself: line 10 seeds by the rank"
    assert drawn(tmp_path, source.replace("{seed}", "seed")) is None


def test_values_that_are_chosen_at_random_select_other_numbers_of_rows(tmp_path: Path) -> None:
    """Through a method that returns the data set itself; the seed of torch's own generator is no seed of numpy."""
    assert drawn(tmp_path, SUBSET) == "line 8 (`np.random.choice`) draws on each rank for itself: no line seeds `numpy`"
    assert drawn(tmp_path, SUBSET.replace("def main():\n", "def main():\n    np.random.seed(0);")) is None


def test_rows_that_a_stream_leaves_out(tmp_path: Path) -> None:
    """Behind a `continue` of its own `__iter__`."""
    assert drawn(tmp_path, STREAM) == "line 6 (`random.random`) draws on each rank for itself: no line seeds `random`"
    assert drawn(tmp_path, STREAM.replace("random.random() > 0.5", "row is None")) is None


def test_library_that_a_function_seeds_by_the_rank(tmp_path: Path) -> None:
    """The line that calls the function seeds nothing itself; a line below that seeds all alike does."""
    source = "def seed_all(seed, rank):\n    torch.manual_seed(seed + rank)\n" + TRAIN.format(
        "kept = rows[torch.rand(n) < p]"
    )
    source += "seed_all(3, rank)\n"
    assert drawn(tmp_path, source) == "line 6 (`torch.rand`) draws on each rank for itself: line 4 seeds by the rank"
    assert drawn(tmp_path, source + "torch.manual_seed(0)\n") is None
