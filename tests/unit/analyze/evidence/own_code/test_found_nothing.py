"""A search that found nothing, whose result the line passes to a function of pybind11."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.decode.types.snapshot import HeldNumber, PythonFrame
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary, verdict

pytestmark = needs_capstone

TORCH_PYTHON = f"{s.TORCH}/lib/libtorch_python.so"
LAMBDA = [(TORCH_PYTHON, "void pybind11::cpp_function::initialize<f>(f&&)"), (s.PYTHON, "_PyEval_EvalFrameDefault")]
FIND = 'act = graph.findNode("aten::relu")\ngraph.setInsertPoint(act)\n'


def crashed(run: Path, source: str, numbers: tuple[str, ...] = (), stack: list[tuple[str, str]] = LAMBDA) -> str:
    """Headline and advice of a null pointer in what the last line calls."""
    file = run / "train.py"
    file.write_text(source, encoding="utf-8")
    os.utime(file, (0, 0))
    line = source.count("\n")
    frame = PythonFrame("<module>", str(file), line)
    report = died(
        run, addr=0xD0, stack_of=stack, python=[("<module>", str(file), line)],
        registers={"rdi": 0, "trapno": 14}, code_bytes=bytes.fromhex("488b87d0000000"), mappings=[PROGRAM],
        numbers=tuple(HeldNumber(name, 4, frame, 0) for name in numbers),
    )  # fmt: skip
    assert verdict(report)[0] == "null-dereference"
    return f"{summary(report)} {advice(report)}"


def test_search_that_found_nothing(run: Path) -> None:
    told = crashed(run, FIND)
    assert "`act`, which line 2 passes, is probably None: `graph.findNode('aten::relu')` at line 1 found no" in told
    assert "Test `act` for None before line 2 passes it" in told


@pytest.mark.parametrize(
    ("source", "numbers", "stack"),
    [
        (FIND.replace("\n", "\nassert act\n", 1), (), LAMBDA),
        (FIND, ("act",), LAMBDA),
        (FIND.replace("findNode", "create"), (), LAMBDA),
        (FIND, (), [(s.TORCH_CPU, "torch::jit::run()"), (s.TORCH_CPU, "torch::jit::go()"), *LAMBDA]),
        ("a = graph.findNode(k)\nb = graph.findNode(m)\ngraph.join(a, b)\n", (), LAMBDA),
    ],
    ids=["tested", "a number", "no search", "deeper", "two"],
)
def test_what_else_may_be_null(source: str, numbers: tuple[str, ...], stack: list[tuple[str, str]], run: Path) -> None:
    assert "probably None" not in crashed(run, source, numbers, stack)
