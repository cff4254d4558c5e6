"""Parameters that DDP saw ready twice: which checkpoint() or forward it is, and what is left alone."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.decode.types.journal import Caller, Module
from pytracer.report.job import ExceptionReport, PythonFrame

MESSAGE = "Expected to mark a variable ready only once. This error is caused by one of the following reasons: 1) Use."
NAMED = f"{MESSAGE} Parameter at index 3 with name blocks.2.weight has been marked as ready twice."
SOURCE = """class Net(nn.Module):
    def forward(self, x, y=0):
        for block in self.blocks:
            {first}
        {second}
        return x
net = DDP(Net())
for x in data:
    {before}
    loss = net(x).sum()
    loss.backward()
"""
LIBRARY = PythonFrame(function="backward", file="/x/site-packages/torch/autograd/graph.py", line=1)


def said(
    folder: Path, message: str = NAMED, settings: dict[str, bool | float] | None = None, **parts: str
) -> Explanation:
    """Of a program with those lines, on a rank whose DDP has those settings."""
    file = folder / "train.py"
    texts = {"first": "x = block(x)", "second": "pass", "before": "pass", **parts}
    file.write_text(SOURCE.format(**texts), encoding="utf-8")
    held: dict[str, bool | float] = settings or {"find_unused_parameters": True, "static_graph": False}
    usual: dict[str, bool | float] = {"find_unused_parameters": True, "static_graph": False}
    held = usual if settings is None else settings
    module = Module("net", (), settings=held, caller=Caller("<module>", str(file), 7))
    snapshot: Any = SimpleNamespace(
        argv=(),
        created_wall_ns=time.time_ns() + 10**9,
        recorded=lambda kind: [SimpleNamespace(data=module)] * (kind is Module),
    )
    frames = [LIBRARY, PythonFrame(function="<module>", file=str(file), line=11)]
    return explained(snapshot, ExceptionReport(type="RuntimeError", message=message), frames)


@pytest.mark.parametrize(
    "call", ["checkpoint(block, x, use_reentrant=True)", "checkpoint.checkpoint(block, x)", "checkpoint(block, x)"]
)
def test_reentrant_checkpoint_below_unused_parameters(call: str, tmp_path: Path) -> None:
    """It is reentrant also where the call does not say so."""
    found = said(tmp_path, first=f"x = {call}")
    assert (
        found.subject
        == "the reentrant checkpoint() of line 4 does not go with DDP(find_unused_parameters=True) (line 7)"
    )
    assert (
        found.words is not None and "Write checkpoint(..., use_reentrant=False) at line 4; or leave out" in found.words
    )


@pytest.mark.parametrize(
    ("parts", "where"),
    [
        ({"first": "x = checkpoint(self.mix, x)"}, "in each round of the loop of line 3 (line 4)"),
        ({"second": "x = checkpoint(self.mix, x); y = checkpoint(self.mix, y)"}, "twice (line 5 and line 5)"),
    ],
)
def test_module_that_several_checkpoints_run(parts: dict[str, str], where: str, tmp_path: Path) -> None:
    """Without a search for unused parameters."""
    found = said(tmp_path, MESSAGE, {"find_unused_parameters": False}, **parts)
    assert found.subject == f"`self.mix` runs in reentrant checkpoint() {where}"


def test_two_forwards_before_one_backward(tmp_path: Path) -> None:
    """The last one's result alone is searched."""
    found = said(tmp_path, before="other = net(x + 1)")
    assert found.subject is not None and "net() is called at lines 9 and 10 before one backward()" in found.subject


def test_two_forwards_beside_a_use_outside_of_them_are_left_to_the_table(tmp_path: Path) -> None:
    """The named parameter is read by `.module`, which alone gives it a second gradient."""
    found = said(tmp_path, before="other = net(x + 1) + net.module.blocks[2].weight.norm()")
    assert (found.words, found.failure) == (None, None)


ROUNDS = """class Net(nn.Module):
    def forward(self, x, task):
        return self.heads[task](x)
def one(model, x):
    return model(x, 0).sum()
class Trainer:
    def __init__(self):
        self.model = DDP(Net())
    def part(self, x):
        return self.model(x, 1).sum()
    def step(self, model, parts):
        {body}
        loss.backward()
def main():
    net = DDP(Net())
    trainer = Trainer()
    for parts in data:
        trainer.step(net, parts)
main()
"""


