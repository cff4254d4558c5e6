"""A loss computed before the step of an optimizer whose parameters it needs, where the recording names no weight."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

MESSAGE = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: "
    "[torch.FloatTensor [64, 1]]{output}, is at version 2; expected version 1 instead."
)
TRANSPOSED = ", which is output 0 of AsStridedBackward0"
AGENT = """class Agent:
    def __init__(self, actor, critic):
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Linear(64, 1))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Linear(64, 1))
        self.actor_opt = torch.optim.Adam(self.actor.parameters())
        self.critic_opt = torch.optim.Adam(self.critic.parameters())
        self.automatic_optimization = False

    def actor_loss(self, state):
        return -self.critic(self.actor(state)).mean()

    def critic_loss(self, state, target):
        return F.mse_loss(self.critic(state), target)

    def learn(self, state, target):
{learn}

{more}
"""
UPDATE = """
def update(opt, loss):
    opt.zero_grad()
    loss.backward()  # failed
    opt.step()
"""


def told(folder: Path, learn: str, *values: tuple[str, str], more: str = "", output: str = TRANSPOSED) -> Explanation:
    """Of the line that ends with `# failed`; of a line that ends with `# calls`, a call that led to it."""
    indented = "\n".join(f"        {line}" for line in learn.splitlines())
    return of_text(folder, AGENT.format(learn=indented, more=more), *values, output=output)


def of_text(folder: Path, text: str, *values: tuple[str, str], output: str = TRANSPOSED) -> Explanation:
    """Of a whole file."""
    file = folder / "agent.py"
    file.write_text(text, encoding="utf-8")
    lines = text.splitlines()
    numbers = [n for mark in ("# failed", "# calls", "# first") for n, item in enumerate(lines, 1) if mark in item]
    held = [VariableReport(name=name, value=value) for name, value in values]
    frames = [PythonFrame(function=function_at(lines, number), file=str(file), line=number) for number in numbers]
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    error = ExceptionReport(type="RuntimeError", message=MESSAGE.format(output=output), variables=held)
    return explained(snapshot, error, frames)


def function_at(lines: list[str], number: int) -> str:
    """The name of the one around a line."""
    line = next((item for item in lines[number - 1 :: -1] if item.lstrip().startswith("def ")), "")
    indent = len(line) - len(line.lstrip())
    inside = len(lines[number - 1]) - len(lines[number - 1].lstrip())
    return line.split("def ")[1].split("(")[0] if line and inside > indent else "<module>"


BOTH = "critic_loss = self.critic_loss(state, target)\nactor_loss = self.actor_loss(state)\n"


@pytest.mark.parametrize(
    ("learn", "more"),
    [
        (BOTH + "update(self.critic_opt, critic_loss)\nupdate(self.actor_opt, actor_loss)  # calls", UPDATE),
        (BOTH + "critic_loss.backward()\nself.critic_opt.step()\nactor_loss.backward()  # failed", ""),
        (
            BOTH + "scaler.scale(critic_loss).backward()\nscaler.step(self.critic_opt)\n"
            "scaler.scale(actor_loss).backward()  # failed",
            "",
        ),
        (
            BOTH + "self.manual_backward(critic_loss)\nself.critic_opt.step()\n"
            "self.manual_backward(actor_loss)  # failed",
            "",
        ),
        (
            BOTH + "self.improve(critic_loss)\nactor_loss.backward()  # failed",
            "    def improve(self, loss):\n        loss.backward()\n        self.critic_opt.step()\n",
        ),
    ],
    ids=["helper", "direct", "scaler", "manual optimization", "method"],
)
def test_loss_computed_before_the_step_is_to_be_moved_behind_it(learn: str, more: str, tmp_path: Path) -> None:
    found = told(tmp_path, learn, more=more)
    assert "`self.critic_opt.step()`" in (found.subject or "")
    assert "changed `self.critic` after `actor_loss` was computed (line 17)" in (found.subject or "")
    assert "(line 17: `actor_loss = self.actor_loss(state)`) was computed with it before" in (found.words or "")
    assert f"Move line 17 behind line {18 if 'update' in learn or 'improve' in learn else 19}" in (found.words or "")


def test_several_steps_are_said_in_four_lines_of_a_report(tmp_path: Path) -> None:
    learn = (
        BOTH + "update(self.critic_opt, critic_loss)\nupdate(self.actor_opt, other)\nupdate(self.actor_opt, actor_loss)"
    )
    said = told(tmp_path, f"{learn}  # calls", more=UPDATE).words or ""
    assert "Lines 18 and 19 run `self.critic_opt.step()` and `self.actor_opt.step()`" in said
    assert "change `self.critic` and `self.actor`, but `actor_loss` (line 17) was computed with them before" in said
    assert "Move line 17 behind line 19" in said
    assert len(textwrap.wrap(said, 91)) <= 4


def test_loss_that_is_read_before_the_step_is_not_to_be_moved(tmp_path: Path) -> None:
    learn = BOTH + "log(actor_loss)\nself.critic_opt.step()\nactor_loss.backward()  # failed"
    assert "Compute it anew behind line 19" in (told(tmp_path, learn).words or "")


def test_forward_above_the_step_is_named_with_its_loss(tmp_path: Path) -> None:
    learn = "value = self.critic(state)\nself.critic_opt.step()\nloss = value.mean()\nloss.backward()  # failed"
    said = told(tmp_path, learn).words or ""
    assert "`loss` (line 16: `value = self.critic(state)`, then line 18)" in said
    assert "Compute all of it behind line 17" in said


def test_attribute_that_a_method_sets_is_followed(tmp_path: Path) -> None:
    learn = "self.losses(state)\nself.critic_opt.step()\nself.loss.backward()  # failed"
    more = "    def losses(self, state):\n        self.loss = self.critic(state).mean()\n"
    said = told(tmp_path, learn, more=more)
    assert "changed `self.critic` after `self.loss` was computed (line 16)" in (said.subject or "")
    assert "Compute it anew behind line 17" in (said.words or "")


def test_modules_are_followed_through_arguments(tmp_path: Path) -> None:
    text = """judge, maker = nn.Linear(64, 1), nn.Linear(4, 64)
