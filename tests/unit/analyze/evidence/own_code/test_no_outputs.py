"""Layers that were made with 0 outputs, and what made the number 0."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import no_outputs as module
from pytracer.analyze.evidence.own_code.empty_source import empty_source, is_never_empty
from pytracer.analyze.evidence.own_code.no_outputs import no_outputs
from pytracer.decode.types.snapshot import HeldNumber, PythonFrame

LINEAR = "/usr/lib/python3/site-packages/torch/ao/nn/quantized/dynamic/modules/linear.py"
CALL = "/usr/lib/python3/site-packages/torch/nn/modules/module.py"
SOURCE = """TASKS = {
    "color": ["red", "blue"],
    "brand": [],
}


class Net(nn.Module):
    def __init__(self, tasks, hidden=64):
        self.trunk = nn.Linear(48, hidden)
        self.heads = nn.ModuleDict({name: nn.Linear(hidden, len(labels)) for name, labels in tasks.items()})

    def forward(self, x):
        return {name: head(x) for name, head in self.heads.items()}


net = Net(TASKS)
"""


def view_of(folder: Path, source: str = SOURCE, line: int = 13, outputs: int = 0, layer: str = "head") -> Any:
    """A process that crashed in a Linear of so many outputs, which that line of the program runs."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    inner, between = PythonFrame("Linear.forward", LINEAR, 58), PythonFrame("Module._call_impl", CALL, 1789)
    outer = PythonFrame("Net.forward", str(file), line)
    held = (
        HeldNumber("self.out_features", outputs, inner, 0),
        HeldNumber("self.zero_point", 0, inner, 0),
        *((HeldNumber(f"{layer}.out_features", outputs, outer, 0),) if layer else ()),
    )
    crash = SimpleNamespace(python_stack=(inner, between, outer), numbers=held, holders=(), registers={})
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 7), environment={})
    return SimpleNamespace(crash=crash, process=SimpleNamespace(snapshot=snapshot))


@pytest.fixture(autouse=True)
def _native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "functions", lambda view: ["PackedLinearWeightsQnnp::apply_dynamic"])
    monkeypatch.setattr(module, "line_words", lambda view: "line 13")


def test_layer_of_a_list_that_is_empty(tmp_path: Path) -> None:
    """By the loop that gives it its name, and the dict that gives the loop its lists."""
    found = no_outputs(view_of(tmp_path))
    assert found is not None
    assert found.words.startswith("`head`, a quantized Linear, has 0 outputs (`out_features`): line 10 (`self.heads = ")
    assert found.words.endswith("makes it with `len(labels)`; the count comes from line 3 (`'brand': []`)")
    assert found.advice.startswith("Make and run no layer at line 10 where `len(labels)` is 0, or give line 3")
    assert "the QNNPACK engine divides by the number of outputs" in found.advice


def test_layer_that_is_called_on_the_line_is_the_one(tmp_path: Path) -> None:
    """Others of its class are not; nor are those whose number is written down and not 0."""
    source = """class Net(nn.Module):
    def __init__(self, wide, few):
        self.one = nn.Linear(8, wide)
        self.two = nn.Linear(8, few)
        self.three = nn.Linear(8, 5)

    def forward(self, x):
        return self.two(torch.relu(x))
"""
    found = no_outputs(view_of(tmp_path, source, line=8, layer=""))
    assert found is not None
    assert "line 4 (`self.two = nn.Linear(8, few)`) makes it with `few`" in found.words and found.source is None


HEAD = """class Net(nn.Module):
    def __init__(self, few):
        {one}
        {two}

    def forward(self, x):
        return {called}(x)
"""


