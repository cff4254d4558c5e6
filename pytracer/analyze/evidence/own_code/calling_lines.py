"""Which lines of the program call a function, by its name."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.own_libraries import files_of_program
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView


def lines_that_call(view: ProcessView, functions: Collection[str]) -> Iterator[LineWords]:
    """Lines of the program with a call of one of these functions; also where no Python runs any more."""
    for file, tree in files_of_program(view).items():
        for node in nodes_of(tree):
            if isinstance(node, ast.Call) and called_name(node) in functions:
                yield place_of(view, file, node.lineno)