opt_a = torch.optim.Adam(judge.parameters())
opt_b = torch.optim.Adam(maker.parameters())
def train(d, g, first, second, x):
    loss_g = d(g(x)).mean()
    first.step()
    loss_g.backward()  # failed
    second.step()
train(judge, maker, opt_a, opt_b, x)  # calls
"""
    found = of_text(tmp_path, text)
    assert "`first.step()` (line 6) changed `d` after `loss_g` was computed (line 5)" in (found.subject or "")
    assert "Move line 5 behind line 6" in (found.words or "")


ROUNDS = """for _ in range(3):
    h = self.critic(h)
    loss = h.sum()
    loss.backward()  # failed
    self.critic_opt.step()"""
WITHOUT_GRAPH = """with torch.no_grad():
    old = self.critic(state)
self.critic_opt.step()
loss = F.mse_loss(self.critic(state), old)
loss.backward()  # failed"""


CUT = "old = {}\nloss = F.mse_loss(self.actor(state), old)\nself.critic_opt.step()\nloss.backward()  # failed"
SCHEDULED = "self.critic_scheduler.step()\nactor_loss.backward()  # failed"


@pytest.mark.parametrize(
    "learn",
    [
        BOTH + "self.actor_opt.step()\ncritic_loss.backward()  # failed",
        BOTH + "scheduler.step()\nactor_loss.backward()  # failed",
        BOTH + "self.env.step(state)\nactor_loss.backward()  # failed",
        "self.critic_opt.step()\nactor_loss = self.actor_loss(state)\nactor_loss.backward()  # failed",
        BOTH + "actor_loss.backward()  # failed\nself.critic_opt.step()",
        BOTH + "if target is None:\n    self.critic_opt.step()\n    return\nactor_loss.backward()  # failed",
        ROUNDS,
        WITHOUT_GRAPH,
        CUT.format("Categorical(logits=self.critic(state)).sample()"),
        CUT.format("self.critic(state).max(1)[1]"),
        CUT.format("torch.max(self.critic(state), dim=1).indices"),
        CUT.format("{k: v.detach() for k, v in self.critic(state).items()}"),
        CUT.replace("old", "_, old", 1).format("self.critic(state).max(1)"),
        "self.critic_scheduler = LambdaLR(self.critic_opt, f)\n" + BOTH + SCHEDULED,
        BOTH + "quadcopter.step(state)\nactor_loss.backward()  # failed",
    ],
    ids=[
        "another module",
        "scheduler",
        "environment",
        "computed behind",
        "step behind",
        "left",
        "state kept",
        "no grad",
        "sample",
        "indices of a maximum",
        "named indices",
        "detached parts",
        "unpacked indices",
        "scheduler of an optimizer",
        "opt within a word",
    ],
)
def test_step_that_changed_nothing_that_the_loss_needs_is_not_named(learn: str, tmp_path: Path) -> None:
    found = told(tmp_path, learn)
    assert "after `" not in f"{found.subject}"
    assert "step()" not in f"{found.words} {found.subject}"


STEPPED = BOTH + "self.critic_opt.step()\nactor_loss.backward()  # failed"


