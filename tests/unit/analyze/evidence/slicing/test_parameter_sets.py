"""Sets that an optimizer's parameters are listed from; what only asks a set, or sorts it, is none."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.slicing.parameter_sets import ParameterSet, parameter_sets
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of

FILE = "/job/train.py"
SNAPSHOT: Any = SimpleNamespace(argv=(), environment={}, created_wall_ns=1 << 62)


def sets_of(body: str) -> list[tuple[int, str]]:
    """The sets of the only AdamW() in a function of these lines, each with what lists it; the first line is 1."""
    text = "\n".join(["def build(model, table):", *(f"    {line}" for line in body.strip().splitlines())])
    return [(item.made.line - 1, ast.unparse(item.read.node)) for item in sets_in(text)]


def sets_in(text: str) -> list[ParameterSet]:
    """Of the only AdamW() in a file."""
    tree = ast.parse(text)
    call = next(item for item in nodes_of(tree) if isinstance(item, ast.Call) and called_name(item) == "AdamW")
    spot = Spot(FILE, tree, scope_of(tree, call.lineno), call.lineno)
    return parameter_sets(Slice(SNAPSHOT, []), call, spot)


GROUPS = """
plain = {p for n, p in model.named_parameters() if n.endswith("bias")}
decayed = set(model.parameters()) - plain
groups = [{"params": list(decayed)}, {"params": list(plain), "weight_decay": 0}]
optimizer = torch.optim.AdamW(groups)
"""
FILLED = """
decay = set()
decay |= {n for n, p in model.named_parameters()}
groups = []
groups.append(dict(params=[table[n] for n in decay]))
optimizer = torch.optim.AdamW(groups)
"""
LOOPED = """
names = frozenset(n for n, p in model.named_parameters())
params = []
for name in names:
    params.append(table[name])
optimizer = torch.optim.AdamW(params)
"""


def test_sets_of_two_groups_are_found_with_what_lists_them() -> None:
    assert sets_of(GROUPS) == [(1, "list(plain)"), (2, "list(decayed)")]


def test_set_of_names_that_is_filled_is_found_at_its_first_line() -> None:
    assert sets_of(FILLED) == [(1, "[table[n] for n in decay]")]


def test_list_that_a_loop_over_a_set_fills_is_followed() -> None:
    assert [line for line, _ in sets_of(LOOPED)] == [1]


def test_what_maps_the_names_of_a_set_lists_it() -> None:
    """The set itself has no parameter in it."""
    body = "names = {n for n, p in model.named_parameters()}\noptimizer = torch.optim.AdamW(map(table.get, names))"
    assert sets_of(body) == [(1, "map(table.get, names)")]


@pytest.mark.parametrize(
    "params",
    [
        "list(set(model.parameters()))",
        "set(model.parameters())",
        "list({p for p in model.parameters()})",
        "[p for p in set(model.parameters()) if p.requires_grad]",
        "[p for m in {model.a, model.b} for p in m.parameters()]",
        "list({*model.a.parameters(), *model.b.parameters()})",
        "[*set(model.a.parameters()).union(model.b.parameters())]",
        "list(filter(lambda p: p.requires_grad, set(model.parameters())))",
        "[table[n] for n in table.keys() - other.keys()]",
        "params=list(set(model.parameters()))",
        "[{'params': list(set(model.parameters())), 'lr': 1}]",
        "list(model.a.parameters()) + list(set(model.b.parameters()))",
    ],
)
def test_expression_in_the_order_of_a_set_is_found(params: str) -> None:
    assert [line for line, _ in sets_of(f"optimizer = torch.optim.AdamW({params})")] == [1]


@pytest.mark.parametrize(
    "body",
    [
        "optimizer = torch.optim.AdamW(model.parameters())",
        "optimizer = torch.optim.AdamW([p for p in model.parameters() if p not in {model.a, model.b}])",
        """
plain = set(model.a.parameters())
optimizer = torch.optim.AdamW([{'params': [p for p in model.parameters() if p not in plain]}])
""",
        """
