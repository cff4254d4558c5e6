"""Buffers that lines of a function make with a limit which a count of the same call does not have."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import short_rooms as module
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.scopes import scope_of

BOXES = """def select(self, boxes, scores):
    order = np.argsort(-scores)[:self.first]
    ranked = boxes[order]
    n = len(ranked)
    keep = np.zeros(min(len(ranked), self.limit), dtype=np.int32)
    self.nms(keep, n)
"""


class Numbers:
    """Numbers that are on record, by their expressions."""

    def __init__(self, **known: int) -> None:
        self.known = known

    def number(self, node: ast.AST, spot: Spot) -> int | None:
        return self.known.get(ast.unparse(node))


def found(source: str, count: str = "len(ranked)", **known: int) -> module.ShortRoom | None:
    tree = ast.parse(source)
    line = len(source.splitlines())
    arrays: Any = Numbers(**known)
    wanted = ast.parse(count, mode="eval").body
    return module.short_room(arrays, Spot("train.py", tree, scope_of(tree, line), line), "keep", wanted, 4)


@pytest.mark.parametrize("count", ["len(ranked)", "ranked.shape[0]", "n"])
def test_limit_of_the_buffer_alone_makes_it_short(count: str) -> None:
    assert found(BOXES, count) == module.ShortRoom(5, "min(len(ranked), self.limit)")


@pytest.mark.parametrize("size", ["self.limit", "300", "(300,)", "len(self.slots)", "self.height * self.width"])
def test_another_number_than_the_count_may_be_as_large(size: str) -> None:
    """`np.zeros(height * width)` beside `mask.size`: nothing but recorded numbers compares the two."""
    assert found(BOXES.replace("min(len(ranked), self.limit)", size)) is None


def test_count_may_be_in_a_variable_of_the_limit() -> None:
    source = BOXES.replace("    keep", "    size = min(n, self.limit)\n    keep").replace(
        "min(len(ranked), self.limit),", "size,"
    )
    told = found(source)
    assert told is not None and told.line == 6


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("min(len(ranked), self.limit)", "len(ranked)"),
        ("min(len(ranked), self.limit)", "ranked.shape[0]"),
        ("min(len(ranked), self.limit)", "n"),
        ("min(len(ranked), self.limit)", "n + 1"),
        ("min(len(ranked), self.limit)", "len(order)"),
        ("min(len(ranked), self.limit)", "max(len(ranked), self.limit)"),
        ("min(len(ranked), self.limit)", "self.first"),
        ("boxes[order]", "boxes[order][:self.limit]"),
        ("min(len(ranked), self.limit)", "min(self.most, self.limit)"),
        ("    n = ", "    if len(ranked) > self.limit: raise ValueError\n    n = "),
        ("    n = ", "    assert n <= self.limit\n    n = "),
        ("np.int32", "np.int64"),
        ("np.zeros(", "make_buffer("),
        ("np.zeros(min(len(ranked), self.limit)", "np.zeros((min(len(ranked), self.limit), 4)"),
    ],
    ids=[
        "as many", "its first size", "a variable", "one more", "of what it is made of", "the larger one",
        "cut to it before", "cut to it", "of two others", "checked", "asserted", "wider elements", "not known",
        "two dimensions",
    ],
)  # fmt: skip
def test_buffers_that_may_be_large_enough_are_none(old: str, new: str) -> None:
    """The look-alikes: the size follows from the count, the count knows the limit, or the size is not known."""
    assert old in BOXES
    assert found(BOXES.replace(old, new, 1)) is None


def test_numbers_on_record_decide() -> None:
    short = found(BOXES.replace("min(len(ranked), self.limit)", "size"), "n", n=312, size=300)
    assert short is not None and short.numbers == (312, 300)
    assert found(BOXES.replace("min(len(ranked), self.limit)", "size"), "n", n=300, size=300) is None


ENCODED = """\
def run(lib, text):
    raw = text.encode("utf-8")
    out = ctypes.create_string_buffer(SIZE)
    lib.normalise(raw, len(raw), out)
"""


@pytest.mark.parametrize(
    ("size", "encode", "text"),
    [
        ("len(text) + 64", '"utf-8"', "text"),
        ("len(text) + 1", "", "text"),
        ("len(raw) + 1", '"utf-8"', None),
        ("4 * len(text)", '"utf-8"', None),
        ("len(text) + 64", '"ascii"', None),
        ("limit", '"utf-8"', None),
    ],
)
def test_room_for_characters_is_no_room_for_their_bytes(size: str, encode: str, text: str | None) -> None:
    source = ENCODED.replace("SIZE", size).replace('"utf-8"', encode)
    tree = ast.parse(source)
    scope = tree.body[0]
    assert isinstance(scope, ast.FunctionDef)
    arrays: Any = Numbers()
    count = ast.parse("len(raw)", mode="eval").body
    room = module.short_room(arrays, Spot("train.py", tree, scope, 4), "out", count, 1)
    assert (room.text if room is not None else None) == text
