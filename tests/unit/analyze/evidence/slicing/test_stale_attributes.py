"""An attribute that __init__ computes from others and that a method leaves as it was, and what is none."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.slicing.stale_attributes import stale_attribute
from pytracer.analyze.evidence.syntax.scopes import scope_of

PROGRAM = """class Pairs:
    def __init__(self, left, right):
        self.left, self.right = left, right
        both = np.concatenate([left, right])
        self.users = np.unique(both)

    def drop(self, least):
        self.left, self.right = self.left[least:], self.right[least:]

    def _index(self):
        self.users = np.unique(self.left)


class Sampler:
    def __init__(self, pairs):
        self.users = pairs.users.astype(np.int64)

    def draw(self, rng):
        order = rng.permutation(self.users)
        batch = np.ascontiguousarray(order[:64])
        lib.walk(batch)


pairs = Pairs(*read())
pairs.drop(3)
Sampler(pairs).draw(rng)
"""


def found_in(text: str, read: str = "batch") -> object:
    """For what the line that calls the library passes."""
    tree = ast.parse(text)
    line = next(n for n, item in enumerate(text.splitlines(), 1) if "lib.walk(" in item)
    spot = Spot("train.py", tree, scope_of(tree, line), line)
    return stale_attribute({"train.py": tree}, ast.parse(read, mode="eval").body, spot)


def test_attribute_that_a_method_leaves_is_found_with_its_lines() -> None:
    """Through a variable of __init__, an attribute of another object, and calls that hand elements on."""
    found = found_in(PROGRAM)
    assert found is not None
    assert (found.owner, found.attribute, found.line, found.sources) == ("Pairs", "users", 5, ("left", "right"))  # type: ignore[attr-defined]
    assert (found.method, found.set_line, found.call) == ("drop", 8, ("train.py", 25))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.right[least:]\n", "self.right[least:]\n        self._index()\n"),
        ("self.right[least:]\n", "self.right[least:]\n        self.users, self.n = both(self)\n"),
        ("np.unique(both)", "np.arange(len(both))"),
        ("np.unique(both)", "both"),
        ("pairs.drop(3)\n", ""),
        ("pairs.drop(3)\n", "pairs.drop(3)\npairs.drop(4)\n"),
        ("pairs.drop(3)\n", "pairs.drop(3)\npairs.users = np.unique(pairs.left)\n"),
        ("self.left, self.right = self.left[least:]", "self.other, self.more = self.left[least:]"),
        ("pairs.users.astype", "pairs.left.astype"),
        ("np.concatenate([left, right])", "read_users()"),
    ],
    ids=[
        "made anew by another method", "made anew with another", "only a length", "only another name", "never called",
        "called twice", "set from outside", "other attributes", "not read", "of nothing that changes",
    ],
)  # fmt: skip
def test_attribute_that_is_not_known_to_be_left_is_not_found(old: str, new: str) -> None:
    """The look-alikes."""
    assert old in PROGRAM and found_in(PROGRAM.replace(old, new)) is None


def test_array_that_comes_from_elsewhere_has_no_such_attribute() -> None:
    assert found_in(PROGRAM, "rng.integers(0, 9, 64)") is None
