"""A backward() that needs weights which FSDP has freed: what its loss is made of, and what an exception met."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from pytracer.decode.types.journal import Fact, Unit, UnitParameter
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

MESSAGE = (
    "setStorage: sizes [64, 64], strides [64, 1], storage offset 0, and itemsize 4 requiring a storage size of 16384 "
    "are out of bounds for storage of size 0"
)
NET = """class Attention(nn.Module):
    def forward(self, x):
        k, v = self.key(x), self.value(x)
        {kept}
        return {returned}
"""
TRAIN = """def matching(model):
    terms = []
    for layer in model.layers:
        k, v = layer.cache
        terms.append(k.mean() + v.mean())
    return torch.stack(terms).mean()
def train(model, ids):
    fully_shard(model)
    logits = model(ids)
    {first}
    {loss}
    loss.backward()
train(Net(), ids)
"""
KEPT, RETURNED = "self.cache = (k, v)", "self.out(k @ v)"
HOOKED = """features = {}
def tap(name):
    def hook(module, args, output):
        {fill}
    return hook
def train(model, x):
    model.stage.register_forward_hook(tap('stage'))
    fully_shard(model)
    model(x)
    loss = features['stage'].square().mean()
    loss.backward()
train(Net(), x)
"""
WEIGHTS = """class Tied(nn.Module):
    def __init__(self, dim):
        self.table = nn.Linear(dim, dim)
        {first}
    def forward(self, x):
        {kept}
        return self.table(x)
class Net(nn.Module):
    def forward(self, x):
        h = self.tied(x)
        return F.linear(h, self.tied.shared)
Net()(x)
"""


def unit(name: str = "layers.0", *, parameter: str = "table.weight", elements: int = 4096) -> Unit:
    parameters = (UnitParameter(f"{name}.{parameter}", elements),)
    return Unit("Net", name, "fully_shard", False, 2, 0, elements // 2, 0, 4, 1, parameters)


def said(
    folder: Path,
    source: str,
    line: str,
    *,
    units: tuple[Unit, ...] = (unit(),),
    scopes: tuple[tuple[str, str], ...] = (),
    message: str = MESSAGE,
    held: tuple[VariableReport, ...] = (),
) -> str:
    """The clause of the headline, and the words. `line`: what fails, in a function of which the last line is the call.

    `scopes`: operator and scope of the collectives.
    """
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    lines = source.splitlines()
    at = next(number for number, text in enumerate(lines, 1) if text.strip() == line)
    name = next(text for text in lines[:at][::-1] if text.lstrip().startswith("def ")).split("(")[0].split()[-1]
    name = f"Net.{name}" if name == "forward" else name
    facts = [Fact(1, 1, "UNIT", item) for item in units]
    collectives = [SimpleNamespace(op=op, scope=scope) for op, scope in scopes]
    snapshot: Any = SimpleNamespace(
        argv=(), created_wall_ns=time.time_ns() + 10**9, recorded=lambda kind: facts, collectives=collectives
    )
    frames = [PythonFrame(function=name, file=str(file), line=at)]
    frames += [PythonFrame(function="<module>", file=str(file), line=len(lines))]
    found = explained(snapshot, ExceptionReport(type="RuntimeError", message=message, variables=[*held]), frames)
    return f"{found.subject}; {found.words}"


def trained(
    first: str = "pass", loss: str = "loss = matching(model)", kept: str = KEPT, returned: str = RETURNED
) -> str:
    return NET.format(kept=kept, returned=returned) + TRAIN.format(first=first, loss=loss)


def test_loss_of_an_attribute_is_named_with_the_line_of_forward(tmp_path: Path) -> None:
    """The model's output is at hand, which the loss does not use."""
    words = said(tmp_path, trained(), "loss.backward()")
    assert "`loss` of line 16 is made of `cache`, which is set within forward() (line 4) and not returned" in words
    assert "return `(k, v)` through forward()" in words and "or add `0 * logits.sum()` at line 16" in words
    assert "fully_shard(..., reshard_after_forward=False) at line 13" in words


def test_line_of_a_branch_is_that_which_does_not_use_the_output(tmp_path: Path) -> None:
    """The other one was made of what the model returned."""
    first = "if warm:\n        loss = F.cross_entropy(logits, ids)\n    else:"
    words = said(tmp_path, trained(first, "    loss = matching(model)"), "loss.backward()")
    assert "`loss` of line 18 is made of `cache`" in words


