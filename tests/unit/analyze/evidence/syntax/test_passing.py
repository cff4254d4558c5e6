"""The names that one object has in a file."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.syntax.passing import names_of_object

SOURCE = """\
def work(number, out, stop):
    out.put(number)

class Reader:
    def __init__(self, source):
        self.source = source

    def start(self, late):
        pass

Process(target=work, args=(1, results, halt))
spawn(work, args=(episodes, flag), nprocs=2)
Reader(self.queue)
read(other)
"""


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("results", {"results", "out", "episodes"}),
        ("halt", {"halt", "stop", "flag"}),
        ("queue", {"queue", "source"}),
        ("other", {"other"}),  # the function is not in the file
    ],
)
def test_parameters_are_names_of_what_is_passed(name: str, names: set[str]) -> None:
    assert names_of_object(ast.parse(SOURCE), name) == names
