"""Of a value of a batch, the line of the data set that made it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.analyze.evidence.test_failing import of_program

DATA = """
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, random_split
class Reviews(Dataset):
    def __init__(self, n):
        self.n = n
    def __len__(self):
        return self.n
    def __getitem__(self, i):
        stars = torch.tensor(i % 5 + 1)
        return torch.rand(6), stars
"""
TRAIN = """
def train(loader):
    model = nn.Linear(6, 5)
    for x, y in loader:
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
"""
HERE = "Reviews.__getitem__, line 9: `stars = torch.tensor(i % 5 + 1)`"


@pytest.mark.parametrize(
    "end",
    [
        "train(DataLoader(Reviews(20), batch_size=5))",
        "data = Reviews(20)\nrows, rest = random_split(data, [15, 5])\ntrain(DataLoader(rows, batch_size=5))",
        "train(loader=DataLoader(dataset=Subset(Reviews(20), list(range(10))), batch_size=5, num_workers=0))",
    ],
    ids=["itself", "a part by random_split", "a Subset"],
)
def test_target_of_a_batch_is_followed_to_the_data_set(end: str, tmp_path: Path) -> None:
    """Through the parameter, the loader and what shares the data out."""
    assert HERE in (of_program(tmp_path, DATA + TRAIN + end) or "")


def test_target_is_followed_through_moves_and_tuples(tmp_path: Path) -> None:
    """`batch` as a whole, taken apart later, and brought to a device."""
    train = """
def step(model, batch, device):
    x, y = batch
    x, y = x.to(device), y.to(device)
    out = model(x)
    return nn.functional.cross_entropy(out, y)
for number, batch in enumerate(DataLoader(Reviews(20), batch_size=5)):
    step(nn.Linear(6, 5), batch, "cpu")
"""
    assert HERE in (of_program(tmp_path, DATA + train) or "")


def test_key_of_a_batch_is_followed_to_the_collate_function(tmp_path: Path) -> None:
    """It has the last word on what a batch is."""
    train = """
def join(rows):
    stars = torch.stack([row[1] for row in rows])
    return {"x": torch.stack([row[0] for row in rows]), "stars": stars}
for batch in DataLoader(Reviews(20), batch_size=5, collate_fn=join):
    y = batch["stars"]
    out = nn.Linear(6, 5)(batch["x"])
    nn.functional.cross_entropy(out, y)
"""
    assert "(join, line 13: `stars = torch.stack(" in (of_program(tmp_path, DATA + train) or "")


def test_tensor_data_set_is_followed_to_its_tensor(tmp_path: Path) -> None:
    """By the place of the tensor."""
    end = "goal = torch.arange(1, 21) % 6\ntrain(DataLoader(TensorDataset(torch.rand(20, 6), goal), batch_size=5))"
    assert "(line 17: `goal = torch.arange(1, 21) % 6`)" in (of_program(tmp_path, DATA + TRAIN + end) or "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "        return torch.rand",
            "        if i == 3:\n            return torch.rand(6), stars + 0\n        return torch.rand",
        ),
        ("for x, y in loader:", "for x, y in loader:\n        y = y + 1"),
    ],
    ids=["two returns", "another value since"],
)
def test_data_set_is_not_named_where_another_line_may_have_made_it(old: str, new: str, tmp_path: Path) -> None:
    """The loop, or that line, is named then."""
    program = (DATA + TRAIN + "train(DataLoader(Reviews(20), batch_size=5))").replace(old, new)
    found = of_program(tmp_path, program) or ""
    assert "has 5 classes" in found and "__getitem__" not in found
