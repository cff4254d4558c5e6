"""Which operand is a DTensor, and where it comes from; nothing where the recording does not tell."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

MIXED = "aten.mm.default got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before"
WEIGHT = "DTensor [256, 64] float32, Shard(0)"
PLAIN = "[2, 64] float32"
PASSED = """def lose(weight, h):
    return F.linear(h, weight)
def main(h):
    {wrap}
    loss = lose(model.output.weight, h)
main(h)
"""
TIED = """class Net(nn.Module):
    def forward(self, h):
        return F.linear(h, self.embed.weight)
fully_shard(net)
net(h)
"""


def said(folder: Path, source: str, way: list[tuple[str, int]], message: str = MIXED, **held: str) -> str:
    """`way`: functions and lines, innermost first. The clause of the headline, and the words."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    frames = [PythonFrame(function=name, file=str(file), line=line) for name, line in way]
    variables = [VariableReport(name=name.replace("__", "."), value=value) for name, value in held.items()]
    found = explained(snapshot, ExceptionReport(type="RuntimeError", message=message, variables=variables), frames)
    return f"{found.subject}; {found.words}"


def test_parameter_that_is_passed_is_named_by_its_owner(tmp_path: Path) -> None:
    """With the line that passes it."""
    source = PASSED.format(wrap="fully_shard(model)")
    words = said(tmp_path, source, [("lose", 2), ("main", 5), ("<module>", 6)], weight=WEIGHT, h=PLAIN)
    assert "`weight` is a DTensor (`model.output.weight` of line 5, [256, 64] float32, Shard(0)), and `h` is a" in words
    assert "Take `model.output.weight.full_tensor()` at line 5, on all ranks, or call that module" in words


def test_parameter_of_another_layer_is_named(tmp_path: Path) -> None:
    """Of tied weights."""
    held = {"h": PLAIN, "self__embed__weight": WEIGHT}
    words = said(tmp_path, TIED, [("Net.forward", 3), ("<module>", 5)], **held)
    assert "`self.embed.weight` is a DTensor ([256, 64] float32, Shard(0)), and `h` is a plain tensor" in words
    assert "`self.embed.weight.full_tensor()` at line 3" in words
    assert "leave `self.embed` to the sharded module around it" in words


@pytest.mark.parametrize("wrap", ["parallelize_module(model, mesh, plan)", "pass"])
def test_without_fsdp_either_may_be_made_like_the_other(wrap: str, tmp_path: Path) -> None:
    """No word of what gathers it."""
    words = said(tmp_path, PASSED.format(wrap=wrap), [("lose", 2), ("main", 5)], weight=WEIGHT, h=PLAIN)
    assert "fully_shard" not in words
    assert "`distribute_tensor(h, weight.device_mesh, [Replicate()])`" in words


@pytest.mark.parametrize("held", [{}, {"weight": PLAIN, "h": PLAIN}, {"weight": WEIGHT, "h": WEIGHT}, {"h": PLAIN}])
def test_nothing_is_said_where_it_is_not_recorded_which(held: dict[str, str], tmp_path: Path) -> None:
    """Two of a kind, or values that are missing."""
    words = said(tmp_path, PASSED.format(wrap="fully_shard(model)"), [("lose", 2), ("main", 5)], **held)
    assert "is a DTensor" not in words


# ---- operators whose result's size depends on values


NONZERO = (
    "aten.nonzero.default\n\nSharding propagation failed for aten.{}(Spec(b8[128](S(0)))) on "
    "DeviceMesh((2,), 'cpu', stride=(1,)))"
)
ACTIVITY = "DTensor [128] float32, Shard(0)"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "len(torch.nonzero(x == 0))",
            "no nonzero(): the size of its result depends on values. Take `x.full_tensor()`",
        ),
        (
            "len(torch.nonzero(x == 0))",
            "a collective), or to count only `(x == 0).sum().full_tensor()`; or `x.to_local()`",
        ),
        ("torch.where(x > 1)", "has no where() of a condition alone"),
        ("x[x > 1].mean()", "has no indexing by a mask"),
        ("x[y > 1].mean()", "`x` and `y` are DTensors, and DTensor has no indexing by a mask"),
    ],
)
def test_operator_sized_by_values_names_its_dtensor(line: str, says: str, tmp_path: Path) -> None:
    """With what to take in place of it."""
    message = NONZERO.format("index.Tensor" if "[" in line else "nonzero.default")
    words = said(tmp_path, f"{line}\n", [("<module>", 1)], message, x=ACTIVITY, y=ACTIVITY)
    assert says in words


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("torch.nonzero(x.full_tensor() + z)", NONZERO.format("nonzero.default")),
        ("torch.nonzero(z)", NONZERO.format("nonzero.default")),
        ("help(x)", NONZERO.format("nonzero.default")),
        (
            "x.view(3, -1)",
            "shape '[3, -1]' is invalid for input of size 128\n\nSharding propagation failed for aten.view",
        ),
    ],
)
def test_operator_of_another_kind_is_not_explained_so(line: str, message: str, tmp_path: Path) -> None:
    """Of a plain tensor, or where the message has a reason of its own."""
    words = said(tmp_path, f"{line}\n", [("<module>", 1)], message, x=ACTIVITY, z=PLAIN)
    assert "depends on values" not in words


def test_part_of_a_sum_is_none_to_use_alone(tmp_path: Path) -> None:
    """Each rank's Partial tensor lacks the others."""
    held = "DTensor [128] float32, Partial(sum)"
    words = said(tmp_path, "torch.nonzero(x)\n", [("<module>", 1)], NONZERO.format("nonzero.default"), x=held)
    assert "`x.full_tensor()` at line 1" in words
    assert "to_local" not in words
