"""The line that keeps what a loop makes, by the source and the line that allocated it; and what keeps nothing."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.ends.keeping_lines import KeepingLine, keeping_line
from pytracer.report.job import PythonFrame

HISTORY = """
history = []
for step in range(9):
    logits = model(x)  # made
    loss = criterion(logits, y)
    loss.backward()
    {store}
"""
EVALUATION = """
def evaluate(model, loader):
    total, seen = 0, []
    {head}
        for x in loader:
            out = model(x)  # made
            loss = criterion(out)
            {store}
    return total
def train(loss):
    loss.backward()
"""
ATTRIBUTE = """
class Runner:
    def __init__(self):
        self.seen = []
    def {other}(self):
        self.seen = []
    def run(self):
        for x in self.data:
            out = self.model(x)  # made
            self.seen.append(out)
"""
SUM = """
def validate(loader):
    total = 0.0
    for x in loader:
        total += {value}  # made
    return total
"""
FORWARD = """
class Net(nn.Module):
    def forward(self, x):
        x = self.fc(x)  # made
        return x
net = Net()
kept = []
for x in batches:
    out = net(x)
    kept.append({store})
"""


def found(folder: Path, source: str) -> KeepingLine | None:
    """For the line with `# made`."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "# made" in text)
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, argv=("train.py",), environment={})
    return keeping_line(snapshot, PythonFrame(function="f", file=str(file), line=line))


@pytest.mark.parametrize(
    ("source", "subject"),
    [
        (HISTORY.format(store="history.append(logits)"), "line 7 keeps each `logits` in `history`"),
        (
            HISTORY.format(store="history.append({'loss': loss, 'out': logits.detach()})"),
            "line 7 keeps each `logits` in `history`",
        ),
        (HISTORY.format(store="history += [(step, logits[:, 0])]"), "line 7 keeps each `logits` in `history`"),
        (HISTORY.format(store="history[step] = logits.cpu()"), "line 7 keeps each `logits` in `history`"),
        (
            EVALUATION.format(head="if True:", store="total += loss"),
            "line 8 adds up `loss` with the graphs of all rounds",
        ),
        (EVALUATION.format(head="if True:", store="seen.append(loss)"), "line 8 keeps each `loss` with its graph"),
        (
            EVALUATION.format(head="with torch.no_grad():", store="seen.append(out)"),
            "line 8 keeps each `out` in `seen`",
        ),
        (
            ATTRIBUTE.replace("        self.seen = []\n    def run", "        pass\n    def run").format(other="end"),
            "line 10 keeps each `out` in `self.seen`",
        ),
        (SUM.format(value="criterion(model(x))"), "line 5 adds up `criterion(model(x))` with the graphs of all rounds"),
        (
            "kept = []\ndef check(x):\n    value = model(x).pow(2).mean()  # made\n    kept.append(value)\n",
            "line 4 keeps each `value` with its graph",
        ),
        (
            EVALUATION.format(head="if True:", store='results["mse"] += ((out - y) ** 2).mean() * len(x)').replace(
                "total, seen = 0, []", 'results = {"mse": 0}'
            ),
            "line 8 adds up `((out - y) ** 2).mean() * len(x)` with the graphs of all rounds",
        ),
        (FORWARD.format(store="out"), "line 10 keeps each `out` in `kept`"),
        ("cache = {}\nfor n in order:\n    cache[n] = load(n)  # made\n", "that line keeps each `load(n)` in `cache`"),
    ],
)
def test_line_that_keeps_results_is_named(source: str, subject: str, tmp_path: Path) -> None:
    """As it is, in a dict, as a view, or by its graph."""
    result = found(tmp_path, source)
    assert result is not None
    assert result.subject == subject


@pytest.mark.parametrize(
    "source",
    [
        HISTORY.format(store="history.append(loss.item())"),
        HISTORY.format(store="history.append(loss)"),  # backward() has freed what its graph held
        HISTORY.format(store="history.append(logits.mean().detach())"),  # small, and new
        HISTORY.format(store="history.append(logits.shape)"),
        HISTORY.format(store="history.append(logits)\n    history = history[-9:]"),
        HISTORY.format(store="history.append(logits)\n    if step % 5 == 0:\n        history.clear()"),
        HISTORY.format(store="history.append(logits)\n    history.pop(0)"),
        HISTORY.replace("history = []", "history = deque(maxlen=4)").format(store="history.append(logits)"),
        HISTORY.format(store="history['last'] = logits"),
        EVALUATION.format(head="with torch.no_grad():", store="total += loss"),
        SUM.format(value="criterion(model(x)).item()"),
        SUM.format(value="criterion(model(x)).detach()"),
        EVALUATION.format(head="if True:", store="total += loss.item()"),
        EVALUATION.format(head="if True:", store="total += loss\n            train(loss)"),
        EVALUATION.format(head="if True:", store="total += (out.argmax(1) == y).sum()"),  # no graph
        EVALUATION.format(head="if True:", store="total += out.mean().item() * len(x)"),
        EVALUATION.format(head="with torch.no_grad():", store="total += (out - y).abs().mean()"),
        EVALUATION.format(head="if True:", store="seen = []\n            seen.append(out)"),
        ATTRIBUTE.format(other="reset"),
        FORWARD.format(store="out.mean().item()"),
        "def step(x):\n    seen = []\n    out = model(x)  # made\n    seen.append(out)\n",
    ],
)
def test_nothing_is_named_where_results_are_let_go(source: str, tmp_path: Path) -> None:
    """Numbers, what is cleared or bounded, what backward() has freed."""
    assert found(tmp_path, source) is None


CACHE = """
class Scenes(Dataset):
    def __init__(self, root):
        self.names, self.images = sorted(os.listdir(root)), {{}}
    def {asked}(self, index):
        name = self.names[index]
        if name not in self.images:
            self.load(name)
        return self.images[name]
    def load(self, name):
        image = torch.from_numpy(np.load(name)).float()  # made
        self.images[name] = image
"""


def test_items_that_a_data_set_keeps_are_to_be_loaded_anew(tmp_path: Path) -> None:
    """Not to be made a number: they are what is read."""
    kept = found(tmp_path, CACHE.format(asked="__getitem__"))
    assert kept is not None
    assert kept.subject == "line 12 keeps each `image` in `self.images`"
    assert "keeps each item that the data set was asked for: load it anew each time" in kept.advice
    other = found(tmp_path, CACHE.format(asked="predict"))
    assert other is not None
    assert "data set" not in other.advice
