"""The row of the operator lists operands: what the line passes, not what else was found beside them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import Argument, Holder, PythonFrame
from pytracer.report import job as r
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, died
from tests.support.synth import Box

PRICE, VOLUME, RESULT, LOSS = (0x5581_0000_1000 + 0x10_0000 * n for n in range(4))
OPERATOR = [
    (s.TORCH_CPU, "at::native::div_kernel(at::TensorIteratorBase&)"),
    (s.TORCH_CPU, "at::_ops::div_Tensor::call(at::Tensor const&, at::Tensor const&)"),
]
PYTHON = (s.PYTHON, "_PyEval_EvalFrameDefault")
ENGINE = (s.TORCH_CPU, "torch::autograd::Engine::execute(torch::autograd::Graph&)")


def tensor(base: int, *sizes: int, frame: int | None = 0, outer: int | None = 2, how: str = "reference") -> Argument:
    elements = 1
    for size in sizes:
        elements *= size
    return Argument(
        base ^ 0xFF, base, elements, 0, sizes, len(sizes), "float32", "cpu", minimum=None, maximum=None, frame=frame,
        outer_frame=outer, register=None, how=how,  # type: ignore[arg-type]
    )  # fmt: skip


def row(run: Path, line: str, *arguments: Argument, **how: Any) -> str:
    found = process(run, line, *arguments, **how).operator
    return (found.says or "") if found is not None else ""


def process(
    run: Path, line: str, *arguments: Argument, inner: bool = False, other: bool = False, called: str = "div_Tensor",
    truncated: bool = False, also: tuple[Holder, ...] = (),
) -> r.ProcessReport:  # fmt: skip
    """`inner`: in autograd's engine; `other`: another thread runs the line with other tensors; `also`: variables."""
    script = run / "train.py"
    script.write_text(f"import torch\n\n\ndef ratio(price, volume, loss):\n    {line}\n", encoding="utf-8")
    os.utime(script, (0, 0))  # before the recorded process began
    frame = PythonFrame("ratio", str(script), 5)
    sizes = {"price": (PRICE, 256), "volume": (VOLUME, 256), "loss": (LOSS, 1)}
    holders = [
        Holder("local", name, base, frame, not (other and name == "loss"), elements=n)
        for name, (base, n) in sizes.items()
    ]
    holders += [replace(item, frame=frame) for item in also]
    box = Box(pid=101)
    for base in (PRICE, VOLUME, RESULT, LOSS):
        box = box.alloc(base, 4096)
    operator = [(image, name.replace("div_Tensor", called)) for image, name in OPERATOR]
    report = died(
        run, box=box, addr=0x1357_9BDF_0240, stack_of=[*operator, *([ENGINE] if inner else []), PYTHON],
        python=[("ratio", str(script), 5)], holders=tuple(holders), arguments=arguments, mappings=[PROGRAM],
        registers={"rdx": 0x1357_9BDF_0240}, arguments_truncated=truncated,
    )  # fmt: skip
    return (report.processes or [])[0]


GIVEN = (tensor(PRICE, 256), tensor(VOLUME, 256))


@pytest.mark.parametrize("line", ["return torch.div(price, volume)", "return price / volume", "x = price.div(volume)"])
def test_operands_alone_where_the_line_passes_nothing_else(line: str, run: Path) -> None:
    """No result, and no tensor that one of them is a view of; in the order of the line."""
    found = row(run, line, tensor(VOLUME, 40, 4096), *reversed(GIVEN), tensor(RESULT, 256))
    assert found == "aten::div_Tensor with price [256] float32; volume [256] float32"


@pytest.mark.parametrize(
    ("line", "arguments", "noted"),
    [
        ("return price / volume", GIVEN, False),
        ("return price / volume", (tensor(PRICE, 256), tensor(VOLUME, 256, how="held")), False),
        ("return price / volume", GIVEN[:1], True),
        ("return torch.div(price, volume.exp())", GIVEN, True),
    ],
    ids=["all", "held by a variable", "one is missing", "one is computed"],
)
def test_search_that_reached_a_limit_is_noted_where_operands_may_be_missing(
    line: str, arguments: tuple[Argument, ...], noted: bool, run: Path
) -> None:
    found = process(run, line, *arguments, truncated=True).notes or []
    assert any("reached a limit" in item for item in found) == noted


