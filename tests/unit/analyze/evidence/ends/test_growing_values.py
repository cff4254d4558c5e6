"""A state that has the graphs of all rounds, and a file that is read as a whole; and what only looks like them."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.ends.growing_values import carried_state, loaded_file, made_layers
from pytracer.report.job import PythonFrame

CELL = """
from torch import nn
class Tracker(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 3)
    def forward(self, x):
        self.hidden = self.cell({given})  # made
        return self.head(self.hidden)
model = Tracker()
for x in stream:
    out = model(x)
    {more}
"""
LOOP = """
from torch import nn
cell = nn.GRUCell(3, 3)
state = zeros
for x in stream:
    {begin}
    state = cell(x, state)  # made
"""


def place(folder: Path, source: str) -> tuple[Any, PythonFrame]:
    """A process of the program, and the line with `# made`."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "# made" in text)
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, argv=("train.py",), environment={})
    return snapshot, PythonFrame(function="f", file=str(file), line=line)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (CELL.format(given="x, self.hidden", more="pass"), "self.hidden"),
        (LOOP.format(begin="pass"), "state"),
    ],
)
def test_state_that_is_made_of_its_last_value_is_named(source: str, name: str, tmp_path: Path) -> None:
    """Of an object, and of a loop."""
    result = carried_state(*place(tmp_path, source))
    assert result is not None
    assert result.subject == f"`{name}` is made of its own last value, so it keeps the graphs of all rounds"
    assert result.endless


@pytest.mark.parametrize(
    "source",
    [
        CELL.format(given="x, self.hidden.detach()", more="pass"),
        CELL.format(given="x", more="pass"),
        CELL.format(given="x, self.hidden", more="model.hidden = model.hidden.detach()"),
        CELL.format(given="x, self.hidden", more="out.sum().backward()"),  # which would fail, or free it
        "torch.set_grad_enabled(False)\n" + CELL.format(given="x, self.hidden", more="pass"),
        LOOP.format(begin="state = zeros"),
        "@torch.no_grad()\ndef run():\n    pass\n" + LOOP.format(begin="pass"),
    ],
)
def test_no_state_is_named_where_graphs_end(source: str, tmp_path: Path) -> None:
    """Cut, begun anew, freed, or never made."""
    assert carried_state(*place(tmp_path, source)) is None


def test_file_that_is_read_as_a_whole_is_named(tmp_path: Path) -> None:
    """The tensors of one torch.load() are not those of many rounds."""
    result = loaded_file(*place(tmp_path, "import torch\nstate = torch.load(path, map_location='cpu')  # made\n"))
    assert result is not None
    assert result.subject == "torch.load() at line 2 reads all of a file into memory"


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nstate = torch.load(path, mmap=True)  # made\n",
        "import torch\nfor path in paths:\n    kept.append(torch.load(path))  # made\n",
        "import torch\nimport json\nstate = json.load(file)  # made\n",
    ],
)
def test_other_loads_are_no_whole_file(source: str, tmp_path: Path) -> None:
    """Mapped, in a loop, or of another library."""
    assert loaded_file(*place(tmp_path, source)) is None


def test_layers_are_no_results_that_are_kept(tmp_path: Path) -> None:
    """Their weights live as long as the model."""
    source = "import torch.nn as nn\nlayers = []\nfor n in range(9):\n    layers.append({})  # made\n"
    result = made_layers(*place(tmp_path, source.format("nn.Linear(8, 8)")))
    assert result is not None
    assert result.subject == "these are the weights of the layers that line 4 makes"
    assert made_layers(*place(tmp_path, source.format("nn.functional.relu(x)"))) is None


@pytest.mark.parametrize(
    "source",
    [
        LOOP.replace("state = cell(x, state)", "state = torch.roll(state, 1)").format(begin="pass"),
        "import lightning\n" + LOOP.format(begin="pass"),
        (
            "from torch import nn\nclass Net(nn.Module):\n"
            "    def __init__(self):\n        self.layers = nn.ModuleList()\n"
            "    def forward(self, x):\n        for layer in self.layers:\n            x = layer(x)  # made\n"
            "        return x\nnet = Net()\n"
        ),
    ],
)
def test_values_without_weights_and_layers_of_one_call_carry_no_state(source: str, tmp_path: Path) -> None:
    """Plain tensors have no graph; a framework calls backward() itself; forward() begins anew."""
    assert carried_state(*place(tmp_path, source)) is None


@pytest.mark.parametrize(
    "line",
    [
        "loss = nn.CrossEntropyLoss()(model(x), y)  # made",
        "p = nn.Softmax(dim=1)(model(x))  # made",
        "p = nn.Linear(3, 3)(model(x))  # made",
    ],
)
def test_losses_and_activations_make_no_weights(line: str, tmp_path: Path) -> None:
    """What such a line makes are results."""
    assert made_layers(*place(tmp_path, f"from torch import nn\n{line}\n")) is None


@pytest.mark.parametrize(
    "source",
    [
        (
            "import torch\nclass Data:\n    def __getitem__(self, i):\n        x = torch.load(self.paths[i])  # made\n"
            "        return x\n"
        ),
        "import torch\ndef load(path):\n    return torch.load(path)  # made\nshards = [load(p) for p in paths]\n",
        "import torch\nshards = [torch.load(p) for p in paths]  # made\n",
    ],
)
def test_many_small_files_are_no_whole_file(source: str, tmp_path: Path) -> None:
    """One for each sample or shard."""
    assert loaded_file(*place(tmp_path, source)) is None
