"""Gradients packed into one tensor without those that are None on a rank."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from pytracer.analyze.collectives.absent_gradients import Absent, absent_gradients, models_differ
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective, NamedTensor
from tests.support.deaths import advice, summary
from tests.unit.analyze.collectives.test_sizes import reported

SIZES = ([[61]], [[44]])
COMPREHENSION = """def average(model):
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(flat)
"""
BUCKETS = """def average(model):
    buckets = {}
    for p in model.parameters():
        if p.grad is None or not p.requires_grad:
            continue
        buckets.setdefault(p.dtype, []).append(p.grad.data)
    for grads in buckets.values():
        flat = _flatten_dense_tensors(grads)
        dist.all_reduce(flat)
"""
GENERATOR = """def gradients(params):
    for p in params:
        if p.grad is not None:
            yield p.grad
def average(params):
    vector = parameters_to_vector(gradients(params))
    dist.all_reduce(vector)
"""
FILTER = """class Averaged:
    def pack(self):
        have = filter(lambda p: p.grad is not None, self.all)
        return torch.cat([p.grad.view(-1) for p in have])
    def average(self):
        flat = self.pack()
        dist.all_reduce(flat)
"""
LATER = """def average(model):
    grads = [getattr(p, "grad", None) for p in model.parameters()]
    flat = torch.cat([g.flatten() for g in grads if g is not None])
    dist.all_reduce(flat)
"""


@pytest.mark.parametrize(
    ("source", "at", "line", "text"),
    [
        (COMPREHENSION, ("average", 4), 2, "grads = [p.grad for p in model.parameters() if p.grad is not None]"),
        (BUCKETS, ("average", 9), 4, "if p.grad is None or not p.requires_grad:"),
        (GENERATOR, ("average", 7), 3, "if p.grad is not None:"),
        (FILTER, ("Averaged.average", 7), 3, "have = filter(lambda p: p.grad is not None, self.all)"),
        (LATER, ("average", 4), 3, "flat = torch.cat([g.flatten() for g in grads if g is not None])"),
    ],
    ids=["comprehension", "buckets", "generator", "filter", "later"],
)
def test_line_that_leaves_out_gradients_is_named(
    source: str, at: tuple[str, int], line: int, text: str, run: Path
) -> None:
    """With what to pack instead, and that padding is none."""
    report = reported(run, source, [at], SIZES)
    assert f"; line {line} packs only gradients that are not None" in summary(report)
    said = advice(report)
    assert said.startswith(f"Pack the gradients of all parameters on every rank. Line {line} (`{text}`) leaves out")
    assert "`p.grad = torch.zeros_like(p)`" in said and "Do not pad or cut the packed tensor" in said


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (COMPREHENSION.replace(" if p.grad is not None]", "]"), 4),
        (COMPREHENSION.replace("p.grad", "p.output"), 4),
        (COMPREHENSION.replace("p.grad for p in", "zeros_for(p) for p in").replace("p.grad is", "p is"), 4),
        (COMPREHENSION.replace("torch.cat(", "features(batch, "), 4),
        (COMPREHENSION + "    other = torch.ones(n)\n    dist.all_reduce(other)\n", 6),
    ],
    ids=["all", "outputs", "zeros", "computed", "other-tensor"],
)
def test_other_packings_leave_out_no_gradients(source: str, line: int, run: Path) -> None:
    """The look-alikes: one that packs all, one of other values, and a tensor beside it."""
    report = reported(run, source, [("average", line)], SIZES)
    assert "packs only gradients" not in summary(report) + advice(report)


def test_tensor_that_is_packed_is_not_padded(run: Path) -> None:
    """Whatever makes its parts differ: all behind them would be shifted."""
    source = COMPREHENSION.replace(" if p.grad is not None]", "]")
    said = advice(reported(run, source, [("average", 4)], SIZES))
    assert "pad to it" not in said and "or drop what is over" not in said


MODEL = {"body.weight": 40, "body.bias": 8, "head.weight": 20}
Gradients = Mapping[str, int]


def side(
    rank: int, passed: int, gradients: Gradients, model: Mapping[str, int] = MODEL, *, crashed: bool = True
) -> tuple[ProcessView, Collective]:
    """A rank, with the epoch of each gradient."""
    named = {
        at: (NamedTensor(f"parameter {name}", "parameter", at, at, nbytes, 9, earlier=False),)
        for at, (name, nbytes) in enumerate(model.items())
    }
    named |= {
        100 + at: (NamedTensor(f"gradient of {name}", "gradient", at, at, model[name], epoch, earlier=False),)
        for at, (name, epoch) in enumerate(gradients.items())
    }
    snapshot = SimpleNamespace(named=named, recorded=lambda kind: [])
    process = SimpleNamespace(rank=rank, snapshot=snapshot)
    view = SimpleNamespace(process=process, crash=object() if crashed else None)
    return cast(ProcessView, view), cast(Collective, SimpleNamespace(nbytes=passed))


ALL = dict.fromkeys(MODEL, 9)


@pytest.mark.parametrize(
    ("gradients", "passed", "crashed", "absent"),
    [
        ({**ALL, "head.weight": 7}, 48, True, (Absent(1, ("head.weight",)),)),
        ({"body.weight": 9, "body.bias": 9}, 48, True, (Absent(1, ("head.weight",)),)),
        ({"body.weight": 9, "body.bias": 9}, 48, False, (Absent(1, ("head.weight",)),)),
        ({**ALL, "head.weight": 7}, 48, False, ()),
        ({**ALL, "body.bias": 7}, 48, True, ()),
    ],
    ids=["older", "never", "never-without-crash", "round-before", "other-size"],
)
def test_parameters_without_gradient_are_named_where_they_account_for_the_size(
    gradients: Gradients, passed: int, crashed: bool, absent: tuple[Absent, ...]
) -> None:
    """What is recorded without a crash may be of the round before; other sizes are of another cause."""
    found = absent_gradients(side(0, 68, ALL, crashed=False), side(1, passed, gradients, crashed=crashed))
    assert found == absent


def test_models_of_their_own_that_are_packed_whole_differ() -> None:
    """Each rank passed all that it has: none was left out."""
    other = {**MODEL, "head.weight": 28}
    assert models_differ(side(0, 68, ALL), side(1, 76, ALL, other))
    assert not models_differ(side(0, 68, ALL), side(1, 48, ALL))
    assert absent_gradients(side(0, 68, ALL), side(1, 76, ALL, other)) == ()
