"""An optimizer of a frozen model's parameters: the line that freezes them, and the module that is not frozen."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from tests.unit.analyze.evidence.test_failing import of_program

HELPER = """class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
    def forward(self, x):
        return self.body(x)
class Tuned(nn.Module):
    def __init__(self, trunk):
        super().__init__()
        self.trunk = trunk
        self.head = nn.Linear(4, 2)
    def forward(self, x):
        return self.head(self.trunk(x))
def toggle(module, on=True):
    for p in module.parameters():
        p.requires_grad = on
def build():
    base = Trunk()
    toggle(base, on=False)
    return base, Tuned(base)
def main():
    base, net = build()
    loss = nn.CrossEntropyLoss()
    return torch.optim.SGD(filter(lambda p: p.requires_grad, base.parameters()), lr=0.1)
main()
"""
OBJECT = """class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 3)
    def forward(self, x):
        return self.rnn(x)
    def freeze(self):
        for _, weight in self.named_parameters():
            weight.requires_grad_(False)
class Trainer:
    def __init__(self):
        self.encoder = Encoder()
        self.encoder.freeze()
        self.probe = nn.Sequential(nn.Linear(3, 2), nn.Softmax(-1))
        self.weights = [p for p in self.encoder.parameters() if p.requires_grad]
    def begin(self):
        self.optimizer = torch.optim.Adam(self.weights, lr=1e-3)
Trainer().begin()
"""
ALONE = """def main():
    net = nn.Linear(2, 2)
    net.requires_grad_(False)
    return torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
main()
"""


def words(folder: Path, source: str) -> tuple[str, str]:
    """The headline's clause, and the advice."""
    return (
        str(of_program(folder, source, lambda *given: explained(*given).subject)),
        str(of_program(folder, source)),
    )


def test_module_that_is_made_of_the_frozen_one_is_named(tmp_path: Path) -> None:
    """With the call that freezes, by an argument of its function."""
    subject, advice = words(tmp_path, HELPER)
    assert (
        subject
        == "all parameters of `base` are frozen by line 19 (`toggle(base, on=False)`), and `net` has layers of its own"
    )
    assert "line 19 (`toggle(base, on=False)`) freezes all of them, and `net` (line 20: `Tuned(base)`) has" in advice
    assert "give the optimizer `net.parameters()`" in advice


def test_module_beside_it_is_named_of_an_object(tmp_path: Path) -> None:
    """Frozen by its own method, and the list is made in __init__."""
    subject, advice = words(tmp_path, OBJECT)
    assert subject.startswith("all parameters of `self.encoder` are frozen by line 13 (`self.encoder.freeze()`), and ")
    assert "give the optimizer `self.probe.parameters()`" in advice


def test_frozen_one_alone_is_to_be_thawed(tmp_path: Path) -> None:
    """No other module is there."""
    subject, advice = words(tmp_path, ALONE)
    assert subject == "all parameters of `net` are frozen by line 3 (`net.requires_grad_(False)`)"
    assert "Leave those that shall be trained with requires_grad=True" in advice


def test_module_that_is_frozen_too_is_not_offered(tmp_path: Path) -> None:
    """Nor is a loss, or another one that has no layers."""
    source = HELPER.replace("    base, net = build()\n", "    base, net = build()\n    toggle(net, on=False)\n")
    subject, advice = words(tmp_path, source)
    assert "`net`" not in subject and "net.parameters()" not in advice


@pytest.mark.parametrize(
    "chosen",
    [
        "[p for p in net.parameters() if p.ndim > 3]",  # another test
        "(p for p in net.children() if p.requires_grad)",  # of no parameters
    ],
)
def test_another_choice_is_not_explained_so(chosen: str, tmp_path: Path) -> None:
    """It asks for something else."""
    source = ALONE.replace("[p for p in net.parameters() if p.requires_grad]", chosen)
    subject, advice = words(tmp_path, source)
    assert "frozen by" not in subject and "freezes all" not in advice


def test_line_that_freezes_another_module_is_not_blamed(tmp_path: Path) -> None:
    """Some other line thaws or freezes it in a way that is not followed."""
    source = HELPER.replace("toggle(base, on=False)", "other = Trunk(); toggle(other, on=False); thaw(base)")
    source = source.replace("def build", "def thaw(module):\n    [setattr(p, 'requires_grad', False) for p in "
                            "module.parameters()]\ndef build")  # fmt: skip
    subject, advice = words(tmp_path, source)
    assert "toggle" not in subject and "toggle" not in advice
    assert subject == "no parameter of `base` passes `p.requires_grad`, and `net` has layers of its own"
