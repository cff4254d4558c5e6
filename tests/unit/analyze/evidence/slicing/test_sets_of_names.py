"""Sets that hold names, which sorted() orders alike in each run; and those that may hold anything else."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.slicing.parameter_sets import parameter_sets
from pytracer.analyze.evidence.slicing.sets_of_names import are_names
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of

SNAPSHOT: Any = SimpleNamespace(argv=(), environment={}, created_wall_ns=1 << 62)


def holds_names(body: str) -> bool:
    """The set `some` that `AdamW([table[i] for i in some])` lists behind these lines."""
    lines = [*body.strip().splitlines(), "optimizer = torch.optim.AdamW([table[i] for i in some])"]
    tree = ast.parse("\n".join(["def build(model, table, given):", *(f"    {line}" for line in lines)]))
    call = next(item for item in nodes_of(tree) if isinstance(item, ast.Call) and called_name(item) == "AdamW")
    spot = Spot("/job/train.py", tree, scope_of(tree, call.lineno), call.lineno)
    (found,) = parameter_sets(Slice(SNAPSHOT, []), call, spot)
    assert isinstance(found.read.node, ast.ListComp)
    return are_names(found.made, (found.read.node.generators[0].iter, found.read.spot))


@pytest.mark.parametrize(
    "body",
    [
        "some = {n for n, p in model.named_parameters() if p.ndim > 1}",
        "some = frozenset(n for n, _ in model.named_parameters())",
        "some = {'fc.weight', f'{model.name}.weight'}",
        "some = {n + '.weight' for n, m in model.named_modules()}",
        "some = set()\nsome |= {n for n, p in model.named_parameters()}",
        "some = set()\nfor n, p in model.named_parameters():\n    some.add(n)",
        "plain = {n for n, p in model.named_parameters()}\nsome = plain - given",
        "names = {n for n, p in model.named_parameters()}\nsome = list(names)",
        "some = {n for n, p in model.named_parameters()}\nsome -= given\nsome.discard('x')",
    ],
)
def test_set_of_names_is_known(body: str) -> None:
    assert holds_names(body)


@pytest.mark.parametrize(
    "body",
    [
        "some = set(map(id, model.fc.parameters()))",
        "some = {id(p) for p in model.parameters()}",
        "some = set()\nfor p in model.parameters():\n    some.add(id(p))",
        "some = {n for n, p in model.named_parameters()}\nsome |= {id(p) for p in model.parameters()}",
        "some = {n for n, p in model.named_parameters()}\nsome.update(given)",
        "ids = set(map(id, model.parameters()))\nsome = list(ids)",
        "some = {p for n, p in model.named_parameters()}",
        "some = set(given)",
        "some = {n for n in given}",
        "some = {*given, 'fc.weight'}",
        "some = set(model.parameters()) - given",
        "some = {n for n, p in enumerate(given) if p} | {id(model), id(table)}",
    ],
)
def test_set_of_ids_or_of_unknown_elements_is_not(body: str) -> None:
    assert not holds_names(body)
