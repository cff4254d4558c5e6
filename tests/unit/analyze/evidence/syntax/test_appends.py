"""A loop that adds until something is long enough: what has to be empty for it never to end."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.appends import Append, append_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.evidence.syntax.unbounded import loops_at

LOOP = """\
import numpy as np, random, torch
def draw(pool, count, extra):
    for key in pool.keys():
        at = {start}
        while {test}:
            {made}
            {adds}
    return at
"""


def found(
    adds: str = "at = torch.cat((at, more))",
    made: str = "more = torch.randperm(len(pool))",
    test: str = "len(at) < count",
    start: str = "torch.zeros(0)",
) -> Append | None:
    tree = ast.parse(LOOP.format(adds=adds, made=made, test=test, start=start))
    scope = scope_of(tree, 6)
    return append_of(tree, scope, loops_at(scope, 6)[0])


@pytest.mark.parametrize(
    ("adds", "made", "source"),
    [
        ("at = torch.cat((at, more), dim=0)", "more = torch.randperm(pool.shape[0])", "pool"),
        ("at = torch.cat([more, at])", "more = pool[torch.randperm(pool.size(0))]", "pool"),
        ("at = np.concatenate((at, more))", "more = np.random.permutation(len(pool))", "pool"),
        ("at = np.append(at, more)", "more = np.arange(pool.shape[0])", "pool"),
        ("at.extend(more)", "more = random.sample(pool, len(pool))", "pool"),
        ("at.extend(pool)", "print(count)", "pool"),
        ("at.extend(pool[key])", "print(count)", "pool[key]"),
        ("at = torch.cat((at, torch.randperm(extra)))", "print(count)", "extra"),
        ("at.extend(self.rows)", "print(count)", "self.rows"),
    ],
)
def test_what_decides_how_much_a_pass_adds_is_found(adds: str, made: str, source: str) -> None:
    append = found(adds, made)
    assert append is not None and append.source == source
    assert append.is_count == (source == "extra")


@pytest.mark.parametrize(
    "test", ["at.shape[0] < count", "count > at.size(0)", "at.numel() <= count", "len(at) < 2 * count"]
)
def test_length_is_asked_in_many_ways(test: str) -> None:
    append = found(test=test)
    assert append is not None and append.whole == "at" and "count" in append.enough


@pytest.mark.parametrize(
    ("adds", "made", "test"),
    [
        ("at = torch.cat((at, more))", "more = read(pool)", "len(at) < count"),
        ("at = torch.cat((at, more))", "more = torch.randperm(3)", "len(at) < count"),
        ("at = torch.cat((at, more))", "more = pool[pool > 0.5]", "len(at) < count"),
        ("at = torch.cat((at, more)); pool = pool[1:]", "more = torch.randperm(len(pool))", "len(at) < count"),
        ("at = torch.cat((at, more)); pool.append(3)", "more = torch.randperm(len(pool))", "len(at) < count"),
        ("at = torch.cat((at, more)); count -= 1", "more = torch.randperm(len(pool))", "len(at) < count"),
        ("at = torch.cat((at, more)); at = at.unique()", "more = torch.randperm(len(pool))", "len(at) < count"),
        ("at = torch.stack((at, more))", "more = torch.randperm(len(pool))", "len(at) < count"),
        ("at = torch.cat((at, more)); break", "more = torch.randperm(len(pool))", "len(at) < count"),
        ("at = torch.cat((at, more))", "more = torch.randperm(len(pool))", "len(at) != count"),
        ("at = torch.cat((at, more))", "more = torch.randperm(len(pool))", "at.mean() < count"),
        ("at = torch.cat((at, more))", "more = torch.randperm(len(at))", "len(at) < count"),
        ("count.extend(at)", "more = torch.randperm(len(pool))", "len(at) < extra"),
    ],
)
def test_what_may_come_to_its_end_otherwise_is_not_told(adds: str, made: str, test: str) -> None:
    """Another length, what the loop changes as well, another way out, another test."""
    assert found(adds, made, test) is None


@pytest.mark.parametrize(("made", "fixed"), [("print(count)", True), ("submit(pool)", False)])
def test_what_is_handed_to_others_may_be_filled_by_them(made: str, fixed: bool) -> None:
    append = found("at = torch.cat((at, torch.randperm(len(pool))))", "print(count)", start=f"{made} or torch.zeros(0)")
    assert append is not None and append.fixed == fixed


def test_only_what_torch_joins_makes_a_tensor_in_each_pass() -> None:
    of_torch, of_numpy = found(), found("at = np.concatenate((at, more))")
    assert of_torch is not None and of_torch.always_new
    assert of_numpy is not None and not of_numpy.always_new