def test_what_the_line_computes_is_an_operand_too(run: Path) -> None:
    """It has no name."""
    found = row(run, "return torch.div(price, volume.exp())", tensor(PRICE, 256), tensor(RESULT, 256))
    assert "price [256] float32; [256] float32" in found


def test_line_that_runs_the_backward_pass_passes_no_operands(run: Path) -> None:
    held = tensor(LOSS, frame=None, outer=None, how="held")
    assert row(run, "loss.backward()", *GIVEN, held, inner=True) == (
        "aten::div_Tensor with price [256] float32; volume [256] float32"
    )
    assert "loss" in row(run, "loss.backward()", *GIVEN, held)


def test_what_only_callers_refer_to_is_no_operand(run: Path) -> None:
    """The gradient from which the engine began."""
    seed = tensor(RESULT, frame=3, outer=3)
    assert "[] float32" not in row(run, "loss.backward()", *GIVEN, seed, inner=True)


def test_tensors_of_another_thread_are_no_operands(run: Path) -> None:
    held = tensor(LOSS, frame=None, outer=None, how="held")
    line = "return torch.div(price, volume.exp(loss))"
    assert "loss" in row(run, line, *GIVEN, held)
    assert "loss" not in row(run, line, *GIVEN, held, other=True)


@pytest.mark.parametrize(
    ("line", "has"),
    [
        ("return torch.logdet(covariance(price, loss))", False),
        ("return torch.logdet(price + loss)", True),
        ("return torch.logdet(covariance(price)) * loss", False),
        ("return torch.logdet(covariance(price), loss) * volume", True),
        ("return torch.logdet(price.mul(volume)) + torch.logdet(covariance(loss))", True),
    ],
)
def test_what_goes_into_another_call_of_the_line_is_no_operand(line: str, has: bool, run: Path) -> None:
    """Nor is what the line multiplies with. Where it calls the operator twice, which call it was is not known."""
    held = tensor(LOSS, frame=None, outer=None, how="held")
    assert ("loss" in row(run, line, tensor(RESULT, 16, 16), held, called="logdet")) == has


def chunk(name: str, offset: int | None) -> Holder:
    return Holder("local", name, RESULT, own=True, elements=16, offset=offset)


def part(offset: int, how: str) -> Argument:
    return replace(tensor(RESULT, 16, how=how, outer=2 if how != "held" else None), offset=offset)


@pytest.mark.parametrize("how", ["reference", "held"])
def test_parts_of_one_storage_have_their_own_names(how: str, run: Path) -> None:
    """`i, o, u = gates.chunk(3)`: the one that the line passes, not the first of them."""
    gates = (chunk("i", 0), chunk("o", 16), chunk("u", 32))
    parts = [part(offset, how) for offset in (0, 16, 32)]
    found = row(
        run, "return torch.tanh(u) * torch.sigmoid(i)", *parts[-1 if how != "held" else 0 :], called="tanh", also=gates
    )
    assert found == "aten::tanh with u [16] float32"


def test_offsets_that_an_older_recording_lacks_are_not_guessed(run: Path) -> None:
    """It has only whether a tensor begins where its storage does."""
    gates = (chunk("i", 0), chunk("o", None), chunk("u", None))
    line = "return torch.tanh(u.exp())"
    assert row(run, line, part(32, "reference"), called="tanh", also=gates) == "aten::tanh with [16] float32"
    assert row(run, line, part(16, "reference"), called="tanh", also=gates[:2]) == "aten::tanh with o [16] float32"
    assert row(run, line, part(0, "reference"), called="tanh", also=gates) == "aten::tanh with i [16] float32"


@pytest.mark.parametrize(
    ("line", "has"),
    [
        ("return loss / torch.sqrt(loss.pow(2)) / price", False),
        ("return loss.view(1) / (volume / price)", False),
        ("return price / (loss / volume)", False),
        ("return loss / price", True),
        ("return loss.exp() / price", False),
        ("return loss.unsqueeze(0) / price / volume", True),  # a view of it is the operand
        ("return volume / loss + loss / price", True),
        ("return loss / price + volume / price", True),  # which of the two it is is not known
        ("return torch.div(loss, volume) / price", True),
    ],
)
def test_an_operand_of_another_operation_of_the_line_is_none(line: str, has: bool, run: Path) -> None:
    """The operator was given `price`, and a result without a name."""
    held = tensor(LOSS, frame=None, outer=None, how="held")
    assert ("loss" in row(run, line, tensor(PRICE, 256), tensor(RESULT, 256, outer=0), held)) == has