@pytest.mark.parametrize(
    ("one", "two", "called", "made"),
    [
        ("self.one = build(few)", "self.two = nn.Linear(8, few)", "self.one", None),
        ("head = nn.Linear(8, few)", "self.one = head", "self.one", "line 3 (`head = nn.Linear(8, few)`) may make it"),
        ("self.one = load()", "return nn.Linear(8, few)", "self.one", "line 4 (`return nn.Linear(8, few)`) may make"),
        ("self.one = [nn.Linear(8, few)]", "pass", "self.one[0]", "line 3 (`self.one = [nn.Linear(8, few)]`) makes it"),
        ("self.net = Heads()", "self.head = nn.Linear(8, few)", "self.net.head", "line 4 (`self.head = nn"),
    ],
    ids=["another layer", "renamed", "returned", "item", "of another object"],
)
def test_layer_of_another_name_is_not_said_to_be_the_one(
    tmp_path: Path, one: str, two: str, called: str, made: str | None
) -> None:
    """A construction that nothing binds to the called layer may have made it; one that sets another attribute not."""
    source = HEAD.format(one=one, two=two, called=called)
    found = no_outputs(view_of(tmp_path, source, line=7, layer=called))
    assert found is not None
    assert found.words.startswith(f"`{called}`, a quantized Linear, has 0 outputs (`out_features`)")
    assert (made in found.words) if made is not None else ("mak" not in found.words and "few" not in found.advice)
    assert (" at line" in found.advice) == (made is not None and "makes it" in found.words)


def test_engine_is_named_where_it_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "functions", lambda view: ["at::native::something"])
    found = no_outputs(view_of(tmp_path))
    assert found is not None and "quantized" not in found.words and "QNNPACK" not in found.advice


def test_layer_with_outputs_is_not_named(tmp_path: Path) -> None:
    """Another number of it is 0."""
    assert no_outputs(view_of(tmp_path, outputs=4)) is None


def source_of(text: str) -> tuple[dict[str, ast.Module], ast.expr]:
    """The second argument of the last call of Linear()."""
    tree = ast.parse(text)
    calls = [item for item in ast.walk(tree) if isinstance(item, ast.Call) and ast.unparse(item.func) == "Linear"]
    return {"a.py": tree}, max(calls, key=lambda item: item.lineno).args[1]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("C = {'a': 3, 'b': 0}\nLinear(8, C['b'])", (1, "'b': 0")),
        ("C = {'a': 3, 'b': 0}\ndef f(cfg):\n    return Linear(8, cfg.get('b'))\nf(C)", (1, "'b': 0")),
        ("L = [[1],\n[]]\nfor one in L:\n    Linear(8, len(one))", (2, "[]")),
        ("class A:\n    def __init__(self, n):\n        Linear(8, n)\nA(0)", (4, "0")),
        ("L = []\nL.append(3)\nLinear(8, len(L))", None),
        ("C = {'a': []}\nC['a'] = [4]\nLinear(8, len(C['a']))", None),
        ("class A:\n    def __init__(self, n):\n        Linear(8, n)\nA(0)\nA(3)", None),
        ("n = read()\nLinear(8, n)", None),
        ("few, n = [], 5\nLinear(8, n)", None),
        ("for name, n in [('a', 3), ('b', 0)]:\n    Linear(8, n)", None),
    ],
    ids=["key", "get", "loop", "constructor", "filled", "key set", "two callers", "unknown", "beside it", "pairs"],
)
def test_entry_that_is_empty_is_found(text: str, found: tuple[int, str] | None) -> None:
    files, node = source_of(text)
    source = empty_source(files, "a.py", node)
    assert ((source.line, source.text) if source is not None else None) == found


def test_literal_without_an_empty_entry_cannot_be_it() -> None:
    files, node = source_of("C = {'a': 3, 'b': 0}\nLinear(8, C['a'])")
    assert is_never_empty(files, "a.py", node)


@pytest.mark.parametrize("text", ["C = {'a': count()}\nLinear(8, C['a'])", "for n, m in [(3, 0)]:\n    Linear(8, m)"])
def test_entry_that_is_not_written_down_may_be_empty(text: str) -> None:
    files, node = source_of(text)
    assert not is_never_empty(files, "a.py", node)