def test_activation_is_no_parameter(tmp_path: Path) -> None:
    """By the operation whose output it was."""
    found = told(tmp_path, STEPPED, output=", which is output 0 of ReluBackward0")
    assert "step()" not in f"{found.words} {found.subject}"


def test_leaf_may_be_a_parameter_but_no_weight_of_a_linear_layer(tmp_path: Path) -> None:
    """Which autograd saves as a transposed view."""
    assert "step()" not in f"{told(tmp_path, STEPPED, output='').subject}"
    text = AGENT.replace("self.critic = nn.Sequential(", "self.critic = nn.Sequential(nn.LayerNorm(4), ")
    learn = "\n".join(f"        {line}" for line in STEPPED.splitlines())
    found = of_text(tmp_path, text.format(learn=learn, more=""), output="")
    assert "`self.critic_opt.step()` (line 18) may have changed what `actor_loss` (line 17) needs" in (
        found.subject or ""
    )
    learn = STEPPED.replace("self.critic_opt", "state += target\nself.critic_opt")
    found = told(tmp_path, learn, output="")
    assert found.subject is None
    assert "line 18 (`state += target`) seems to change a tensor in place, and line 19 (`self.critic_opt.step()`)" in (
        found.words or ""
    )


@pytest.mark.parametrize(
    "learn",
    [
        STEPPED.replace("self.critic_opt", "target += state\nself.critic_opt"),
        BOTH + "if target is None:\n    self.critic_opt.step()\nactor_loss.backward()  # failed",
        BOTH + "other_opt.step()\nactor_loss.backward()  # failed",
    ],
    ids=["another line", "condition", "unknown parameters"],
)
def test_it_is_said_less_surely_where_something_else_fits(learn: str, tmp_path: Path) -> None:
    found = told(tmp_path, learn)
    assert "may have changed what `actor_loss` (line 17) needs" in (found.subject or "")
    assert "If that loss goes through parameters of" in (found.words or "")


def test_recorded_weights_make_it_sure(tmp_path: Path) -> None:
    learn = STEPPED.replace("self.critic_opt", "target += state\nself.critic_opt")
    weights = ("changed parameters", "self.critic.1.weight,self.second.1.weight [1, 64]")
    found = told(tmp_path, learn, weights)
    assert "changed `self.critic` after" in (found.subject or "")
    assert "the old values (of `self.critic.1.weight` [1, 64])" in (found.words or "")


def test_recorded_weight_of_another_module_is_another_matter(tmp_path: Path) -> None:
    weight = ("changed parameter", "self.actor.1.weight [1, 64]")
    found = told(tmp_path, STEPPED, weight)
    assert "step()" not in f"{found.words} {found.subject}"


def test_recorded_weight_is_found_where_a_scaler_steps(tmp_path: Path) -> None:
    learn = "self.losses(state)\nscaler.step(self.critic_opt)\nscaler.scale(self.loss).backward()  # failed"
    more = "    def losses(self, state):\n        value = self.critic(state)\n        self.loss = value.mean()\n"
    weight = ("changed parameter", "self.critic.1.weight [1, 64]"), ("its optimizer", "self.critic_opt")
    found = told(tmp_path, learn, *weight, more=more)
    assert "changed `self.critic` after `self.loss` was computed (line 16)" in (found.subject or "")


LEFT = """    def improve(self, loss):
        if self.steps < 200:
            return
        self.critic_opt.step()
"""


def test_step_that_a_return_may_leave_out_is_not_sure(tmp_path: Path) -> None:
    found = told(tmp_path, BOTH + "self.improve(critic_loss)\nactor_loss.backward()  # failed", more=LEFT)
    assert "may have changed what `actor_loss` (line 17) needs" in (found.subject or "")


def test_line_of_another_file_makes_it_less_sure(tmp_path: Path) -> None:
    (tmp_path / "bank.py").write_text("def enqueue(kept, x):\n    kept[0:4] = x\n", encoding="utf-8")
    text = "from bank import enqueue\n" + AGENT.format(
        learn="\n".join(f"        {line}" for line in STEPPED.splitlines()), more=""
    )
    assert "may have changed what `actor_loss` (line 18) needs" in (of_text(tmp_path, text).subject or "")
    output = ", which is output 0 of SigmoidBackward0"
    assert "bank.py:2 (`kept[0:4] = x`) is the only line of the program's files" in (
        of_text(tmp_path, text, output=output).words or ""
    )


def test_program_s_own_mode_without_gradients_is_looked_into(tmp_path: Path) -> None:
    own = "@contextmanager\ndef frozen(net):\n    with {}:\n        yield\n"
    learn = WITHOUT_GRAPH.replace("torch.no_grad()", "frozen(self.critic)").replace(
        "loss = F.mse_loss(self.critic(state), old)\n", ""
    )
    learn = learn.replace("self.critic_opt.step()", "loss = F.mse_loss(self.actor(state), old)\nself.critic_opt.step()")
    assert "step()" not in f"{told(tmp_path, learn, more=own.format('torch.no_grad()')).subject}"
    assert "changed `self.critic`" in f"{told(tmp_path, learn, more=own.format('timed()')).subject}"


