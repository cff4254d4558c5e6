"""What one step leaves for the next, or one loss for another: of loops over losses, kept results and cached methods."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

TWICE = "Trying to backward through the graph a second time (or directly access saved tensors"
IN_PLACE = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: "
    "[torch.FloatTensor [64, 1]], which is output 0 of AsStridedBackward0, is at version 12; expected version 11"
)
SCALED = "unscale_() is being called after step()."
UNSCALED = "unscale_() has already been called on this optimizer since the last update()."
CUT = "element 0 of tensors does not require grad and does not have a grad_fn"
STEPS = "Tried to step 16 times. The specified number of total steps is 15"


def of_text(
    folder: Path, text: str, message: str, *values: tuple[str, str], kind: str = "RuntimeError", steps: int = 0
) -> Explanation:
    """Of the line with `# failed`, called from that with `# calls`."""
    file = folder / "train.py"
    file.write_text(text, encoding="utf-8")
    lines = text.splitlines()
    numbers = [n for mark in ("# failed", "# calls") for n, item in enumerate(lines, 1) if mark in item]
    held = [VariableReport(name=name, value=value) for name, value in values]
    frames = [PythonFrame(function="step", file=str(file), line=number) for number in numbers]
    snapshot: Any = SimpleNamespace(
        argv=(), created_wall_ns=time.time_ns() + 10**9, step=steps, step_source="optimizer steps"
    )
    return explained(snapshot, ExceptionReport(type=kind, message=message, variables=held), frames)


BAG = """class Losses(dict):
    def backward(self):
        for name, value in self.items():
            value.backward({options})  # failed


def train(model, loader):
    for x in loader:
        losses = Losses(model(x))
        losses.backward()  # calls
"""
UPDATE = """class Trainer:
    def update(self, losses):
        for name in ("D", "G"):
            self.opts[name].zero_grad()
            losses[name].backward(retain_graph=name == "D")  # failed
            self.opts[name].step()
"""


def test_losses_of_one_loop_that_share_a_graph_are_to_be_added(tmp_path: Path) -> None:
    found = of_text(tmp_path, BAG.format(options=""), TWICE, ("value", "[] float32 0.5"))
    assert "Where two of them come from the same forward" in (found.words or "")
    assert "`sum(self.values()).backward()`" in (found.words or "")
    assert "computed once" not in (found.words or "")
    assert "probably share a graph" in (found.subject or "")


def test_a_loop_that_may_keep_the_graph_does_not_free_it(tmp_path: Path) -> None:
    found = of_text(tmp_path, BAG.format(options='retain_graph=name != "kl"'), TWICE, ("value", "[] float32 0.5"))
    assert "same forward" not in (found.words or "")


def test_a_generator_may_compute_each_loss_in_its_round(tmp_path: Path) -> None:
    text = (
        "def step(model, x):\n    losses = model.losses(x)\n    for loss in losses:\n"
        "        loss.backward()  # failed\n"
    )
    assert "same forward" not in (of_text(tmp_path, text, TWICE, ("losses", "generator")).words or "")
    assert "same forward" not in (of_text(tmp_path, text, TWICE).words or "")
    assert "(`sum(losses).backward()`)" in (of_text(tmp_path, text, TWICE, ("losses", "list of 2")).words or "")


def test_losses_of_a_list_are_added_as_a_list(tmp_path: Path) -> None:
    text = "def step(losses):\n    for i in range(2):\n        losses[i].backward()  # failed\n"
    assert "(`sum(losses).backward()`)" in (of_text(tmp_path, text, TWICE, ("losses", "list of 2")).words or "")
    assert "(`sum(losses.values()).backward()`)" in (
        of_text(tmp_path, text, TWICE, ("losses", "dict of 2")).words or ""
    )


def test_a_loss_that_the_loop_computes_is_none_of_before_it(tmp_path: Path) -> None:
    text = (
        "def step(model, losses, x):\n    for name in ('a', 'b'):\n        losses[name] = model(x, name)\n"
        "        losses[name].backward()  # failed\n"
    )
    assert "same forward" not in (of_text(tmp_path, text, TWICE, ("losses", "dict of 2")).words or "")


def test_a_step_in_each_round_changes_what_the_loss_of_a_later_one_needs(tmp_path: Path) -> None:
    found = of_text(tmp_path, UPDATE, IN_PLACE, ("losses", "dict of 2"), ("name", "str of 1"))
    assert "Line 6 runs `self.opts[name].step()` in each round of the loop at line 3" in (found.words or "")
    assert "Call every backward() before the first step()" in (found.words or "")
    assert "(line 6) of an earlier round probably changed what `losses[name]` needs" in (found.subject or "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("            self.opts[name].step()\n", "        self.opts[name].step()\n"),
        (
            "            self.opts[name].step()\n",
            "            if name in self.on:\n                self.opts[name].step()\n",
        ),
        ("            self.opts[name].zero_grad()\n", "            losses = self.compute()\n"),
        ("    def update(self, losses):\n", "    def update(self, losses):\n        self.gate.mul_(0.5)\n"),
    ],
    ids=["behind the loop", "below a condition", "computed in its round", "another line changes in place"],
)
def test_nothing_is_said_of_a_step_that_need_not_be_the_reason(old: str, new: str, tmp_path: Path) -> None:
    found = of_text(tmp_path, UPDATE.replace(old, new), IN_PLACE, ("losses", "dict of 2"))
    assert "earlier round" not in (found.subject or "")
    assert "in each round" not in (found.words or "")


CARRIED = """def repackage(hidden):
    return tuple(item.detach() for item in hidden)


