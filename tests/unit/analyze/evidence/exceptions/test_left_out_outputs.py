"""An output of the model's forward that the loss leaves out: by one line, or by what is not known."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.exceptions.unused_layers import unused_layer
from pytracer.report.job import PythonFrame

MODEL = """import losses
class Net(nn.Module):
    def __init__(self):
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)
    def forward(self, x):
        hidden = self.body(x)
        made = self.head(hidden)
        {0}
def mixed(step, first, second):
    if step < 24:
        return first + 0.1 * second
    return second
def reported(first, second):
    print(first.item())
    return second.mean()
class Loss(nn.Module):
    def forward(self, out, y):
        return F.mse_loss(out["other"], y)
"""
TWO = "return made, hidden.mean()"
NAMED = 'return {"made": made, "other": hidden}'
STEP = """def step(model, x, y, n):
    {0}
"""
MAIN = """def main():
    model = DDP(Net())
    for n in range(40):
        {0}
"""
CALLED = "step(model, x, y, n)"
DEFAULT = "keep"


def said(
    folder: Path, step: list[str], forward: str = TWO, main: str = CALLED, class_: str = "Net", line: int | None = None
) -> str | None:
    """The words, of a model that failed in the first line of `step`; the model's file has the losses too."""
    model = MODEL.replace("{0}", forward)
    body = STEP.replace("{0}", "\n    ".join(step))
    outer = MAIN.replace("{0}", main.replace("\n", "\n        "))
    file = folder / "train.py"
    file.write_text(model + body + outer + "main()\n", encoding="utf-8")
    first = model.count("\n") + 2
    calls = model.count("\n") + body.count("\n") + 4
    frames = [
        PythonFrame(function="step", file=str(file), line=first if line is None else first + line),
        PythonFrame(function="main", file=str(file), line=calls),
        PythonFrame(function="<module>", file=str(file), line=calls + main.count("\n") + 1),
    ]
    module = SimpleNamespace(data=SimpleNamespace(class_=class_, module=class_))
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9, recorded=lambda _: [module])
    view: Any = SimpleNamespace(
        process=SimpleNamespace(snapshot=snapshot), exception_stack_of_program=frames, exception=None
    )
    found = unused_layer(view, ["head.weight", "head.bias"])
    return found.reason if found is not None else None


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (
            ["a, b = model(x)", "c = F.mse_loss(a, y)", "loss = mixed(n, c, b)", "loss = loss / 4", "loss.backward()"],
            "line 13 (`return second`, behind `if step < 24` of line 11) leaves `a` out of the loss",
        ),
        (
            ["a, b = model(x)", "loss = reported(a, b)", "loss.backward()"],
            "line 16 (`return second.mean()`) leaves `a` out of the loss",
        ),
        (
            ["a, b = model(x)", "loss = F.mse_loss(b, y)", "(loss / 2).backward()"],
            "line 22 (`loss = F.mse_loss(b, y)`) leaves `a` out of the loss",
        ),
        (["_, b = model(x)", "b.backward()"], "line 22 (`b.backward()`) leaves `_` out of the loss"),
        (
            [
                "a, b = model(x)",
                "loss = b",
                "if n < 24:",
                "    loss = loss + a.mean()",
                "scaler.scale(loss).backward()",
            ],
            "line 22 (`loss = b`) leaves `a` out of the loss",
        ),
        (
            ["a, b = model(x)", "loss = a.sum() + b if n < 24 else b", "accelerator.backward(loss)"],
            "line 22 (`loss = a.sum() + b if n < 24 else b`) leaves `a` out of the loss",
        ),
    ],
    ids=["branch of a function", "function", "line", "backward", "added below an if", "expression"],
)
def test_line_that_leaves_the_output_out_is_named(step: list[str], words: str, tmp_path: Path) -> None:
    """With what the program calls the output."""
    assert said(tmp_path, step) == words


def test_part_of_a_dict_and_a_module_of_losses_are_followed(tmp_path: Path) -> None:
    """The forward of the module takes another part."""
    step = ["out = model(x)", "loss = Loss()(out, y)", "loss.backward()"]
    assert said(tmp_path, step, NAMED) == (
        "line 19 (`return F.mse_loss(out['other'], y)`) leaves `out['made']` out of the loss"
    )


def test_loss_is_followed_into_the_caller(tmp_path: Path) -> None:
    """Which calls backward()."""
    main = "a, b = step(model, x, y, n)\nloss = b * 2\nloss.backward()"
    words = said(tmp_path, ["return model(x)"], main=main)
    assert words is not None and "(`loss = b * 2`) leaves `output 0` out of the loss" in words


@pytest.mark.parametrize(
    ("step", "forward", "class_"),
    [
        (["a, b = model(x)", "(a.mean() + b).backward()"], TWO, "Net"),
        (["a, b = model(x)", "loss = losses.of(a, b)", "loss.backward()"], TWO, "Net"),
        (["a, b = model(x)", "loss = sum(v for v in [a, b])", "loss.backward()"], TWO, "Net"),
        (["a, b = model(x)", "loss = b + a.detach()", "loss.backward()"], TWO, "Net"),
        (["a, b = model(x)", "self.kept = a", "loss = b + self.more()", "loss.backward()"], TWO, "Net"),
        (["a, b = model(x)", "c = a", "if n < 3:", "    c = b", "if n > 7:", "    c = 2 * b", "c.backward()"],
         TWO, "Net"),
        (["a, b = model(x)", "def more():", "    return a + b", "loss = more()", "loss.backward()"], TWO, "Net"),
        (["a, b = model(x)", "parts = []", "parts.append(a)", "loss = b + sum(parts)", "loss.backward()"], TWO, "Net"),
        (["a, b = model(x)", "b.backward(retain_graph=True)", "a.sum().backward()"], TWO, "Net"),
        (["a, b = model(x)", "loss = b", "loss.backward()"], "return made.detach(), hidden", "Net"),
        (["a, b = model(x)", "loss = b", "loss.backward()"], "return made, made + hidden", "Net"),
        (["a, b = model(x)", "loss = b", "loss.backward()"], TWO, "Other"),
        (["a = model(x)", "loss = a", "loss.backward()"], "return made + hidden", "Net"),
    ],
    ids=[
        "in the loss", "not followed", "comprehension", "detach", "kept", "two lines", "closure", "list", "two losses",
        "no gradient in forward", "in both outputs", "another model", "one output",
    ],
)  # fmt: skip
def test_nothing_is_named_where_the_source_does_not_show_it(
    step: list[str], forward: str, class_: str, tmp_path: Path
) -> None:
    """The look-alikes."""
    assert said(tmp_path, step, forward, class_=class_) is None
