"""What grows in a process whose memory is hardly tensors: containers that the program only puts into."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from pytracer._text import list_words, size_words
from pytracer.analyze.evidence.ends.growing_containers import only_grows, stored
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.limits.numbers import recorded_numbers
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import indexed, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView

_SMALL_SHARE = 0.1  # of what the process has in RAM
_HEAVY_BYTES = 512 << 20  # less may be Python, torch and their libraries alone
_MOST = 3
_NUMBERS = ("item", "float", "int", "len", "time", "perf_counter", "str", "round")
_INIT = "__init__"


def mostly_others(view: ProcessView, tensor_bytes: int) -> str | None:
    """What to look at where tensors are a small part of the memory; None where they are not, or it is not recorded."""
    numbers = recorded_numbers(view.exception.variables) if view.exception is not None else None
    resident = numbers.used("memory") if numbers is not None else None
    if resident is None or resident < _HEAVY_BYTES or tensor_bytes > resident * _SMALL_SHARE:
        return None
    held = (
        f"Of the {size_words(resident)} that the process had in RAM, {size_words(tensor_bytes)} were tensors: what "
        "else it keeps has to be NumPy arrays, other Python objects, or memory of a library."
    )
    lines = growing_stores(program_files(view.process.snapshot, view.exception_stack_of_program))
    if not 0 < len(lines) <= _MOST:
        return held
    verb = "puts" if len(lines) == 1 else "put"
    which = "a container that nothing empties" if len(lines) == 1 else "containers that nothing empties"
    return f"{held} {list_words(lines)} {verb} more and more into {which}: look there first, keep less, or bound it."


def growing_stores(files: Mapping[str, ast.Module]) -> list[str]:
    """`` train.py:56 (`self.memory[key] = read(key)`) ``, of lines that run again and keep more than numbers."""
    return [
        f"{short_file(file)}:{item.lineno} (`{source(item)}`)" for file, tree in files.items() for item in _stores(tree)
    ]


def _stores(tree: ast.Module) -> Iterator[ast.stmt]:
    for item in nodes_of(tree):
        found = stored(item) if isinstance(item, (ast.Expr, ast.Assign)) else None
        if found is None or not isinstance(item, ast.stmt):
            continue
        container, value = found
        scope = scope_of(tree, item.lineno)
        if getattr(scope, "name", "") == _INIT or _is_number(value):
            continue
        if _lasts(tree, scope, container, item) and only_grows(tree, scope, container, item):
            yield item


def _lasts(tree: ast.Module, scope: ast.AST, container: ast.expr, item: ast.stmt) -> bool:
    """Of an object, or of a loop of the module: what a function makes anew goes with its call."""
    of_object = (variable(indexed(container)) or "").startswith("self.")
    return of_object or (isinstance(scope, ast.Module) and bool(loops_around(tree, item.lineno)))


def _is_number(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) or (isinstance(value, ast.Call) and called_name(value) in _NUMBERS)
