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


DDP_FRAME = PythonFrame(function="_pre_forward", file="/venv/torch/nn/parallel/distributed.py", line=1775)
WHOLE = ["head.weight", "head.bias"]


def said(
    folder: Path,
    step: list[str],
    forward: str = TWO,
    main: str = CALLED,
    class_: str = "Net",
    line: int | None = None,
    *,
    model: str = MODEL,
    names: list[str] = WHOLE,
    raised_in: PythonFrame | None = DDP_FRAME,
) -> str | None:
    """The words, of a model that failed in the first line of `step`; the model's file has the losses too."""
    model = model.replace("{0}", forward)
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
    tensors = [SimpleNamespace(fqn=name, role="parameter") for name in ("body.weight", "body.bias", *WHOLE)]
    module = SimpleNamespace(data=SimpleNamespace(class_=class_, module=class_, tensors=tensors))
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9, recorded=lambda _: [module])
    view: Any = SimpleNamespace(
        process=SimpleNamespace(snapshot=snapshot),
        exception_stack=[*([raised_in] if raised_in is not None else []), *frames],
        exception_stack_of_program=frames,
        exception=None,
    )
    found = unused_layer(view, names)
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
            "line 23 (`if n < 24`) may leave `a` out of the loss",
        ),
        (
            ["a, b = model(x)", "loss = a.sum() + b if n < 24 else b", "accelerator.backward(loss)"],
            "line 22 (`loss = a.sum() + b if n < 24 else b`) may leave `a` out of the loss",
        ),
        (
            [
                "a, b = model(x)",
                "c = torch.zeros(())",
                "if use_mask:",
                "    c = F.mse_loss(a, y)",
                "loss = b + c",
                "loss.backward()",
            ],
            "line 23 (`if use_mask`) may leave `a` out of the loss",
        ),
        (
            [
                "a, b = model(x)",
                "try:",
                "    loss = match(a, y) + b",
                "except ValueError:",
                "    loss = b",
                "loss.backward()",
            ],
            "line 24 (`except ValueError`) may leave `a` out of the loss",
        ),
    ],
    ids=[
        "branch of a function",
        "function",
        "line",
        "backward",
        "added below an if",
        "expression",
        "made below an if",
        "except",
    ],
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


ADDED = ["a, b = model(x)", "loss = b"]


@pytest.mark.parametrize(
    ("step", "forward"),
    [
        (
            [
                "out = model(x)",
                "loss = 0",
                "for k, v in out.items():",
                "    loss = loss + F.mse_loss(v, y[k])",
                "loss.backward()",
            ],
            NAMED,
        ),
        (
            ["outs = model(x)", "loss = torch.zeros(())", "for o, t in zip(outs, y):", "    loss += f(o, t)",
             "loss.backward()"],
            TWO,
        ),
        (["a, b = model(x)", "t = 0.0", "for l in [a.mean(), b]:", "    t = t + l", "t.backward()"], TWO),
        (
            [*ADDED, "for k, w in weights.items():", "    if k == 'mask':", "        loss = loss + a.mean()",
             "loss.backward()"],
            TWO,
        ),
        (
            [*ADDED, "for k, w in weights.items():", "    if k == 'mask':", "        loss = loss + a.mean()",
             "        continue", "    loss = loss + w * b", "loss.backward()"],
            TWO,
        ),
        (
            [*ADDED, "for t in range(3):", "    if t == 2:", "        loss = loss + a.mean()", "        break",
             "loss.backward()"],
            TWO,
        ),
    ],
    ids=["dict", "zip", "list", "one way", "continue", "break"],
)  # fmt: skip
def test_loop_that_adds_up_leaves_nothing_out(step: list[str], forward: str, tmp_path: Path) -> None:
    """No rounds at all are no way that the source shows; what only some rounds add is not known."""
    assert said(tmp_path, step, forward) is None


@pytest.mark.parametrize(
    ("step", "more"),
    [
        (["loss = total(a.mean(), b)"], "def total(*losses):\n    return sum(losses)\n"),
        (["loss = total(mask=a.mean(), box=b)"], "def total(**losses):\n    return sum(losses.values())\n"),
        (
            ["parts = {}", "add(parts, F.mse_loss(a, y))", "loss = b + sum(parts.values())"],
            "def add(parts, value):\n    parts['mask'] = 2.0 * value\n",
        ),
        (
            ["keep(a.mean())", "loss = total(b)"],
            "AUX = []\ndef keep(v):\n    AUX.append(v)\ndef total(loss):\n    return loss + sum(AUX)\n",
        ),
        (["bag = losses.Bag()", "bag.log('mask', F.mse_loss(a, y))", "bag.log('box', b)", "loss = bag.total()"], ""),
        (["parts = {}", "parts.setdefault('mask', a.mean())", "loss = b + sum(parts.values())"], ""),
        (["parts = AUX", "parts.append(a.mean())", "loss = total(b)"],
         "AUX = []\ndef total(loss):\n    return loss + sum(AUX)\n"),
        (["if not torch.isfinite(loss := F.mse_loss(a, y) + b):", "    return"], ""),
        (["loss = b", "def add(v):", "    nonlocal loss", "    loss = loss + v", "add(a.mean())"], ""),
        (["def total(v):", "    print(v)", "    return a + b", "loss = total(a)"], ""),
        (["_ = bag.log(a.mean())", "loss = b + bag.total()"], ""),
        (["parts = []", "bag = {'p': parts}", "parts.append(a)", "loss = b + sum(bag['p'])"], ""),
        (["loss_scaler(F.mse_loss(a, y), optimizer)", "loss = b"], ""),
        (["norm = loss_scaler(F.mse_loss(a, y), optimizer)", "loss = b"], ""),
        (["loss = b", "more(model, x)"], "def more(model, x):\n    model(x)[0].mean().backward()\n"),
    ],
    ids=[
        "*args", "**kwargs", "dict", "list of the module", "object", "setdefault", "alias", "walrus", "nonlocal",
        "closure", "result dropped", "held elsewhere", "scaler", "scaler's norm", "model elsewhere",
    ],
)  # fmt: skip
def test_output_that_goes_where_it_is_not_followed_is_not_called_left_out(
    step: list[str], more: str, tmp_path: Path
) -> None:
    """It may be in the loss."""
    assert said(tmp_path, ["a, b = model(x)", *step, "loss.backward()"], model=MODEL + more) is None