names = {n for n, p in model.named_parameters()}
optimizer = torch.optim.AdamW([table[n] for n in sorted(names)])
""",
        """
names = {n for n, p in model.named_parameters()}
optimizer = torch.optim.AdamW([table[n] for n in sorted(list(names))])
""",
        """
params = list(set(model.parameters()))
params.sort(key=len)
optimizer = torch.optim.AdamW(params)
""",
        "optimizer = torch.optim.AdamW(list(dict.fromkeys(model.parameters())))",
        "optimizer = torch.optim.AdamW([model.layers[n] for n in {0, 3, 1}])",
        "optimizer = torch.optim.AdamW([model.layers[n] for n in set(range(4))])",
        """
some = {n for n, p in enumerate(model.parameters())}
optimizer = torch.optim.AdamW([table[n] for n in some])
""",
        "optimizer = torch.optim.AdamW([p for p in {model.only}])",
        """
every = {**table, **model.table} | table
optimizer = torch.optim.AdamW([p for p in every.values()])
""",
        """
names = [n for n in table]
params = []
for n in names:
    if n in {'a', 'b'}:
        params.append(table[n])
optimizer = torch.optim.AdamW(params)
""",
        """
rows = set(model.rows)
params = list(model.parameters())
optimizer = torch.optim.AdamW(params)
""",
        """
rows = {1} if table else list(table)
optimizer = torch.optim.AdamW(rows)
""",
    ],
    ids=[
        *("the model's", "membership", "membership in a group", "sorted", "sorted list", "sorted in place", "dict"),
        *("numbers", "range", "counted", "only one", "dicts", "membership in a loop", "another set", "either"),
    ],
)
def test_order_that_is_no_set_s_is_left_alone(body: str) -> None:
    assert sets_of(body) == []


class _Counting(Slice):
    """Counts the values that are followed."""

    asked = 0

    def made(self, node: ast.AST, spot: Spot, *, calls: bool) -> Made:
        type(self).asked += 1
        return super().made(node, spot, calls=calls)


def counted(body: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[tuple[int, str]], int]:
    """sets_of(), and how many values it followed."""
    monkeypatch.setattr(f"{__name__}.Slice", _Counting)
    monkeypatch.setattr(_Counting, "asked", 0)
    return sets_of(body), _Counting.asked


@pytest.mark.parametrize(
    "body",
    [
        """
todo = []
todo.append(model)
for m in todo:
    todo.extend(m.a)
    todo.extend(m.b)
    todo.extend(m.c)
optimizer = torch.optim.AdamW([p for m in todo for p in m.parameters()])
""",
        "a, b, c = [], [], []\n"
        + "a.extend(b)\nb.extend(c)\nc.extend(a)\n" * 8
        + "c.extend(set(model.parameters()))\noptimizer = torch.optim.AdamW(a)",
    ],
    ids=["itself", "each other"],
)
def test_lists_that_fill_each_other_are_followed_once(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line that fills one, whatever leads to it."""
    found, asked = counted(body, monkeypatch)
    assert len(found) == body.count("set(")
    assert asked < 100


def test_set_that_many_branches_add_to_is_asked_once_at_each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line may have bound what the next one adds to."""
    lines = "".join(f"if model.has{n}:\n    some = some | set(model.p{n}.parameters())\n" for n in range(12))
    found, asked = counted(f"some = set()\n{lines}optimizer = torch.optim.AdamW(list(some))", monkeypatch)
    assert len(found) == 1
    assert asked < 1500


def test_function_that_fills_a_list_is_followed_for_each_call() -> None:
    """What its parameter was, differs."""
    text = """def listed(rows):
    kept = []
    kept.extend(rows)
    return kept
def build(model):
    first = set(model.a.parameters())
    second = set(model.b.parameters())
    optimizer = torch.optim.AdamW([*listed(first), *listed(second)])
"""
    assert [item.made.line for item in sets_in(text)] == [6, 7]
