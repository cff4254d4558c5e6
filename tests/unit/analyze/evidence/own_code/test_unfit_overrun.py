"""A result of smaller elements than the program's own function writes, told by what still uses it."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import unfit_overrun as module
from pytracer.analyze.evidence.own_code.own_signature import Parameter
from pytracer.analyze.evidence.own_code.unfit_overrun import unfit_overrun
from pytracer.report.job import PythonFrame

PROGRAM = """def forward(x, gain):
    y = torch.empty_like(x)
    LIB.tone(x.data_ptr(), x.numel(), gain, y.data_ptr())
    return y
"""
BASE = 0x7000


def found(
    monkeypatch: pytest.MonkeyPatch,
    *,
    nbytes: int = 2,
    constant: bool = False,
    name: str = "y",
    program: str = PROGRAM,
) -> Any:
    line_of = {2: "    y = torch.empty_like(x)"}
    taken = [
        Parameter("x", "float", 4, "tone.c:2", constant=True),
        Parameter("n", None, 8, "tone.c:2"),
        Parameter("gain", None, 4, "tone.c:2"),
        Parameter("y", "float", 4, "tone.c:2", constant=constant),
    ]
    monkeypatch.setattr(module, "syntax_tree", lambda snapshot, frame: ast.parse(program))
    monkeypatch.setattr(module, "signature", lambda view, called: taken if called == "tone" else None)
    monkeypatch.setattr(module, "line_text", lambda snapshot, frame: line_of[frame.line])
    argument = SimpleNamespace(
        base=BASE, elements=8, dtype="bfloat16" if nbytes == 2 else "float32", element_bytes=nbytes
    )
    view: Any = SimpleNamespace(crash=SimpleNamespace(arguments=[argument]), process=SimpleNamespace(snapshot=None))
    overrun = SimpleNamespace(before=False, storage=SimpleNamespace(base=BASE))
    beside: Any = SimpleNamespace(overrun=overrun, name=name, made=PythonFrame(file="/job/train.py", line=2))
    return unfit_overrun(view, beside)


def test_type_of_a_result_that_has_too_few_bytes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under autocast: the function writes 4 bytes for each element of 2."""
    item = found(monkeypatch)
    assert item.summary == (
        "`y` (8 elements, bfloat16), which line 3 passes, has elements of 2 bytes, and tone() (tone.c:2) takes float, "
        "of 4, for `y`"
    )
    assert item.advice(None).startswith("Make `y` and `x` float32 at line 2 (`y = torch.empty_like(x)`), or let tone()")


@pytest.mark.parametrize("how", [{"nbytes": 4}, {"constant": True}, {"name": "out"}])
def test_a_result_that_fits_or_is_only_read_is_no_reason(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, **how) is None


@pytest.mark.parametrize(
    "between",
    [
        "    y = y.float()\n",
        "    if x.is_cuda:\n        y = torch.empty(8)\n",
        "    if x.dtype is torch.bfloat16:\n        LIB.tone_bf16(y.data_ptr())\n        return y\n",
    ],
)
def test_another_tensor_or_function_may_be_meant(between: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = PROGRAM.replace("    LIB.", f"{between}    LIB.")
    assert found(monkeypatch, program=program) is None