def rounds(folder: Path, body: str) -> Explanation:
    """Of a step in a method, with the forwards in `body`."""
    file = folder / "train.py"
    text = ROUNDS.format(body=body.replace("\n", "\n        "))
    file.write_text(text, encoding="utf-8")
    module = Module(
        "net", (), settings={"find_unused_parameters": True, "static_graph": False}, caller=Caller("main", str(file), 8)
    )
    snapshot: Any = SimpleNamespace(
        argv=(),
        created_wall_ns=time.time_ns() + 10**9,
        recorded=lambda kind: [SimpleNamespace(data=module)] * (kind is Module),
    )
    line = {words.strip(): n for n, words in enumerate(text.split("\n"), 1)}
    places = (("step", "loss.backward()"), ("main", "trainer.step(net, parts)"), ("<module>", "main()"))
    frames = [PythonFrame(function=name, file=str(file), line=line[words]) for name, words in places]
    return explained(snapshot, ExceptionReport(type="RuntimeError", message=MESSAGE), [LIBRARY, *frames])


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (
            "all_ = []\nfor task, x in enumerate(parts):\n    all_.append(model(x, task).sum())\nloss = sum(all_)",
            "model() is called in each round of the loop of line 13 (line 14)",
        ),
        ("loss = sum(model(x, n).sum() for n, x in enumerate(parts))", "model() is called in each round (line 12)"),
        (
            "loss = 0\nfor x in parts:\n    loss = loss + one(model, x)",
            "model() is called in each round of the loop of line 13 (line 14), in one()",
        ),
        (
            "a = self.part(parts[0])\nb = self.part(parts[1])\nloss = a + b",
            "self.model() is called at lines 12 and 13, in part()",
        ),
        ("a, b = model(parts[0], 0), model(parts[1], 1)\nloss = (a + b).sum()", "model() is called 2 times at line 12"),
    ],
)
def test_forwards_of_a_loop_or_of_helpers_before_one_backward(body: str, where: str, tmp_path: Path) -> None:
    """The wrapped model comes in as an argument, or is kept by the object."""
    found = rounds(tmp_path, body)
    assert found.subject is not None
    assert found.subject.startswith(f"{where} before one backward(), below DDP(find_unused_parameters=True)")


@pytest.mark.parametrize(
    "body",
    [
        "loss = model(parts, 0).sum()",
        "if len(parts) > 1:\n    out = model(parts, 0)\nelse:\n    out = model(parts, 1)\nloss = out.sum()",
        "for x in parts:\n    y = encode(x)\nloss = model(y, 0).sum()",
        "for x in parts[:-1]:\n    model(x, 0).sum().backward()\nloss = model(parts[-1], 0).sum()",
        "with torch.no_grad():\n    a = model(parts[0], 0)\nloss = (model(parts[1], 0) - a).sum()",
        "loss = sum(x.sum() for x in model(parts, 0))",
        "a = model(parts[0], 0).detach()\nloss = (model(parts[1], 0) - a).sum()",
        "@torch.no_grad()\ndef of(m, x):\n    return m(x, 0)\na = of(model, parts[0])\nloss = model(parts[1], a).sum()",
    ],
)
def test_one_forward_with_a_graph_is_no_reason(body: str, tmp_path: Path) -> None:
    """In one of two branches, outside of the loop, with a backward of its own, or without a graph."""
    found = rounds(tmp_path, body)
    assert (found.words, found.failure) == (None, None)


@pytest.mark.parametrize(
    ("first", "ran"),
    [
        ("x = checkpoint(block, x) if self.saves else self.head(block(x))", False),
        ("x = self.head(checkpoint(lambda y: block(y), x))", False),
        ("inner = self.head[0]; x = checkpoint(inner, x)", True),
        ("x = checkpoint(lambda y: self.head(block(y)), x)", True),
    ],
)
def test_checkpoint_that_does_not_run_the_parameter_is_not_the_reason(first: str, ran: bool, tmp_path: Path) -> None:
    """Two forwards are, where the function of the checkpoint() only names the parameter's module beside it."""
    found = said(tmp_path, NAMED.replace("blocks.2", "head.0"), first=first, before="other = net(x + 1)")
    assert found.subject is not None and ("reentrant checkpoint() of line 4" in found.subject) == ran
    assert ("net() is called at lines 9 and 10" in found.subject) == (not ran)


@pytest.mark.parametrize(
    ("settings", "message", "parts"),
    [
        (None, NAMED, {"first": "x = checkpoint(block, x, use_reentrant=False)"}),
        (None, NAMED.replace("blocks", "head"), {"first": "x = checkpoint(block, x)"}),
        (None, NAMED, {"before": "net(x).sum().backward()"}),
        (None, NAMED, {"before": "other(x)"}),
        (None, NAMED, {"before": "with torch.no_grad(): other = net(x)"}),
        ({}, NAMED, {"first": "x = checkpoint(block, x)"}),
        ({"find_unused_parameters": True, "static_graph": True}, NAMED, {"first": "x = checkpoint(block, x)"}),
        ({"find_unused_parameters": False}, NAMED, {"first": "x = checkpoint(block, x)"}),
        ({"find_unused_parameters": False}, NAMED, {"before": "other = net(x)"}),
        (None, "Expected to have finished reduction in the prior iteration", {"first": "x = checkpoint(block, x)"}),
    ],
)
def test_near_cases_are_left_to_the_table(
    settings: dict[str, bool | float] | None, message: str, parts: dict[str, str], tmp_path: Path
) -> None:
    """Not reentrant, another parameter, a backward of its own, settings that are not recorded."""
    found = said(tmp_path, message, settings, **parts)
    assert (found.words, found.failure) == (None, None)