def test_closure_made_before_the_call_has_the_output(tmp_path: Path) -> None:
    """It reads what the variable is when it is called."""
    step = ["a, b = model(x)", "loss = total()", "loss.backward()"]
    assert said(tmp_path, ["def total():", "    return a.mean() + b", *step], line=2) is None


@pytest.mark.parametrize(
    ("call", "more"),
    [
        ("accelerator.backward(loss=loss)", ""),
        ("torch.autograd.backward(tensors=[loss, b])", ""),
        ("(loss + b).backward(torch.ones(4))", ""),
        ("backward(scaler, loss)", "def backward(scaler, loss):\n    scaler.scale(loss).backward()\n"),
    ],
)
def test_any_argument_of_backward_may_be_the_loss(call: str, more: str, tmp_path: Path) -> None:
    """By place, by name or in a list; and none is, where all lack the output."""
    assert said(tmp_path, ["a, b = model(x)", "loss = a.mean() + b", call], model=MODEL + more) is None
    words = said(tmp_path, ["a, b = model(x)", "loss = b * 2", call], model=MODEL + more)
    assert words is not None and words.endswith("leaves `a` out of the loss")


@pytest.mark.parametrize(
    ("step", "main", "line"),
    [
        (["if (out := model(x)) is None:", "    return", "loss = out[0] + out[1]", "loss.backward()"], CALLED, 0),
        (["_, b = model(x)", "a, _ = model(flip(x))", "loss = b + F.mse_loss(a, y)", "loss.backward()"], CALLED, 0),
        (["_, b = model(x)", "loss = b + model.module.head(x)", "loss.backward()"], CALLED, 0),
        (
            ["return model(x)"],
            "a, b = step(model, x, y, n)\nc, d = step(model, x, y, n)\nloss = b + c.mean()\nloss.backward()",
            0,
        ),
        (
            ["try:", "    a, b = model(x)", "    loss = b", "    loss.backward()", "except RuntimeError as err:",
             "    raise RuntimeError(f'{err}') from err"],
            CALLED,
            5,
        ),
    ],
    ids=["in a test", "again", "a part of it", "step again", "raised again"],
)  # fmt: skip
def test_nothing_is_named_of_another_call(step: list[str], main: str, line: int, tmp_path: Path) -> None:
    """Of the model, or of the function that calls it; nor where the call is not the one that was followed."""
    assert said(tmp_path, step, main=main, line=line) is None


@pytest.mark.parametrize("raised_in", [None, PythonFrame(function="f", file="/venv/torch/functional.py", line=3)])
def test_nothing_is_named_where_another_line_raised(raised_in: PythonFrame | None, tmp_path: Path) -> None:
    """The program made an exception of DDP's."""
    assert said(tmp_path, [*ADDED, "loss.backward()"], raised_in=raised_in) is None


def test_nothing_is_named_where_a_part_of_the_layer_had_gradients(tmp_path: Path) -> None:
    """What it gives was in the loss then."""
    assert said(tmp_path, [*ADDED, "loss.backward()"]) is not None
    assert said(tmp_path, [*ADDED, "loss.backward()"], names=["head.bias"]) is None


BODY = "        made = self.head(hidden)\n        {0}"


@pytest.mark.parametrize(
    "body",
    [
        "        made = checkpoint(self.head, x, use_reentrant=True)\n        return made, hidden",
        (
            "        made = self.head(hidden)\n        return made, self.mix(hidden, made)\n"
            "    def mix(self, *parts):\n        return torch.cat(parts)"
        ),
        (
            "        outs = {}\n        self.keep(outs, self.head(hidden))\n        return outs, hidden\n"
            "    def keep(self, outs, made):\n        outs['made'] = made"
        ),
        (
            "        made, feats = self.head(hidden), []\n        for k in range(2):\n            if k:\n"
            "                feats.append(made)\n                continue\n            feats.append(hidden)\n"
            "        return made, torch.cat(feats)"
        ),
    ],
    ids=["checkpoint", "*parts", "dict", "continue"],
)
def test_nothing_is_named_where_forward_may_give_it_in_another_output(body: str, tmp_path: Path) -> None:
    """By what is not followed."""
    assert said(tmp_path, [*ADDED, "loss.backward()"], model=MODEL.replace(BODY, body)) is None
