"""The line that calls what torch.compile made, by the source of the program."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.cuda.compiled_callers import compiled_caller
from pytracer.report.job import PythonFrame

DECORATED = """\
import torch
@torch.compile(dynamic=False)
def embed(tokens, table):
    return table[tokens]
def main(table):
    for tokens in range(3):
        embed(tokens, table)
"""
OBJECT = """\
import re, torch
class Net(torch.nn.Module):
    def forward(self, ids):
        return self.words(ids)
def main(ids):
    net = Net()
    fast = torch.compile(net)
    word = re.compile('x')
    return fast(ids)
"""


def caller(folder: Path, source: str, line: int, function: str, **launch: Any) -> Any:
    """Of a launch that is recorded with a line of that file."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    view: Any = SimpleNamespace(
        process=SimpleNamespace(snapshot=snapshot),
        raised=True,
        exception_stack_of_program=[PythonFrame(function="main", file=str(file), line=6)],
    )
    at = PythonFrame(function=function, file=str(file), line=line)
    item: Any = SimpleNamespace(**{"python": at, "node": None, "is_custom": True, **launch})
    return compiled_caller(view, item)


@pytest.mark.parametrize("line", [2, 3])
def test_only_call_of_a_decorated_function_is_the_one(line: int, tmp_path: Path) -> None:
    """Its launches have the line of the decorator, or of the `def`."""
    found = caller(tmp_path, DECORATED, line, "embed")
    assert found is not None and found.words == ", called at train.py:7 in main"
    assert "Begin with `tokens` and `table` at train.py:7 in main" in found.advice


@pytest.mark.parametrize("change", [("", ""), ("fast = torch.compile(net)", "net.compile(); fast = net")])
def test_only_call_of_a_compiled_object_is_the_one(change: tuple[str, str], tmp_path: Path) -> None:
    source = OBJECT.replace("fast(ids)", "net(ids)").replace(*change) if change[0] else OBJECT
    found = caller(tmp_path, source, 3, "Net.forward")
    assert found is not None and found.frame.line == 9 and found.passed == ("ids",)


def test_of_two_calls_none_is_told(tmp_path: Path) -> None:
    assert caller(tmp_path, DECORATED + "    embed(0, table)\n", 3, "embed") is None
    assert (
        caller(tmp_path, OBJECT.replace("return fast(ids)", "return fast(ids) + fast(ids)"), 3, "Net.forward") is None
    )


def test_function_that_is_not_compiled_is_left_alone(tmp_path: Path) -> None:
    plain = DECORATED.replace("@torch.compile(dynamic=False)\n", "")
    assert caller(tmp_path, plain, 2, "embed") is None
    assert caller(tmp_path, DECORATED, 4, "embed") is None, "a line of its body is the line that launched"
    assert caller(tmp_path, DECORATED, 3, "embed", node="MulBackward0") is None
    assert caller(tmp_path, DECORATED, 3, "embed", is_custom=False) is None
