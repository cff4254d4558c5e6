"""A `for` over an object whose __getitem__ takes any number, by its source; the look-alikes come to their end."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.iterations import counted_up

SOURCE = """\
class Clips(Dataset):
    def __len__(self):
        return 300
    def __getitem__(self, i):
        x = torch.rand(3)
        return {0}
{1}
def mean(clips):
    for x in {2}:
        use(x)
"""


def found(value: str, more: str = "", over: str = "clips") -> bool:
    tree = ast.parse(SOURCE.format(value, more, over))
    loop = 9 + more.count("\n")
    result = counted_up(tree, 5, tree, loop)
    return result is not None and result[1].sure and f"range(len({over}))" in result[1].advice


@pytest.mark.parametrize("value", ["x, i % 10", "self.items[i % len(self.items)]", "x * i"])
def test_getitem_that_takes_any_number_is_called_for_ever(value: str) -> None:
    """Its __len__ is not asked."""
    assert found(value)


@pytest.mark.parametrize("value", ["self.items[i]", "self.items[self.order[i]]", "self.load(i)", "torch.rand(i)"])
def test_getitem_that_may_refuse_a_number_ends_the_loop(value: str) -> None:
    """An element of that number, or a function that is given it."""
    assert not found(value)


def test_other_loops_are_left_alone() -> None:
    """An __iter__ of the class; a loader or range around it; a `raise`."""
    assert not found("x", "    def __iter__(self):\n        yield 1")
    assert not found("x", over="DataLoader(clips)")
    tree = ast.parse(
        SOURCE.format("x", "", "clips").replace("x = torch", "if i > 9: raise IndexError\n        x = torch")
    )
    assert counted_up(tree, 5, tree, 10) is None
