"""A weight that an optimizer's step changed between forward and backward(): the step, also below a condition."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

MODEL = """class Gan:
    def backward(self, gen_loss, dis_loss=None):
{body}
"""
MESSAGE = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: "
    "[torch.FloatTensor [1, 32, 4, 4]] is at version 2; expected version 1 instead."
)


def words(folder: Path, body: str) -> str:
    """Of backward() in the line that ends with `# failed`."""
    file = folder / "gan.py"
    text = MODEL.format(body=textwrap.indent(body, 8 * " "))
    file.write_text(text, encoding="utf-8")
    line = next(number for number, item in enumerate(text.splitlines(), 1) if "# failed" in item)
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    held = [
        VariableReport(name="changed parameter", value="self.dis.features.4.weight [1, 32, 4, 4]"),
        VariableReport(name="its optimizer", value="self.dis_opt"),
    ]
    frames = [PythonFrame(function="Gan.backward", file=str(file), line=line)]
    return (
        explained(snapshot, ExceptionReport(type="RuntimeError", message=MESSAGE, variables=held), frames).words or ""
    )


@pytest.mark.parametrize(
    "body",
    [
        "self.dis_opt.step()\ngen_loss.backward()  # failed",
        "if dis_loss is not None:\n    dis_loss.backward()\n    self.dis_opt.step()\ngen_loss.backward()  # failed",
        "if dis_loss is None:\n    pass\nelse:\n    self.dis_opt.step()\ngen_loss.backward()  # failed",
        "if dis_loss is not None:\n    self.dis_opt.step()\n    gen_loss.backward()  # failed",
    ],
)
def test_step_before_backward_is_named(body: str, tmp_path: Path) -> None:
    """Also in a branch that may have run: the parameter was changed, and by that optimizer."""
    found = words(tmp_path, body)
    assert "runs `self.dis_opt.step()`, which changes `self.dis.features.4.weight` [1, 32, 4, 4]" in found
    assert "Call every backward() before the first step()" in found


@pytest.mark.parametrize(
    "body",
    [
        "if dis_loss is not None:\n    self.dis_opt.step()\n    return\ngen_loss.backward()  # failed",
        "if dis_loss is not None:\n    self.dis_opt.step()\nelse:\n    gen_loss.backward()  # failed",
        "try:\n    self.check()\nexcept ValueError:\n    self.dis_opt.step()\ngen_loss.backward()  # failed",
        "gen_loss.backward()  # failed\nself.dis_opt.step()",
    ],
)
def test_step_that_did_not_run_before_is_not(body: str, tmp_path: Path) -> None:
    """In the other arm, in a branch that leaves, in a handler, behind the line."""
    assert "runs `self.dis_opt.step()`" not in words(tmp_path, body)
