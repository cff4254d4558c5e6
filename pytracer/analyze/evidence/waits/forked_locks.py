"""A lock that a thread of the parent may have held at fork(), by the lines of the file."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.evidence.waits.waited_object import last_name, waited_object
from pytracer.analyze.evidence.waits.waits import ProcessWait
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_CHILDREN = ("Process", "Pool", "ProcessPoolExecutor", "DataLoader", "fork", "spawn", "start_processes")


def held_by_thread(view: ProcessView, wait: ProcessWait) -> str | None:
    """`` `lock` is also taken at line 14 in refresh(), which line 24 starts as a thread. ``"""
    thing, tree = waited_object(view, wait), syntax_tree(view.process.snapshot, wait.at)
    if thing is None or tree is None:
        return None
    functions = {item.name: item for item in ast.walk(tree) if isinstance(item, ast.FunctionDef)}
    for item in ast.walk(tree):
        if not isinstance(item, ast.Call) or called_name(item) != "Thread" or _comes_after_children(tree, item.lineno):
            continue
        target = keyword_value(item, "target")
        function = functions.get((last_name(target) if target is not None else None) or "")
        line = next(_takes(function, thing.names), None) if function is not None else None
        if function is not None and line is not None:
            return (
                f"`{thing.name}` is also taken at line {line} in {function.name}(), which line {item.lineno} starts as "
                "a thread: it may have held it at the fork(). "
            )
    return None


def _comes_after_children(tree: ast.Module, line: int) -> bool:
    """Whether its function starts children only above that line."""
    made = [
        item.lineno
        for item in own_nodes(scope_of(tree, line))
        if isinstance(item, ast.Call) and called_name(item) in _CHILDREN
    ]
    return bool(made) and max(made) < line


def _takes(function: ast.FunctionDef, names: frozenset[str]) -> Iterator[int]:
    for item in own_nodes(function):
        taken = [part.context_expr for part in item.items] if isinstance(item, ast.With) else []
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "acquire":
            taken = [item.func.value]
        yield from (part.lineno for part in taken if (last_name(part) or "") in names)
