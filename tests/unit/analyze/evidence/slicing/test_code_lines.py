"""The function that a line of the report is labelled with: the one around it, wherever its value was looked for."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.slicing.code_lines import code_line
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.scopes import statement_at

SOURCE = """WIDTH = 4


def main(p):
    p.add_argument("--threads", default=2)
    scale = lambda x: x * 2


def short(x): return x + 1


class Table:
    def rows(self):
        return 3
"""


@pytest.mark.parametrize(
    ("line", "function"), [(1, None), (4, None), (5, "main"), (6, "main"), (9, None), (14, "Table.rows")]
)
def test_a_line_is_labelled_with_the_function_around_it(line: int, function: str | None, tmp_path: Path) -> None:
    """The default of an option is looked for in the whole module; it is a line of main()."""
    tree = ast.parse(SOURCE)
    statement = statement_at(tree, line)
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=0)
    assert statement is not None
    if line == 9:
        function = "short" if isinstance(statement, ast.Return) else None
    assert code_line(snapshot, Spot(str(tmp_path / "a.py"), tree, tree, line), statement).function == function
