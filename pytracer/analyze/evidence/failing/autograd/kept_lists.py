"""A list of results with their graphs that no line of the program ever empties: log-probabilities of past episodes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.autograd.backward_call import outside_backward
from pytracer.analyze.evidence.failing.autograd.backward_losses import loss_of
from pytracer.analyze.evidence.failing.autograd.graph_lines import lines_on_the_way
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.loops import PLAIN_LOOPS, loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of

_NO_GRAPH = Pattern(r"\.(?:item|detach|numpy|tolist|data|cpu|argmax)\b|^(?:float|int|len|str|range)\(")
_EMPTIES = ("clear", "pop", "popleft")


def kept_list(raised: FailingLine) -> tuple[str | None, str | None]:
    """What to do, and for the headline, of the one list that the loss is computed from and that only grows."""
    at = outside_backward(raised)
    found = [*_kept(at)]
    if len(found) != 1:
        return None, None
    name, line, text = found[0]
    words = (
        f"`{name}` is never emptied: most likely it still has what {at.here(line)} (`{text}`) put there in earlier "
        f"rounds, of which backward() has freed the graph. Empty it after each step (`{name}.clear()`), or make it new "
        "in each round."
    )
    return words, f"`{name}`, which is never emptied, probably still has results of earlier rounds ({at.here(line)})"


def _kept(at: FailingLine) -> Iterator[tuple[str, int, str]]:
    """Names of lists on the way to the loss, and the one line that fills each."""
    loss = loss_of(at)
    if loss is None:
        return
    way = lines_on_the_way(at, next(iter(names_in(loss.value)), ""))
    read = {
        ast.unparse(item)
        for item in nodes_of(at.tree)
        if isinstance(item, (ast.Name, ast.Attribute)) and item.lineno in way and isinstance(item.ctx, ast.Load)
    }
    parts = {
        ast.unparse(item.value) for item in nodes_of(at.tree) if isinstance(item, ast.Subscript) and item.lineno in way
    }
    for name in sorted(read - parts):  # the last ones of a list may be of this round
        added = [call for owner, call in _calls(at.tree, ("append",)) if owner == name]
        if len(added) != 1 or not added[0].args or _NO_GRAPH.search(ast.unparse(added[0].args[0])):
            continue
        if isinstance(added[0].args[0], (ast.Constant, ast.Tuple)) or any(
            _is_emptied(tree, name) for tree in at.files.values()
        ):
            continue
        yield name, added[0].lineno, source(added[0])


def _calls(tree: ast.Module, names: tuple[str, ...]) -> Iterator[tuple[str, ast.Call]]:
    """Calls of methods of these names, and the text of the object."""
    for item in nodes_of(tree):
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in names:
            yield ast.unparse(item.func.value), item


def _is_emptied(tree: ast.Module, name: str) -> bool:
    """Whether a line may empty it, or make it anew in a function or loop that runs again."""
    last = name.rpartition(".")[2]
    if any(owner.rpartition(".")[2] == last for owner, _ in _calls(tree, _EMPTIES)):
        return True
    for item in nodes_of(tree):
        if isinstance(item, ast.Delete) and last in ast.unparse(item):
            return True
        if isinstance(item, (ast.Assign, ast.AnnAssign)) and not _is_once(tree, item):
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            if any(last in ast.unparse(target) for target in targets):
                return True
    return False


def _is_once(tree: ast.Module, item: ast.AST) -> bool:
    """At the top of the file, or in __init__, and in no loop."""
    line = getattr(item, "lineno", 0)
    scope = scope_of(tree, line)
    once = isinstance(scope, ast.Module) or getattr(scope, "name", "") == "__init__"
    return once and not loops_around(tree, line, PLAIN_LOOPS) and isinstance(getattr(item, "value", None), ast.List)
