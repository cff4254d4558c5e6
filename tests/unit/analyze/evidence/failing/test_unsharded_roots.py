"""A plain tensor that is a parameter of a module of fully_shard(): left whole by a forward() without a backward()."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

MESSAGE = "aten.copy_.default got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before"
AVERAGED = """class Average:
    def __init__(self, model):
        self.model = model
    def copy_to(self, target):
        for avg, p in zip(self.model.parameters(), target.parameters()):
            p.copy_(avg)  # failed
@torch.no_grad()
def evaluate(net, batches):
    return sum(net(x).mean() for x in batches)
def shard(net):
    {shard}
def main():
    average = Average(shard(Net()))
    model = shard(Net())
    for x in batches:
        model(x).sum().backward()
        {run}
    average.copy_to(model)  # calls
main()  # first
"""
INLINE = """def main(model, ema, x, scores):
    for block in model.blocks:
        fully_shard(block)
    {shard}
    {run}
    for (_, p), e in zip(model.named_parameters(), ema.parameters()):
        e.lerp_(p, 0.1)  # failed
main(net, ema, x, scores)  # first
"""
WHOLE = "return fully_shard(net)"


def said(folder: Path, source: str, *, plain: str = "[64, 8] float32", names: str = "avg p", **parts: str) -> str:
    """The clause of the headline, and the words, of the line that ends with `# failed`."""
    file = folder / "train.py"
    text = source.format(**parts)
    file.write_text(text, encoding="utf-8")
    lines = text.splitlines()
    numbers = [n for mark in ("# failed", "# calls", "# first") for n, item in enumerate(lines, 1) if mark in item]
    functions = ["Average.copy_to", "main", "<module>"] if "# calls" in text else ["main", "<module>"]
    sharded, whole = names.split()
    values = [VariableReport(sharded, "DTensor [64, 8] float32, Shard(0)"), VariableReport(whole, plain)]
    frames = [PythonFrame(name, str(file), line) for name, line in zip(functions, numbers, strict=True)]
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    found = explained(snapshot, ExceptionReport(type="RuntimeError", message=MESSAGE, variables=values), frames)
    assert found.failure is None, found.failure
    return f"{found.subject}; {found.words}"


def test_evaluation_before_is_named(tmp_path: Path) -> None:
    """And the line that shards, with both ways to shard it again."""
    words = said(tmp_path, AVERAGED, shard=WHOLE, run="evaluate(model, batches)")
    assert words.startswith("`p`, a parameter of `target`, is whole since a forward() without a backward() behind it")
    assert "as line 17 (`evaluate(model, batches)`) leaves it, and `avg` is a DTensor: fully_shard() (line 11)" in words
    assert "Call `target.reshard()` before its parameters are used, or pass reshard_after_forward=True there." in words


def test_forward_in_the_function_itself_is_named(tmp_path: Path) -> None:
    """Where fully_shard() is a statement, and the average is the sharded one of a pair in the other order."""
    words = said(tmp_path, INLINE, names="e p", shard="fully_shard(model)", run="scores.append(model(x))")
    assert "`p`, a parameter of `model`, is whole since a forward() without a backward() behind it, as line 5" in words
    assert "fully_shard() (line 4) does not shard the outermost module again" in words


def test_line_is_left_out_where_a_backward_is_behind_it(tmp_path: Path) -> None:
    """Another line ran it then, as far as is known."""
    words = said(tmp_path, AVERAGED, shard=WHOLE, run="pass")
    assert "is most likely whole since a forward() without a backward() behind it, and `avg` is a DTensor" in words


@pytest.mark.parametrize(
    ("shard", "plain"),
    [
        ("return fully_shard(net, reshard_after_forward=True)", "[64, 8] float32"),
        ("return fully_shard(net, ignored_params=kept(net))", "[64, 8] float32"),
        ("return net", "[64, 8] float32"),
        ("[fully_shard(item) for item in net.blocks]; return net", "[64, 8] float32"),
        ("net.unshard(); return fully_shard(net)", "[64, 8] float32"),
        ("net.reshard(); return fully_shard(net)", "[64, 8] float32"),
        (WHOLE, "[32, 8] float32"),
    ],
    ids=[
        "sharded again",
        "left out",
        "not sharded",
        "only its layers",
        "gathered by hand",
        "sharded by hand",
        "of another shape",
    ],
)
def test_plain_parameter_for_another_reason_is_not_called_whole(shard: str, plain: str, tmp_path: Path) -> None:
    """The operands are told as before."""
    words = said(tmp_path, AVERAGED, shard=shard, run="evaluate(model, batches)", plain=plain)
    assert "whole since" not in words
    assert "`avg` is a DTensor ([64, 8] float32, Shard(0)), and `p` is a plain tensor" in words
