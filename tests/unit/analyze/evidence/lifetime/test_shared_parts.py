"""Two models that share a part, of which one was emptied while the other one still runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.decode.types.snapshot import Holder, PythonFrame
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary
from tests.support.synth import Box

pytestmark = needs_capstone

LOAD = bytes.fromhex("c5fa1002")  # vmovss xmm0, dword ptr [rdx]
KERNEL = [
    (s.TORCH_CPU, "at::native::mul_kernel(at::TensorIteratorBase&)"),
    (s.TORCH_CPU, "at::_ops::mul_Tensor::call(at::Tensor const&, at::Tensor const&)"),
    (s.PYTHON, "_PyEval_EvalFrameDefault"),
]
MODULE = "/usr/lib/python3/site-packages/torch/nn/modules/module.py"
MODELS = """import copy
from torch import nn
class Gain(nn.Module):
    def forward(self, x):
        return x * self.gain
class Policy(nn.Module):
    def __init__(self, body=None):
        self.body = body if body is None else Gain()
    def forward(self, x):
        return self.body(x)
class Critic(Policy):
    def __init__(self, body):
        self.body = body
class Cold:
    def __init__(self, model):
        self.model = model
    def drop(self):
        for p in self.model.parameters():
            storage = p.untyped_storage()
            storage.resize_(0)
def release(net):
    for name, p in net.named_parameters():
        p.data.untyped_storage().resize_(0)
"""
REFERENCE = """def build(policy):
    reference = Policy()
    reference.body = policy.body
    return reference.eval()
def main(x):
    policy = Policy()
    reference = build(policy)
    Cold(reference).drop()
    return policy(x)
main(load())
"""


def told(
    run: Path, program: str, *, line: str = "            storage.resize_(0)\n", function: str = "Cold.drop"
) -> str:
    """Headline and advice of a `policy(x)` that met a gain of 64 elements without memory."""
    source = MODELS + program
    (run / "train.py").write_text(source, encoding="utf-8")
    file = str(run / "train.py")
    os.utime(file, (0, 0))
    number = source.splitlines().index("    return policy(x)") + 1
    emptied = (function, file, source[: source.index(line)].count("\n") + 1)
    layer = [("Module._call_impl", MODULE, 1789)]
    stack = [("Gain.forward", file, 5), *layer, ("Policy.forward", file, 10), *layer, ("main", file, number)]
    box = Box(pid=101, ppid=99).alloc(0x9000, 256, ("Gain.__init__", file, 5)).free(0x9000, emptied)
    holder = Holder("local", "self._parameters['gain']", 0, PythonFrame("Gain.forward", file, 5), True, elements=64)
    report = died(
        run, box=box, addr=0, stack_of=KERNEL, python=[*stack, ("<module>", file, source.count("\n"))],
        registers={"rdx": 0}, code_bytes=LOAD, holders=(holder,), mappings=[PROGRAM],
    )  # fmt: skip
    return f"{summary(report)} {advice(report)}"


def test_a_part_that_another_model_was_given_is_told_with_both(run: Path) -> None:
    said = told(run, REFERENCE)
    at = MODELS.count("\n") + 3
    assert "line 20 in Cold.drop takes the memory of `reference` away, which shares a part with `policy` by" in said
    assert f"`policy` by line {at}. Line {at} (`reference.body = policy.body`) gives `reference` and `policy`" in said
    assert f"Copy it at line {at} (copy.deepcopy(policy.body)), or leave out at line 20" in said


@pytest.mark.parametrize(
    ("made", "shares"),
    [
        ("reference = Critic(policy.body)", True),
        ("reference = copy.copy(policy)", True),
        ("reference = Policy()\n    reference.load_state_dict(policy.state_dict(), assign=True)", True),
        ("reference = Policy()\n    policy.body = reference.body", True),
        ("reference = Critic(copy.deepcopy(policy.body))", False),
        ("reference = copy.deepcopy(policy)", False),
        ("reference = Policy()\n    reference.load_state_dict(policy.state_dict())", False),
        ("other = Policy()\n    other.body = policy.body\n    reference = Policy()", False),  # not with that one
        ("reference = policy", False),  # the model itself
        ("reference = Critic(policy.body)\n    release(policy)", False),  # either may have taken it
    ],
)
def test_lines_by_which_two_models_share(made: str, shares: bool, run: Path) -> None:
    program = (
        f"def main(x):\n    policy = Policy()\n    {made}\n    release(reference)\n    return policy(x)\nmain(load())\n"
    )
    said = told(run, program, line="        p.data.untyped_storage().resize_(0)\n", function="release")
    assert ("shares a part with `" in said) == shares
    assert ("gain` its memory back before line 5" in said) != shares


def test_models_of_one_function_are_two_objects(run: Path) -> None:
    """Where it is called twice; the one that ran is the one that shares."""
    program = (
        "def make(width):\n    net = Policy()\n    return net\ndef main(x):\n    policy = make(3)\n"
        "    reference = make(3)\n    reference.body = policy.body\n    release(reference)\n    return policy(x)\n"
        "main(load())\n"
    )
    how = {"line": "        p.data.untyped_storage().resize_(0)\n", "function": "release"}
    assert "takes the memory of `reference` away, which shares a part with `policy`" in told(run, program, **how)
    assert "shares a part" not in told(run, program.replace("release(reference)", "release(policy)"), **how)


def test_a_part_of_the_module_that_ran_may_be_the_one_that_shares(run: Path) -> None:
    """An agent that is a module itself, with both of them."""
    program = (
        "class Agent(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.policy = Policy()\n        self.critic = Critic(self.policy.body)\n"
        "def main(x):\n    agent = Agent()\n    policy = agent.policy\n    release(agent.critic)\n"
        "    return policy(x)\nmain(load())\n"
    )
    how = {"line": "        p.data.untyped_storage().resize_(0)\n", "function": "release"}
    said = told(run, program, **how)
    assert "takes the memory of `self.critic` away, which shares a part with `self.policy`" in said
    assert "shares a part" not in told(run, program.replace("self.policy.body)", "Gain())"), **how)