@pytest.mark.parametrize(
    "source",
    [
        trained(loss="loss = matching(model) + logits.mean()"),
        trained(loss="loss = matching(model)\n    loss += criterion(logits, ids)"),
        trained(loss="loss = matching(model) + model.forward(ids).mean()"),
        trained(returned="self.out(k @ v), (k, v)"),  # the hook is on these
        trained(kept="self.cache = (k.detach(), v.detach())"),
        trained(kept="pass"),
    ],
    ids=["the output as well", "added later", "forward()", "returned", "without a graph", "set elsewhere"],
)
def test_loss_that_the_output_is_part_of_has_another_reason(source: str, tmp_path: Path) -> None:
    """As has one of what forward() does not set."""
    assert "that FSDP has freed" not in said(tmp_path, source, "loss.backward()")


def test_option_of_the_other_fsdp_is_its_own(tmp_path: Path) -> None:
    """It has a strategy."""
    source = trained().replace("fully_shard(model)", "model = FSDP(model)")
    words = said(tmp_path, source, "loss.backward()")
    assert "FSDP(..., sharding_strategy=ShardingStrategy.SHARD_GRAD_OP) at line 13" in words


@pytest.mark.parametrize(
    ("units", "scopes", "message"),
    [
        ((), (), MESSAGE),
        (
            (unit(),),
            (("all_gather_into_tensor", "FSDP::all_gather (layers.0)"),) * 2,  # a hook of backward() did run
            MESSAGE,
        ),
        ((unit(),), (), MESSAGE.replace("size 0", "size 64")),
    ],
    ids=["no FSDP", "gathered again", "too small"],
)
def test_no_word_of_fsdp_where_it_freed_nothing(
    units: tuple[Unit, ...], scopes: tuple[tuple[str, str], ...], message: str, tmp_path: Path
) -> None:
    """The same program."""
    words = said(tmp_path, trained(), "loss.backward()", units=units, scopes=scopes, message=message)
    assert "that FSDP has freed" not in words


def test_gathered_once_for_forward_is_no_sign_of_backward(tmp_path: Path) -> None:
    """Those before the last reduction are of another step."""
    gather, reduce = "FSDP::all_gather (layers.0)", "FSDP::post_backward_reduce (layers.0)"
    scopes = (("all_gather_into_tensor", gather), ("reduce_scatter_tensor", reduce), ("all_gather_into_tensor", gather))
    assert "that FSDP has freed" in said(tmp_path, trained(), "loss.backward()", scopes=scopes)


@pytest.mark.parametrize(
    ("fill", "told"), [("features[name] = output", True), ("features[name] = output.detach()", False)]
)
def test_loss_of_what_a_forward_hook_keeps(fill: str, told: bool, tmp_path: Path) -> None:
    """With the line of the hook."""
    words = said(tmp_path, HOOKED.replace("{fill}", fill), "loss.backward()")
    assert ("is made of `features`, which a forward hook sets at line 4" in words) == told


def weights(kept: str, first: str = "pass") -> str:
    return WEIGHTS.format(kept=kept, first=first)


def test_weight_that_forward_keeps_is_named_where_it_is_used_later(tmp_path: Path) -> None:
    """Of an exception: some operators look at the size of the storage."""
    words = said(tmp_path, weights("self.shared = self.table.weight"), "return F.linear(h, self.tied.shared)")
    assert "`self.tied.shared` is a weight of `layers.0` that FSDP gathered for a forward()" in words
    assert "line 6 (`self.shared = self.table.weight`) kept it" in words
    assert "Keep a copy (`self.table.weight.detach().clone()`)" in words


def test_operator_that_asks_for_memory_tells_no_size(tmp_path: Path) -> None:
    """It is that of the variable."""
    message = "The tensor has a non-zero number of elements, but its data is not allocated yet."
    source, line = weights("self.shared = self.table.weight"), "return F.linear(h, self.tied.shared)"
    held = VariableReport(name="self.tied.shared", value="[64, 64] float32")
    assert "that FSDP gathered for a forward()" in said(tmp_path, source, line, message=message, held=(held,))
    assert "that FSDP gathered" not in said(tmp_path, source, line, message=message)


@pytest.mark.parametrize(
    ("source", "units"),
    [
        (weights("self.shared = self.table.weight.clone()"), (unit(),)),
        (weights("self.shared = x"), (unit(),)),  # a tensor of that size
        (weights("pass", "self.shared = self.table.weight"), (unit(),)),  # before it was sharded
        (weights("self.shared = self.table.weight"), (unit(elements=64),)),
        (weights("self.shared = self.table.weight"), ()),
    ],
    ids=["a copy", "no weight", "in __init__", "another size", "no FSDP"],
)
def test_another_tensor_is_no_weight_of_fsdp(source: str, units: tuple[Unit, ...], tmp_path: Path) -> None:
    """By what the program keeps, and by the units."""
    words = said(tmp_path, source, "return F.linear(h, self.tied.shared)", units=units)
    assert "that FSDP gathered" not in words
