"""A weight that an optimizer's step changed between forward and backward(): the step, also below a condition."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

MODEL = """class Gan:
    def backward(self, gen_loss, dis_loss=None):
{body}
"""
MESSAGE = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: "
    "[torch.FloatTensor [1, 32, 4, 4]] is at version 2; expected version 1 instead."
)


def words(folder: Path, body: str, *values: tuple[str, str], more: str = "") -> str:
    """Of backward() in the line that ends with `# failed`."""
    return explanation(folder, body, *values, more=more).words or ""


def explanation(folder: Path, body: str, *values: tuple[str, str], more: str = "") -> Explanation:
    """With recorded values of variables. `more`: of the class, or of the file."""
    file = folder / "gan.py"
    text = MODEL.format(body=textwrap.indent(body, 8 * " ")) + more
    file.write_text(text, encoding="utf-8")
    line = next(number for number, item in enumerate(text.splitlines(), 1) if "# failed" in item)
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    held = [
        VariableReport(name="changed parameter", value="self.dis.features.4.weight [1, 32, 4, 4]"),
        VariableReport(name="its optimizer", value="self.dis_opt"),
        *(VariableReport(name=name, value=value) for name, value in values),
    ]
    frames = [PythonFrame(function="Gan.backward", file=str(file), line=line)]
    return explained(snapshot, ExceptionReport(type="RuntimeError", message=MESSAGE, variables=held), frames)


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


@pytest.mark.parametrize(
    "body",
    [
        """for i, x in enumerate(self.data):
    if i:
        self.dis_opt.step()
    out = self.dis(x)
    loss = F.mse_loss(out, x)
    with torch.no_grad():
        self.dis.features[4].weight.clamp_(-1, 1)
    loss.backward()  # failed""",
        """fake = self.gen(self.noise)
self.dis_opt.step()
loss = self.dis(fake).mean()
loss.backward()  # failed""",
        """loss = self.dis(self.real).mean()
loss.backward()
self.dis_opt.step()
loss = self.dis(self.real).mean()
loss.backward()  # failed""",
        """total = 0
self.dis_opt.step()
total += self.dis(self.real).mean()
total.backward()  # failed""",
        """losses = []
self.dis_opt.step()
for x in self.data:
    losses.append(self.dis(x))
loss = sum(losses)
loss.backward()  # failed""",
        """with torch.no_grad():
    old = self.dis(self.real)
kept = self.dis(self.real).detach()
self.dis_opt.step()
loss = F.mse_loss(self.dis(self.real), old) + kept.mean()
loss.backward()  # failed""",
        """h = torch.zeros(2)
for x in self.data:
    if x:
        self.dis_opt.step()
    h = self.dis(h.detach())
    loss = h.sum()
    loss.backward()  # failed""",
    ],
    ids=["data of a loop", "another model", "bound anew", "added to", "list", "without gradients", "cut off"],
)
def test_step_above_the_forward_is_not_blamed(body: str, tmp_path: Path) -> None:
    """The weight was saved after the step: another line has changed it since."""
    found = explanation(tmp_path, body)
    assert "self.dis_opt.step()" not in f"{found.words} {found.subject}"


@pytest.mark.parametrize(
    "body",
    [
        """fake = self.dis(self.noise)
self.dis_opt.step()
loss = F.mse_loss(fake, self.real)
loss.backward()  # failed""",
        """fakes = [self.dis(x) for x in self.data]
self.dis_opt.step()
for fake in fakes:
    loss = fake.mean()
    loss.backward()  # failed""",
        """losses = []
for x in self.data:
    losses.append(self.dis(x))
self.dis_opt.step()
loss = sum(losses)
loss.backward()  # failed""",
        """total = self.dis(self.real).mean()
self.dis_opt.step()
total += self.dis(self.noise).mean()
total.backward()  # failed""",
        """h = torch.zeros(2)
for x in self.data:
    self.dis_opt.step()
    h = self.dis(h)
    loss = h.sum()
    loss.backward()  # failed""",
    ],
    ids=["before", "items of a list", "list", "added to", "round before"],
)
def test_step_between_forward_and_loss_is_named(body: str, tmp_path: Path) -> None:
    """Though the loss itself was computed after it."""
    assert "runs `self.dis_opt.step()`, which changes" in words(tmp_path, body)