class Trainer:
    def __init__(self, cfg):
        self.model = CharModel(cfg)
        self.state = TrainState()

    def training_step(self, x, y):
        before = {before}
        logits, hidden = self.model(x, before)
        self.state.hidden["train"] = hidden
        return F.cross_entropy(logits, y)

    def fit(self, loader):
        for x, y in loader:
            loss = self.training_step(x, y)
            loss.backward()  # failed
"""


def test_a_state_that_an_object_of_self_keeps_carries_a_graph(tmp_path: Path) -> None:
    found = of_text(tmp_path, CARRIED.format(before='self.state.hidden.get("train")'), TWICE)
    assert "`self.state.hidden` (line 13" in (found.words or "")
    assert "Store it detached" in (found.words or "")


@pytest.mark.parametrize(
    "before",
    [
        'repackage(self.state.hidden["train"])',
        'self.state.hidden["train"]\n        before = repackage(before)',
        'self.state.hidden["train"]\n        before = tuple(item.detach() for item in before)',
    ],
    ids=["by a function", "by a function in a line of its own", "in the method"],
)
def test_a_state_that_is_detached_when_it_is_read_carries_none(before: str, tmp_path: Path) -> None:
    assert "self.state.hidden" not in (of_text(tmp_path, CARRIED.format(before=before), TWICE).words or "")


def test_a_state_whose_holder_is_made_anew_carries_none(tmp_path: Path) -> None:
    text = CARRIED.format(before='self.state.hidden.get("train")').replace(
        "            loss = ", "            self.begin()\n            loss = "
    )
    text += "\n    def begin(self):\n        self.state = TrainState()\n"
    assert "self.state.hidden" not in (of_text(tmp_path, text, TWICE).words or "")


CACHED = """class Grid(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n, self.proj = n, nn.Linear(2, n)

    @{kept}
    def features(self):
        return torch.tanh({value})


def step(model, x):
    for item in x:
        loss = model(item)
        loss.backward()  # failed
"""


@pytest.mark.parametrize("kept", ["cached_property", "functools.cached_property", "lru_cache(maxsize=1)", "cache"])
def test_a_cached_result_of_a_layer_keeps_its_graph(kept: str, tmp_path: Path) -> None:
    found = of_text(tmp_path, CACHED.format(kept=kept, value="self.proj(GRID)"), TWICE)
    assert "`Grid.features` (line 7)" in (found.words or "")
    assert "keeps of `Grid.features`" in (found.subject or "")


@pytest.mark.parametrize(
    ("kept", "value", "more"),
    [
        ("property", "self.proj(GRID)", ""),
        ("cached_property", "GRID * self.n", ""),
        ("cached_property", "self.proj(GRID).detach()", ""),
        ("cached_property", "self.proj(GRID)", "\ndef forget(grid):\n    del grid.features\n"),
    ],
    ids=["not cached", "no layer", "detached", "forgotten"],
)
def test_a_method_that_keeps_no_graph_is_not_named(kept: str, value: str, more: str, tmp_path: Path) -> None:
    assert "features" not in (of_text(tmp_path, CACHED.format(kept=kept, value=value) + more, TWICE).words or "")


AMP = """class Trainer:
    def step(self, loss, last):
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.opt)  # failed
        {step}
        if last:
            {inside}self.scaler.update()