def test_part_of_a_module_need_not_take_part_in_each_forward(tmp_path: Path) -> None:
    text = AGENT.replace("self.critic.parameters()", "self.critic.head.parameters()")
    learn = "\n".join(f"        {line}" for line in STEPPED.splitlines())
    found = of_text(tmp_path, text.format(learn=learn, more=""))
    assert "may have changed what `actor_loss` (line 17) needs" in (found.subject or "")


def test_loop_around_the_step_is_what_the_loss_goes_behind(tmp_path: Path) -> None:
    """With the lines that made what the loop sets anew."""
    learn = """fake = self.actor(state)
loss = self.critic(fake).mean()
for _ in range(3):
    {}
    self.critic_opt.step()
loss.backward()  # failed"""
    said = told(tmp_path, learn.format("pass")).words or ""
    assert "behind the loop of line 18" in said
    said = told(tmp_path, learn.format("fake = self.actor(state).detach()")).words or ""
    assert "Compute it anew with line 16 behind the loop of line 18" in said


# ---- lines that change a tensor in place


@pytest.mark.parametrize(
    "line",
    [
        "total = 0\nfor _ in state:\n    total += loss",
        "layers = []\nlayers += [nn.Linear(2, 2)]",
        "history = np.zeros(3)\nhistory[0] = state",
        "losses = []\nlosses[0] = state",
        "epsilon *= 0.9",
        "scaler.unscale_(self.critic_opt)",
    ],
)
def test_count_or_container_is_no_tensor(line: str, tmp_path: Path) -> None:
    found = told(tmp_path, f"{line}\nloss = make(state)\nloss.backward()  # failed", output="")
    assert "in place" not in f"{found.words}"


def test_tensor_scaled_by_a_number_is_changed_in_place(tmp_path: Path) -> None:
    learn = "h = torch.sigmoid(state)\nh *= 0.9\nloss = make(h)\nloss.backward()  # failed"
    output = ", which is output 0 of SigmoidBackward0"
    assert "Line 17 (`h *= 0.9`) changes `h` in place" in (told(tmp_path, learn, output=output).words or "")


@pytest.mark.parametrize(
    "line",
    [
        "t.data.lerp_(p.data, 0.1)",
        "torch.nn.init.zeros_(t)",
        "t.grad.zero_()",
        "nn.utils.clip_grad_norm_(t, 1)",
    ],
)
def test_line_that_raises_no_version_is_not_blamed(line: str, tmp_path: Path) -> None:
    found = told(tmp_path, f"{line}\nloss = make(state)\nloss.backward()  # failed", output="")
    assert "in place" not in f"{found.words}"


def test_line_behind_the_running_one_is_not_blamed(tmp_path: Path) -> None:
    """In each function on the stack, without a loop around both."""
    behind = "loss = make(state)\nloss.backward()  # failed\nstate.mul_(2)"
    assert "in place" not in (told(tmp_path, behind, output="").words or "")
    looped = "for _ in range(3):\n    loss = make(state)\n    loss.backward()  # failed\n    state.mul_(2)"
    assert "line 19 (`state.mul_(2)`) is the only line" in (told(tmp_path, looped, output="").words or "")


def test_line_behind_in_a_helper_may_have_run_for_another_loss(tmp_path: Path) -> None:
    helper = UPDATE + "    state.mul_(2)\n"
    twice = "other = make(state)\nloss = make(state)\nupdate(a, other)\nupdate(b, loss)  # calls"
    once = "loss = make(state)\nupdate(b, loss)  # calls"
    output = ", which is output 0 of MulBackward0"
    assert "`state.mul_(2)`) is the only line" in (told(tmp_path, twice, more=helper, output=output).words or "")
    assert "in place" not in (told(tmp_path, once, more=helper, output=output).words or "")


def test_parameters_of_a_module_without_gradients_are_not_blamed(tmp_path: Path) -> None:
    learn = """with torch.no_grad():
    for p, t in zip(self.critic.parameters(), self.target.parameters()):
        t.lerp_(p, 0.1)
    wanted = self.target(state)
loss = make(state)
loss.backward()  # failed"""
    assert "in place" not in (told(tmp_path, learn, output="").words or "")
    trained = learn.replace("    wanted = self.target(state)", "wanted = self.target(state)")
    assert "(`t.lerp_(p, 0.1)`) is the only line" in (told(tmp_path, trained, output="").words or "")