CONDITIONAL = "if dis_loss is not None:\n    self.dis_opt.step()\ngen_loss.backward()  # failed"


@pytest.mark.parametrize("body", [CONDITIONAL, "pass\nif dis_loss: self.dis_opt.step()\ngen_loss.backward()  # failed"])
def test_step_below_a_condition_is_said_to_have_run_if_it_did(body: str, tmp_path: Path) -> None:
    found = explanation(tmp_path, body)
    assert (found.subject or "").endswith("after the forward, if line 4 ran")
    assert "which changes `self.dis.features.4.weight` [1, 32, 4, 4] if it ran, and" in (found.words or "")


def test_step_below_a_condition_that_held_is_said_plainly(tmp_path: Path) -> None:
    """By the recorded value of its variable."""
    found = explanation(tmp_path, CONDITIONAL, ("dis_loss", "[] float32 0.5"))
    assert (found.subject or "").endswith("after the forward")
    assert "if it ran" not in (found.words or "")


OWN_FORWARD = "    def forward(self, z):\n        return self.gen(z)\n"
WITHOUT_GRAPH = "    @torch.no_grad()\n    def targets(self, x):\n        return self.dis(x)\n"
OLD_LOSS = "score = self.dis(x)\nloss = F.mse_loss(score, old)\nself.dis_opt.step()\nloss.backward()  # failed"


@pytest.mark.parametrize(
    ("made", "more"),
    [
        ("old = self(z)", OWN_FORWARD),
        ("old = self.dis(real).data", ""),
        ("old = self.targets(real)", WITHOUT_GRAPH),
        ("old = self.dis(real).argmax(dim=1)", ""),
        ("old = (self.dis(real) > 0).float()", ""),
        ("old = self.dis.features[4].weight.numel()", ""),
        ("old = len(self.dis)", ""),
        ("old = float(self.dis(real))", ""),
    ],
    ids=["own forward", "data", "method without gradients", "argmax", "mask", "number", "length", "float"],
)
def test_line_that_keeps_no_graph_of_the_module_is_not_one_to_repeat(made: str, more: str, tmp_path: Path) -> None:
    """Only what needs the old value is: the forward below it."""
    said = words(tmp_path, f"{made}\n{OLD_LOSS}", more=more)
    assert "`loss` (line 4: `score = self.dis(x)`, then line 5) needs the old value" in said


@pytest.mark.parametrize(
    ("made", "more"),
    [
        ("old = self(z)", OWN_FORWARD.replace("gen", "dis")),
        ("old = self.dis(real).float()", ""),
        ("old = self.targets(real)", WITHOUT_GRAPH.replace("    @torch.no_grad()\n", "")),
    ],
    ids=["own forward", "float32", "method"],
)
def test_line_that_keeps_a_graph_of_the_module_is_one_to_repeat(made: str, more: str, tmp_path: Path) -> None:
    said = words(tmp_path, f"{made}\n{OLD_LOSS}", more=more)
    assert f"`loss` (line 3: `{made}`, then lines 4 and 5) needs the old value" in said


@pytest.mark.parametrize(
    "made",
    [
        "old = device_of(self.dis)",
        "old = self.dis.encode(real)",
        "old = self.dis(real)\nold.detach_()",
        "old = self(z)",
        "old = super().forward(z)",
    ],
    ids=["unknown function", "unknown method", "cut in place", "unknown forward", "forward of the base"],
)
def test_no_line_is_named_where_the_module_goes_into_what_is_not_followed(made: str, tmp_path: Path) -> None:
    said = words(tmp_path, f"{made}\n{OLD_LOSS}")
    assert "Compute it anew, from the forward on, behind line" in said
