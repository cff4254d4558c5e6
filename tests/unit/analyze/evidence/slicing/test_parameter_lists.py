"""Two lines that list an optimizer's parameters in different orders; what lists them alike, or others', is none."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.slicing.parameter_lists import parameter_lists

FILE = "/job/train.py"
SPLIT = "[p for p in params if p.ndim > 1] + [p for p in params if p.ndim < 2]"
BY_SETTING = f"""def listed(model, cfg):
    params = list(model.parameters())
    if cfg.split:
        params = {SPLIT}
    return params

class Session:
    def __init__(self, model, cfg):
        self.optim = torch.optim.SGD(listed(model, cfg), lr=1, fused=True)
"""
TWO = """def first(model):
    optimizer = optim.Adam({}, fused=True)

def second(model):
    optimizer = optim.Adam({}, fused=True)
"""
GROUPED = """def first(model):
    decay, rest = [], []
    for p in model.parameters():
        (decay if p.ndim > 1 else rest).append(p)
    groups = [{"params": decay}, {"params": rest, "weight_decay": 0}]
    optimizer = optim.AdamW(groups, fused=True)

def second(model):
    optimizer = optim.AdamW(params=model.parameters(), fused=True)
"""
BACK: Any = SimpleNamespace(argument=lambda *given: None)


def lists(text: str, optimizer: str = "optimizer") -> tuple[int, int, str | None] | None:
    found = parameter_lists({FILE: ast.parse(text)}, BACK, optimizer)
    if found is None:
        return None
    return found.one.line, found.other.line, ast.unparse(found.test) if found.test is not None else None


def test_line_that_a_setting_selects_is_named_with_it() -> None:
    assert lists(BY_SETTING, "session.optim") == (2, 4, "cfg.split")


@pytest.mark.parametrize(
    "other",
    [
        "sorted(model.parameters(), key=len)",
        "list(reversed(list(model.parameters())))",
        "list(model.parameters())[::-1]",
        "[p for _, p in sorted(model.named_parameters())]",
        "list(model.head.parameters()) + list(model.body.parameters())",
        "[*model.head.parameters(), *model.body.parameters()]",
    ],
)
def test_orders_of_two_optimizers_of_one_name_are_told_apart(other: str) -> None:
    assert lists(TWO.format("model.parameters()", other)) == (2, 5, None)
    assert lists(TWO.format(other, "[p for p in model.parameters() if p.requires_grad]")) == (5, 2, None)


MADE = """def optimizer_of(params, decay):
    params = [p for p in params if p.requires_grad]
    if decay > 0:
        params = large + small
    return torch.optim.AdamW(params, fused=True)

class Trainer:
    def __init__(self, net):
        self.opt = optimizer_of(net.parameters(), 0.1)
"""


def test_function_that_returns_the_optimizer_is_followed() -> None:
    back: Any = SimpleNamespace(argument=lambda name, spot: (spot.call[0].args[0], spot.call[1]))
    found = parameter_lists({FILE: ast.parse(MADE)}, back, "trainer.opt")
    assert found is not None and (found.one.line, found.other.line) == (9, 4)
    assert parameter_lists({FILE: ast.parse(MADE)}, back, "trainer.other") is None


def test_groups_of_lists_that_a_loop_fills_are_an_order_of_their_own() -> None:
    assert lists(GROUPED) == (9, 5, None)


@pytest.mark.parametrize(
    "text",
    [
        TWO.format("model.parameters()", "model.parameters()"),
        TWO.format("generator.parameters()", "critic.parameters()"),  # of two models, alike
        TWO.format("sorted(model.parameters())", "sorted(model.parameters())").replace("second", "third"),
        TWO.format("model.parameters()", SPLIT) + TWO.format("model.parameters()", "sorted(model.parameters())"),
        "optimizer = optim.Adam(model.parameters())\nother = optim.Adam(sorted(model.parameters()))\n",
    ],
    ids=["alike", "two models", "both sorted", "three orders", "another optimizer"],
)
def test_lists_that_are_alike_or_not_known_are_not_named(text: str) -> None:
    assert lists(text) is None
