"""The loops around a line."""

from __future__ import annotations

import ast
import textwrap

import pytest

from pytracer.analyze.evidence.syntax.loops import LOOPS, PLAIN_LOOPS, Loop, breaks_of, loop_around, loops_around

SOURCE = """\
for epoch in range(2):
    while True:
        step()
        break
    else:
        other()
    def inside():
        for item in range(3):
            use(item)
    done = [one(x) for x in range(4)]
    after()
async def serve(stream):
    async for batch in stream:
        handle(batch)
"""


@pytest.mark.parametrize(
    ("line", "kinds", "heads"),
    [
        (1, LOOPS, []),  # a head is not in its own loop
        (3, LOOPS, [1, 2]),
        (6, LOOPS, [1, 2]),  # the else belongs to it
        (9, LOOPS, [8]),  # the function has only its own
        (10, LOOPS, [1]),  # a comprehension is none
        (14, LOOPS, [13]),
        (14, PLAIN_LOOPS, []),
    ],
)
def test_loops_around_a_line_are_those_of_its_function(
    line: int, kinds: tuple[type[Loop], ...], heads: list[int]
) -> None:
    """The outermost first; `loop_around` is the head of the innermost one."""
    tree = ast.parse(SOURCE)
    assert [item.lineno for item in loops_around(tree, line, kinds)] == heads
    if kinds is LOOPS:
        assert loop_around(tree, line) == (heads[-1] if heads else None)


BREAKS = """\
for item in items:
    if item:
        break
    for part in item:
        break
    else:
        break
    while part:
        if part:
            break
else:
    break
"""


def test_break_in_an_else_is_that_of_the_loop_around() -> None:
    """It runs when its own loop is used up: of an outer one, or of the loop around it."""
    tree = ast.parse(f"while True:\n{textwrap.indent(BREAKS, '    ')}")
    outer = tree.body[0]
    assert isinstance(outer, ast.While) and isinstance(inner := outer.body[0], ast.For)
    assert [item.lineno for item in breaks_of(outer)] == [13]
    assert [item.lineno for item in breaks_of(inner)] == [4, 8]
