"""An operator that divided by zero and was given a tensor without rows, and others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.operators import empty_operand as module
from pytracer.analyze.evidence.operators.empty_operand import EmptyOperand, empty_operand
from pytracer.analyze.evidence.operators.operator import Operator, OperatorTensor
from pytracer.decode.types.snapshot import PythonFrame
from tests.support.scenarios import program_in

SOURCE = """import torch.nn.functional as F
def spread(emb, identity):
    foreground = emb[identity >= 0]
    distances = F.pdist(foreground)
    return distances.sum()
loss = spread(x, y)
loss.backward()
"""


def tensor(*sizes: int, name: str | None = None) -> OperatorTensor:
    item: Any = SimpleNamespace(sizes=sizes, dimensions=len(sizes), undefined=False)
    return OperatorTensor(item, name, None, passed=True)


def found(
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    *tensors: OperatorTensor,
    operator: str = "aten::_pdist_backward",
    source: str = SOURCE,
    engine: bool = True,
) -> EmptyOperand | None:
    """Of a process that was in that operator, at the last line of the program."""
    monkeypatch.setattr(module, "find_operator", lambda view: Operator(operator, None, tensors))
    monkeypatch.setattr(module, "in_engine", lambda view: engine)
    frame = PythonFrame("<module>", str(program_in(run, source)), len(source.splitlines()))
    snapshot = SimpleNamespace(argv=(), created_wall_ns=1 << 62, pid=7)
    view: Any = SimpleNamespace(
        crash=SimpleNamespace(python_stack=(frame,)), process=SimpleNamespace(snapshot=snapshot)
    )
    return empty_operand(view)


def test_forward_of_a_backward_that_was_given_no_rows_is_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it is given, and the line that selected nothing."""
    told = found(run, monkeypatch, tensor(0), tensor(0, 16), tensor(0))
    assert told is not None
    assert told.summary == (
        "_pdist_backward, the backward of `F.pdist(foreground)` at line 4, was given `foreground` [0, 16], of which "
        "size 0 is 0; line 3 (`foreground = emb[identity >= 0]`) makes it"
    )
    assert told.advice.startswith(
        "Leave `F.pdist(foreground)` at line 4 out where `foreground` has nothing in it (`if len(foreground) == 0:`) "
        "(in a loss, return a 0 that keeps the graph: `x.sum() * 0`)"
    )


def test_operator_of_the_line_itself_has_the_name_of_its_tensor(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forward."""
    source = "rows = table[keep]\ntorch.ops.aten.some_kernel(rows)\n"
    operand = tensor(4, 0, name="rows")
    told = found(run, monkeypatch, operand, operator="aten::some_kernel", source=source, engine=False)
    assert told is not None
    assert told.summary == (
        "some_kernel was given `rows` [4, 0], of which size 1 is 0; line 1 (`rows = table[keep]`) makes it"
    )
    assert told.advice.startswith(
        "Leave some_kernel out where `rows` has nothing in it (`if rows.numel() == 0:`): some_kernel does not check"
    )


@pytest.mark.parametrize(
    ("called", "name"),
    [
        ("func.pdist(foreground)", "`foreground`"),  # the module is not the tensor
        ("functional.pdist(input=foreground, p=1)", "`foreground`"),
        ("foreground.pdist()", "`foreground`"),
        ("func.pdist(emb[identity >= 0])", "`emb[identity >= 0]`"),
        ("func.pdist(foreground, emb)", "a tensor"),  # either may be the empty one
        ("func.pdist(*parts)", "a tensor"),
    ],
)
def test_operand_is_what_the_forward_alone_can_work_on(
    called: str, name: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the function is imported, and not where it is given several."""
    imports = "import torch.nn.functional as func\nfrom torch.nn import functional\n"
    told = found(run, monkeypatch, tensor(0, 16), source=imports + SOURCE.replace("F.pdist(foreground)", called))
    assert told is not None
    assert f"was given {name} [0, 16]" in told.summary


def test_no_line_is_named_of_several_forwards(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of two it was is not known."""
    told = found(run, monkeypatch, tensor(0, 16), source=SOURCE.replace("loss = ", "F.pdist(z)\nloss = "))
    assert told is not None
    assert told.summary == "_pdist_backward was given a tensor [0, 16], of which size 0 is 0"


@pytest.mark.parametrize(
    ("tensors", "operator"),
    [
        ([tensor(4, 16), tensor(6)], "aten::_pdist_backward"),  # nothing is empty
        ([tensor(0, 16)], "my::kernel"),  # an extension's
        ([], "aten::_pdist_backward"),
    ],
)
def test_operators_with_rows_or_of_others_are_left_alone(
    tensors: list[OperatorTensor], operator: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look-alikes."""
    assert found(run, monkeypatch, *tensors, operator=operator) is None
