"""Functions that call themselves without end, as nothing that they are given changes."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.usage.endless_calls import EndlessCall, endless_call
from pytracer.report.job import PythonFrame


def found(folder: Path, source: str, line: int) -> EndlessCall | None:
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    frame = PythonFrame(function="init", file=str(file), line=line)
    return endless_call(snapshot, [frame], frame)


def function(body: str, head: str = "def init(w, gain=1, depth=0):") -> str:
    return f"{head}\n    {body}\n    return w.normal_(0, gain)\n"


def test_view_of_a_tensor_is_a_tensor_as_well(tmp_path: Path) -> None:
    item = found(tmp_path, function("if isinstance(w, Variable):\n        init(w.data, gain=gain)"), 3)
    assert item is not None
    assert item.clause == ", as `isinstance(w, Variable)` at line 2 is the same for `init(w.data, gain=gain)`"
    assert item.advice == (
        "End the recursion: line 3 calls init() again by `init(w.data, gain=gain)`, and `isinstance(w, Variable)` at "
        "line 2, on which that depends, comes out the same each time: `w.data` is a tensor as well, and each tensor is "
        "a Variable since torch 0.4. Do there what init() was to do in the end, or pass what makes the test come out "
        "differently. No larger stack and no higher limit ends that."
    )


@pytest.mark.parametrize(
    ("body", "tests"),
    [
        ("if isinstance(w, torch.Tensor):\n        return init(w.detach())", 1),
        ("if torch.is_tensor(w) and gain > 0:\n        return init(w.cpu(), gain)", 1),
        ("if not isinstance(w, Variable): return w\n    return init(w.data)", 1),
        ("if depth < 5:\n        return init(w, gain, depth)", 1),
        ("if gain is None:\n        return init(w, None)", 1),
        ("if depth == 0:\n        return init(w[0])", 1),  # with its default again
    ],
)
def test_other_ways_to_pass_on_what_decides_are_found(body: str, tests: int, tmp_path: Path) -> None:
    item = found(tmp_path, function(body), 3)
    assert item is not None and len(item.tests) == tests


@pytest.mark.parametrize(
    "body",
    [
        "if isinstance(w, nn.Parameter):\n        return init(w.data)",  # `data` is none
        "if isinstance(w, Variable) and w.requires_grad:\n        return init(w.data)",
        "if isinstance(w, list):\n        return init(w[0])",
        "if depth < 5:\n        return init(w, gain, depth + 1)",
        "depth += 1\n    if depth < 5: return init(w, gain, depth)",
        "if len(w):\n        return init(w)",  # w.pop() elsewhere
        "if LEFT.pop() > 2:\n        return init(w)",
        "for part in w:\n        init(w)",
        "try:\n        return init(w)\n    except OSError: pass",
        "if depth < 5:\n        return init(*w)",
        "if depth < 5:\n        return init(w, **options)",
        "if isinstance(w, Variable):\n        return other.init(w)",
        "assert len(w)\n    if depth < 5: return init(w)",
        "if w == gain: return w\n    return init(w, gain)",  # of lists that the function changes
    ],
)
def test_calls_that_may_end_are_not_told(body: str, tmp_path: Path) -> None:
    assert found(tmp_path, function(body), 3) is None


def test_method_that_asks_the_same_again_is_found(tmp_path: Path) -> None:
    source = (
        "class Net:\n"
        "    def init(self, mode='fan_in'):\n"
        "        if mode is not None:\n"
        "            return self.init(mode)\n"
    )
    item = found(tmp_path, source, 4)
    assert item is not None and item.call == "self.init(mode)"


@pytest.mark.parametrize(
    ("first", "head", "was"),
    [
        ("from torch.nn.init import xavier_normal_ as init", "def init(w, gain=1):", "what line 1 imports"),
        ("import os", "def print(*w, gain=1):", "Python's own"),
    ],
)
def test_function_that_replaced_the_one_it_was_to_call_is_told(first: str, head: str, was: str, tmp_path: Path) -> None:
    name = head[4:].partition("(")[0]
    item = found(tmp_path, f"{first}\n{head}\n    if gain:\n        {name}(w[0].half())\n", 4)
    assert item is not None and item.clause == f", where {name}() is that function itself"
    assert item.advice.startswith(f"Line 4 calls its own function without end: {name}() was {was}")


@pytest.mark.parametrize(
    "source",
    [
        "def eval(node):\n    if node.leaf: return 0\n    return eval(node.left)\n",
        "def pow(x, n):\n    if n == 0: return 1\n    return x * pow(x, n - 1)\n",
        "def compile(node):\n    for part in node.parts:\n        compile(part)\n",
    ],
)
def test_function_with_a_name_of_python_that_goes_down_a_tree_may_be_meant(source: str, tmp_path: Path) -> None:
    assert found(tmp_path, source, 3) is None
