"""Which conditions decide whether a line is reached."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.loops import deciding_ifs

SOURCE = """\
def fit(epochs, rank):
    for epoch in range(epochs):
        if epoch == 2:
            continue
        for _ in range(2):
            step()
        if stops(epoch):
            break
    barrier()
    if rank != 0:
        return
    if epochs:
        save()
"""


@pytest.mark.parametrize(
    ("line", "tests"),
    [
        (6, ["epoch == 2"]),  # in a loop of its own below the `continue`
        (9, []),  # behind the loop, which every way leaves
        (13, ["epochs", "rank != 0"]),
    ],
)
def test_a_break_decides_about_its_own_loop_only(line: int, tests: list[str]) -> None:
    found = deciding_ifs(ast.parse(SOURCE), line)
    assert [ast.unparse(item.test) for item, _ in found] == tests
