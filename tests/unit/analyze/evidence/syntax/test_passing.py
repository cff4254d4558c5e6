"""The names that one object has in a file."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from pytracer.analyze.evidence.syntax.passing import all_names_of_object, names_of_object

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


def test_long_program_is_walked_a_few_times_however_many_calls_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk of the whole for each call, or each name, takes minutes at some thousand lines."""
    count = 1000
    tree = ast.parse("\n".join(f"def f{n}(a{n}):\n    f{n + 1}(a{n})\nf{n}(b)" for n in range(count)))
    walk = ast.walk
    walked: list[ast.AST] = []

    def counted(node: ast.AST) -> Iterator[ast.AST]:
        walked.append(node)
        return walk(node)

    monkeypatch.setattr(ast, "walk", counted)
    assert all_names_of_object(tree, "a0") == {"b", *(f"a{n}" for n in range(count))}
    assert names_of_object(tree, "unknown") == {"unknown"}
    assert sum(node is tree for node in walked) <= 3
