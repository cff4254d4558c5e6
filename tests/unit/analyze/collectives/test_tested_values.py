"""A value of the end is that of a condition only where nothing between the two may have changed it."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.collectives.tested_values import _is_set_later, _since, may_have_changed
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.scopes import scope_of

HEAD = "import torch.distributed as dist\ndef run(self, state, queue, share, n, bad):\n    if bad > n:\n"


def changed(body: str, name: str, value: str) -> bool:
    """Of what stands between the condition and the line at the end."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    tree = ast.parse(f"{HEAD}        return\n{lines}    dist.barrier()\n")
    spot = Spot("train.py", tree, scope_of(tree, 5), 4)
    return may_have_changed(spot, name, value, 5, 5 + body.count("\n") + 1)


@pytest.mark.parametrize(
    ("body", "name", "value"),
    [
        ("self.bad = 0", "self.bad", "0"),
        ("self.a, self.bad = 1, 2", "self.bad", "0"),
        ("other.bad = 1", "self.bad", "0"),
        ("setattr(self, 'bad', 0)", "self.bad", "0"),
        ("queue.pop(0)", "queue", "list of 3"),
        ("del queue[0]", "queue", "list of 3"),
        ("queue[0] = 1", "queue[0]", "1"),
        ("state['n'] += 1", "state['n']", "4"),
        ("update(state)", "state['n']", "4"),
        ("update()", "state['n']", "4"),
        ("self.step()", "self.bad", "0"),
        ("self.state = other", "self.state.n", "4"),
        ("n += 1", "n", "4"),
        ("for n in share: pass", "n", "4"),
    ],
)
def test_whatmay_have_changed_is_not_taken_for_the_value_of_the_condition(body: str, name: str, value: str) -> None:
    """Plain writes, items, methods, and functions that have the object or may reach it."""
    assert changed(body, name, value)


@pytest.mark.parametrize(
    ("body", "name", "value"),
    [
        ("dist.all_reduce(share)", "self.bad", "0"),
        ("print(bad, len(queue))", "queue", "list of 3"),
        ("update(state)\nself.step()", "n", "4"),
        ("m = n + 1", "n", "4"),
        ("self.good = 1", "self.bad", "0"),
    ],
)
def test_collectives_and_reads_change_nothing(body: str, name: str, value: str) -> None:
    """And no function changes a local variable that holds a number."""
    assert not changed(body, name, value)


def test_earlier_rounds_of_a_loop_behind_the_condition_count() -> None:
    """A rank at the first line of its body may have run the last one."""
    tree = ast.parse("def run(n):\n    if n: pass\n    for x in range(3):\n        a()\n        n += 1\n")
    assert (3, 5) in _since(tree, 2, 4, None)
    (loop,) = loops_around(tree, 4)
    assert _since(tree, 5, 4, loop) == [(6, 5), (3, 4)]
    assert _since(tree, 5, 2, None) == []


KEPT = """class Node:
    def __init__(self, settings):
        self.settings = settings
    def run(self):
        {0}
"""


@pytest.mark.parametrize(
    ("body", "later"),
    [
        ("pass", False),
        ("self.other = 1", False),
        ("self.settings.spread = True", True),
        ("self.settings = read()", True),
        ("node.settings = read()", True),
        ("setattr(self.settings, 'spread', True)", True),
        ("vars(self.settings).update(new)", True),
    ],
)
def test_attribute_that_a_method_sets_is_not_settled(body: str, later: bool) -> None:
    """The look-alike: only the constructor does."""
    assert _is_set_later(ast.parse(KEPT.format(body)), "self.settings.spread") == later
