"""The line that sets an attribute of a module of torch to what may be 0, where torch's own line passes it on."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.set_divisor import set_divisor
from pytracer.decode.types.snapshot import HeldNumber, PythonFrame

LIBRARY = """import torch


class Attention:
    def __init__(self, dim, num_heads, dropout=0.0):
        if num_heads <= 0:
            raise ValueError("num_heads must be positive")
        self.num_heads = num_heads
        self.dropout = dropout


class Layer:
    def __init__(self, dim, heads):
        self.attn = Attention(dim, heads)

    def forward(self, x):
        return torch._fused_layer(x, self.attn.num_heads, self.attn.dropout)
"""
PROGRAM = """def prune(layer, scores):
    kept = {value}
    {test}
    {target} = kept


def run(layer, x):
    return layer(x)
"""
OWN = """class Own:
    def __init__(self, n):
        self.num_heads = int(n)


def run(layer, x):
    pass
    return layer(x)
"""
COUNT = "int((scores > 0.5).sum())"


def view_of(folder: Path, source: str, **numbers: int) -> Any:
    """A process that crashed in what `Layer.forward` calls, which line 8 of the program runs."""
    library = folder / "site-packages" / "torch" / "layer.py"
    library.parent.mkdir(parents=True)
    library.write_text(LIBRARY, encoding="utf-8")
    program = folder / "train.py"
    program.write_text(source, encoding="utf-8")
    for path in (library, program):
        os.utime(path, (0, 0))
    inner, outer = PythonFrame("Layer.forward", str(library), 17), PythonFrame("run", str(program), 8)
    held = tuple(HeldNumber(f"self.attn.{name}", value, inner, 0) for name, value in numbers.items())
    crash = SimpleNamespace(python_stack=(inner, outer), numbers=held, holders=())
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns(), version=(1, 7), environment={})
    return SimpleNamespace(crash=crash, process=SimpleNamespace(snapshot=snapshot))


def program(value: str = COUNT, test: str = "pass", target: str = "layer.attn.num_heads") -> str:
    return PROGRAM.format(value=value, test=test, target=target)


def test_line_that_may_set_0_is_named_with_the_constructor_that_checks(tmp_path: Path) -> None:
    found = set_divisor(view_of(tmp_path, program()))
    assert found is not None
    assert found.words == (
        "`num_heads`, which Layer.forward passes, is probably 0: it is set by line 4 (`layer.attn.num_heads = kept`)"
    )
    assert found.advice.startswith(
        "Keep `kept` from being 0 at line 4 (`layer.attn.num_heads = kept`), which comes from line 2 (`kept = int("
    )
    assert (
        "The constructor of Attention checks `num_heads`; an attribute that is set later is not checked."
        in found.advice
    )


def test_recorded_value_is_said(tmp_path: Path) -> None:
    found = set_divisor(view_of(tmp_path, program(), num_heads=0))
    assert found is not None and "is 0: it is set" in found.words


@pytest.mark.parametrize(
    "source",
    [
        program(target="setattr(layer.attn, 'num_heads', kept); _"),
        program(value="layer.attn.num_heads - 1"),
        program(value="4; layer.attn.num_heads -= 1", target="_"),
        program(test="while 64 % max(kept, 1): kept += 1"),
    ],
    ids=["setattr", "less", "in place", "a test of something else"],
)
def test_other_ways_to_set_it(source: str, tmp_path: Path) -> None:
    found = set_divisor(view_of(tmp_path, source))
    assert found is not None and found.name == "num_heads"


@pytest.mark.parametrize(
    "source",
    [
        program(value=f"max(1, {COUNT})"),
        program(value="4"),
        program(value="scores.best or 1"),
        program(test="if not kept: return"),
        program(test="assert kept > 0"),
        program(target="layer.attn.dropout"),
        program(target="layer.attn.other"),
        program(target="heads"),
        f"{program()}layer.attn.num_heads = count(layer)\n",
        OWN,
    ],
    ids=["at least 1", "a number", "or", "left", "asserted", "not checked", "not passed", "variable", "two", "own"],
)
def test_lines_that_do_not_make_it_0_are_not_named(source: str, tmp_path: Path) -> None:
    assert set_divisor(view_of(tmp_path, source)) is None


def test_attribute_that_is_recorded_as_another_number_is_not_named(tmp_path: Path) -> None:
    assert set_divisor(view_of(tmp_path, program(), num_heads=4)) is None
