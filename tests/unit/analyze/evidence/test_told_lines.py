"""Lines that only a message names: of torch.compile, torch.export and TorchScript, as torch 2.13 writes them."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame

PROGRAM = """import random
class Net:
    def __init__(self):
        self.fuse = nn.Linear(4, 4)
    def forward(self, x, y):
        joined = torch.cat([x, y])
        peak = x.abs().max().item()
        if peak > self.cap:
            x = x / peak
        log(x)
        return self.act(self.fuse(joined))
def log(x):
    with open("log") as out:
        out.write(x)
net = torch.compile(Net(), fullgraph=True)
net(x)
"""
FROM = "from user code:\n"
USER = '  File "{file}", line {line}, in {function}\n    {text}\n'


def said(folder: Path, kind: str, message: str, program: str = PROGRAM, line: int = 16) -> Explanation:
    """Of an exception that leaves the last line."""
    file = folder / "train.py"
    file.write_text(program, encoding="utf-8")
    report = ExceptionReport(type=f"torch._dynamo.exc.{kind}", message=message.replace("{file}", str(file)))
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    library = PythonFrame(function="compile_wrapper", file="/x/site-packages/torch/_dynamo/eval_frame.py", line=1177)
    found = explained(snapshot, report, [library, PythonFrame(function="<module>", file=str(file), line=line)])
    assert found.failure is None
    return found


def frame(line: int, function: str, under: str = "") -> str:
    """One frame of a message; `under`: the part of its text that is underlined, by one column more."""
    text = PROGRAM.splitlines()[line - 1].strip()
    marks = f"    {' ' * text.index(under)}{'^' * (len(under) + 1)}\n" if under else ""
    return f'  File "{{file}}", line {line}, in {function}\n    {text}\n{marks}'


def test_branch_on_the_value_of_a_tensor_is_named_with_what_was_read(tmp_path: Path) -> None:
    """And where fullgraph=True forbids that the graph breaks there."""
    message = f"Could not guard on data-dependent expression u0 > 5.0\n\n{FROM} {frame(8, 'forward')}\nSet TORCH"
    found = said(tmp_path, "UserError", message)
    assert found.words is not None
    assert found.words.startswith(
        "Line 8 of forward() (`if peak > self.cap:`) branches on the value of a tensor, `peak` (line 7: "
        "`x.abs().max().item()`), which no graph can hold."
    )
    assert "leave out fullgraph=True (line 15)" in found.words
    assert found.subject == "line 8 branches on the value of a tensor, `peak` (line 7: `x.abs().max().item()`)"


def test_unsupported_line_is_the_innermost_one_of_the_program(tmp_path: Path) -> None:
    """With the reason that dynamo gives."""
    message = (
        "Failed to trace builtin operator\n  Explanation: Dynamo does not know how to trace builtin operator `open`.\n"
        f"  Hint: Avoid it.\n\n{FROM} {frame(10, 'forward')}{frame(13, 'log')}\n"
    )
    found = said(tmp_path, "Unsupported", message)
    assert found.words == (
        'torch.compile stopped at line 13 of log() (`with open("log") as out:`), which line 10 calls: Dynamo does not '
        "know how to trace builtin operator `open`. fullgraph=True (line 15) allows no part outside of the graph: take "
        "that line out of what is compiled (call it before or after), or leave fullgraph out, and it runs uncompiled."
    )


def test_error_of_the_model_itself_is_told_with_its_layer(tmp_path: Path) -> None:
    """Frames of torch below it are no line to change."""
    library = '  File "/x/site-packages/torch/nn/modules/linear.py", line 134, in forward\n    return F.linear(x)\n'
    message = (
        "RuntimeError when making fake tensor call\n  Explanation: Dynamo failed to run FX node with fake tensors: "
        "call_function linear(*(FakeTensor(..., size=(2, 8)),), **{}): got RuntimeError('a and b must have same "
        f"reduction dim')\n  Hint: x\n\n{FROM} {frame(11, 'forward', 'self.fuse(joined)')}{library}\n"
    )
    found = said(tmp_path, "TorchRuntimeError", message)
    assert found.words is not None
    assert "raises it, most probably also without torch.compile: a and b must have same reduction dim." in found.words
    assert (
        "It works on `self.fuse` (line 4: `nn.Linear(4, 4)`) and `joined` (line 6: `torch.cat([x, y])`)" in found.words
    )


def test_line_that_torchscript_refuses(tmp_path: Path) -> None:
    """It has no function, and an arrow."""
    message = (
        "\nRandom.choice(Tensor self) -> Tensor 0:\nExpected a value of type 'Tensor'.\n:\n"
        '  File "{file}", line 9\n        if peak > 5:\n            x = x / peak\n                ~~~~ <--- HERE\n'
    )
    found = said(tmp_path, "RuntimeError", message)
    assert found.words is not None
    assert found.words.startswith("TorchScript cannot compile line 9 (`x = x / peak`): Random.choice(Tensor self)")


def test_known_message_has_its_own_advice(tmp_path: Path) -> None:
    """Instead of what holds for each line that TorchScript refuses."""
    message = (
        "\nModule 'Net' has no attribute 'layers' (This attribute exists on the Python module, but we failed to "
        "convert Python type: 'list' to a TorchScript type.):\n"
        '  File "{file}", line 9\n        if peak > 5:\n            x = x / peak\n                ~~~~ <--- HERE\n'
    )
    found = said(tmp_path, "RuntimeError", message)
    assert found.words is not None and found.subject is not None
    assert found.words.startswith("TorchScript cannot compile line 9 (`x = x / peak`). self.layers is of type list.")
    assert found.subject.endswith(": TorchScript cannot hold an attribute of that Python type")


def test_operator_without_a_fake_function_is_no_error_of_the_model(tmp_path: Path) -> None:
    """The look-alike of an error that the line raises without compilation, too."""
    message = (
        "RuntimeError when making fake tensor call\n  Explanation: Dynamo failed to run FX node with fake tensors: "
        "call_function my.f.default(*(FakeTensor(..., size=(3,)),), **{}): got RuntimeError('There was no fake impl "
        f"registered for <CustomOpDef(my::f)>.')\n  Hint: x\n\n{FROM} {frame(11, 'forward', 'self.fuse(joined)')}\n"
    )
    found = said(tmp_path, "TorchRuntimeError", message)
    assert found.words is not None
    assert found.words.startswith("torch.compile stopped at line 11 of forward()")
    assert "register_fake" in found.words and "without torch.compile" not in found.words


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("RuntimeError", f"Could not guard on data-dependent expression u0\n\n{FROM} {frame(8, 'forward')}"),
        (
            "Unsupported",
            f"Failed to trace\n\n{FROM}" + USER.format(file="/x/site-packages/a.py", line=1, function="f", text="g()"),
        ),
        ("Unsupported", "Failed to trace builtin operator"),
        ("RuntimeError", 'expected\n  File "{file}", line 9\n    x = x / peak\n'),
    ],
)
def test_other_messages_name_no_line(kind: str, message: str, tmp_path: Path) -> None:
    """No exception of the compiler, no line of the program, no arrow."""
    assert said(tmp_path, kind, message).words is None