"""


def test_an_update_below_a_condition_of_its_own_is_named(tmp_path: Path) -> None:
    found = of_text(tmp_path, AMP.format(step="self.scaler.step(self.opt)", inside=""), SCALED)
    assert "`self.scaler.update()` (line 7) runs only where `last` (line 6) holds" in (found.words or "")


def test_an_update_below_the_condition_of_the_step_is_not_blamed(tmp_path: Path) -> None:
    text = AMP.format(step="self.log(loss)", inside="self.scaler.step(self.opt)\n            ")
    assert "runs only where" not in (of_text(tmp_path, text, SCALED).words or "")


DICE = """class Dice(nn.Module):
    def forward(self, logits, target):
        pred = (torch.sigmoid(logits) > 0.5).float()
        {line}
        return 1 - {returned}


def step(criterion, logits, target):
    losses = criterion(logits, target)
    losses["total"].backward()  # failed
"""


def test_a_threshold_in_a_loss_can_cut_its_graph(tmp_path: Path) -> None:
    found = of_text(tmp_path, DICE.format(line="both = (pred * target).sum()", returned="both"), CUT)
    assert "(`pred = (torch.sigmoid(logits) > 0.5).float()`) can cut" in (found.words or "")


def test_a_threshold_that_only_a_metric_uses_is_not_blamed(tmp_path: Path) -> None:
    text = DICE.format(line="self.hits = (pred * target).sum()", returned="(logits * target).sum()")
    assert "threshold" not in (of_text(tmp_path, text, CUT).words or "")


def test_a_frozen_model_is_not_explained_by_a_threshold(tmp_path: Path) -> None:
    text = DICE.format(line="both = (pred * target).sum()", returned="both")
    text += "\ndef freeze(model):\n    model.requires_grad_(False)\n"
    assert "threshold" not in (of_text(tmp_path, text, CUT).words or "")


SCHEDULE = """class Learner:
    def __init__(self, opt, total):
        self.opt = opt
        self.sched = OneCycleLR(opt, max_lr=0.1, total_steps=100 // 4)

    def step(self):
        if self.boundary:
            self.opt.step()
        {indent}self.sched.step()  # failed
"""


@pytest.mark.parametrize("indent", ["", "    "])
def test_a_schedule_stepped_more_often_than_the_optimizer_is_said_to_be(indent: str, tmp_path: Path) -> None:
    found = of_text(tmp_path, SCHEDULE.format(indent=indent), STEPS.replace("15", "25"), kind="ValueError")
    assert ("`self.opt.step()` (line 8) runs only where `self.boundary` holds" in (found.words or "")) == (not indent)


def test_a_loop_that_went_through_all_its_losses_before_does_not_share_a_graph(tmp_path: Path) -> None:
    """A look-alike: each step would fail. What they have from before is freed."""
    text = BAG.format(options="") + "        opt.step()\n"
    value = ("value", "[] float32 0.5")
    assert "share a graph" in (of_text(tmp_path, text, TWICE, value).subject or "")
    text = "def step(losses, opt):\n    for loss in losses:\n        loss.backward()  # failed\n    opt.step()\n"
    held = ("losses", "list of 2")
    assert "share a graph" in (of_text(tmp_path, text, TWICE, held).subject or "")
    assert "same forward" not in (of_text(tmp_path, text, TWICE, held, steps=1).words or "")
    inside = text.replace("    opt.step", "        opt.step")
    assert "share a graph" in (of_text(tmp_path, inside, TWICE, held, steps=1).subject or "")


READER = """class Reader:
    def __call__(self, i):
        return torch.load(i)


"""


def test_what_a_data_set_caches_has_no_graph(tmp_path: Path) -> None:
    text = READER + CACHED.format(kept="lru_cache", value="self.proj(GRID)")
    assert "features" in (of_text(tmp_path, text, TWICE).words or "")
    assert "features" not in (of_text(tmp_path, text.replace("nn.Module", "Dataset"), TWICE).words or "")
    assert "features" not in (of_text(tmp_path, text.replace("nn.Linear(2, n)", "Reader()"), TWICE).words or "")


@pytest.mark.parametrize(
    "read",
    [
        "\n\n@torch.no_grad()\ndef evaluate(model):\n    return model.features\n",
        "\n\ndef evaluate(model):\n    with torch.inference_mode():\n        return model.features\n",
    ],
)
def test_a_cached_result_that_may_have_been_made_without_a_graph(read: str, tmp_path: Path) -> None:
    text = CACHED.format(kept="cached_property", value="self.proj(GRID)") + read
    assert "features" not in (of_text(tmp_path, text, TWICE).words or "")


LAST = """class Net(nn.Module):
    def __init__(self):
        self.body = nn.Linear(8, 4)
        self.last = None

    def forward(self, x):
        if self.last is not None and {asked}:
            print("another size")
        out = self.body(x){read}
        self.last = out
        return out


def step(net, x):
    loss = net(x).mean()
    loss.backward()  # failed
"""


@pytest.mark.parametrize("asked", ["self.last.shape[0] != x.shape[0]", "self.last.size(0) != len(x)", "len(self.last)"])
def test_a_result_that_is_only_asked_for_its_size_carries_no_graph(asked: str, tmp_path: Path) -> None:
    assert "self.last" not in (of_text(tmp_path, LAST.format(asked=asked, read=""), TWICE).words or "")
    read = LAST.format(asked=asked, read=" + self.last")
    assert "`self.last` (line 10" in (of_text(tmp_path, read, TWICE).words or "")


CLIPPED = """def clip(scaler, opt):
    scaler.unscale_(opt)  # failed


def apply(scaler, opt):
    scaler.step(opt)


def fit(scaler, opt, loader, accum):
    for i, x in enumerate(loader):
        if i % accum == 0:
            clip(scaler, opt)
            clip(scaler, opt)  # calls
            apply(scaler, opt)
            scaler.update()
"""


def test_an_update_below_the_condition_of_the_failing_call_is_not_blamed(tmp_path: Path) -> None:
    assert "runs only where" not in (of_text(tmp_path, CLIPPED, UNSCALED).words or "")


def test_an_option_that_holds_in_each_step_is_not_blamed(tmp_path: Path) -> None:
    text = AMP.format(step="self.scaler.step(self.opt)", inside="").replace("if last", "if self.use_amp")
    assert "runs only where" not in (of_text(tmp_path, text, SCALED).words or "")


def test_two_lines_that_unscale_may_be_of_one_step(tmp_path: Path) -> None:
    text = AMP.format(step="self.scaler.step(self.opt)", inside="")
    assert "runs only where" in (of_text(tmp_path, text, UNSCALED).words or "")
    text += "\n    def norm(self):\n        self.scaler.unscale_(self.opt)\n"
    assert "runs only where" not in (of_text(tmp_path, text, UNSCALED).words or "")


@pytest.mark.parametrize("returned", ['{"logits": logits, "masks": pred}', "(logits, pred)"])
def test_a_threshold_that_is_returned_beside_the_logits_is_not_blamed(returned: str, tmp_path: Path) -> None:
    text = DICE.format(line="pass", returned="x").replace("return 1 - x", f"return {returned}")
    assert "threshold" not in (of_text(tmp_path, text, CUT).words or "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("class Dice", "class DiceAccuracy"),
        ("        return 1 - both\n", "        if self.training:\n            return logits\n        return both\n"),
    ],
    ids=["a metric", "of an evaluation"],
)
def test_a_threshold_that_no_loss_reads_is_not_blamed(old: str, new: str, tmp_path: Path) -> None:
    text = DICE.format(line="both = (pred * target).sum()", returned="both")
    assert old in text
    assert "threshold" not in (of_text(tmp_path, text.replace(old, new), CUT).words or "")


AGENT = """

class Agent(nn.Module):
    def __init__(self):
        self.cell, self.h = nn.GRUCell(8, 16), None

    def forward(self, x):
        if self.h is None:
            self.h = torch.zeros(4, 16)
        self.h = {kept}
        return self.h
"""


@pytest.mark.parametrize(("kept", "fires"), [("self.cell(x, self.h)", False), ("self.cell(x, self.h).detach()", True)])
def test_a_state_of_the_step_before_may_need_the_old_values(kept: str, fires: bool, tmp_path: Path) -> None:
    text = UPDATE + AGENT.format(kept=kept)
    found = of_text(tmp_path, text, IN_PLACE, ("losses", "dict of 2"), ("name", "str of 1"))
    assert ("of an earlier round probably" in (found.subject or "")) == fires
