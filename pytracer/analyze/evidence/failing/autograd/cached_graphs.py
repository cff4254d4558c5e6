"""A result that functools keeps from its first call, with the graph that the first backward() frees."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.autograd.carried_states import is_computed, is_module
from pytracer.analyze.evidence.failing.autograd.kept_results import WITHOUT_GRAPH, Stored
from pytracer.analyze.evidence.failing.expressions import short
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans

_KEEPS = ("cached_property", "lru_cache", "cache")
_OFF = Pattern(r"no_grad|inference_mode")


def cached_graph(at: FailingLine) -> tuple[str | None, str | None]:
    """What to do, and for the headline, where one method is cached whose result a layer has part in."""
    found = [*_cached(at)]
    if len(found) != 1:
        return None, None
    stored, kept = found[0]
    name, place = f"{stored.owner.name}.{stored.method.name}", at.in_file(stored.file, stored.method.lineno)
    made = f"{at.in_file(stored.file, stored.node.lineno)}: `{short(ast.unparse(stored.node))}`"
    plain = "@property" if kept == "cached_property" else "method without it"
    words = (
        f"Most likely by `{name}` ({place}): @{kept} keeps its first result ({made}) with its graph, and the next step "
        f"reads it after backward() has freed that. Make it a {plain}, which computes it in each step, or compute it "
        "under torch.no_grad() where its layers shall not be trained."
    )
    return words, f"probably the graph of what @{kept} keeps of `{name}` ({place})"


def _cached(at: FailingLine) -> Iterator[tuple[Stored, str]]:
    for file, tree in at.files.items():
        for owner in (item for item in nodes_of(tree) if isinstance(item, ast.ClassDef)):
            for method in (item for item in owner.body if isinstance(item, ast.FunctionDef)):
                kept = [name for item in method.decorator_list if (name := _name(item)) in _KEEPS]
                returns = [item for item in own_nodes(method) if isinstance(item, ast.Return) and item.value]
                if not kept or len(returns) != 1 or WITHOUT_GRAPH.search(ast.unparse(method)):
                    continue
                value = returns[0].value
                stored = Stored(file, owner, method, returns[0], value) if value is not None else None
                if stored is None or not is_module(at, owner) or not is_computed(at, stored, given=False):
                    continue
                if not _is_forgotten(at, method.name) and not _is_read_without_graph(at, method.name):
                    yield stored, kept[0]


def _name(decorator: ast.expr) -> str | None:
    """`cache` of `@functools.cache`, `lru_cache` of `@lru_cache(maxsize=1)`."""
    if isinstance(decorator, ast.Call):
        return called_name(decorator)
    return decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", None)


def _is_read_without_graph(at: FailingLine, name: str) -> bool:
    """Whether a line below no_grad() reads it: what that keeps may have no graph."""
    for tree in at.files.values():
        withs = [item for item in nodes_of(tree) if isinstance(item, ast.With)]
        off = [item for item in withs if any(_OFF.search(ast.unparse(part)) for part in item.items)]
        for item in nodes_of(tree):
            if not isinstance(item, ast.Attribute) or item.attr != name:
                continue
            by = getattr(scope_of(tree, item.lineno), "decorator_list", [])
            if any(_OFF.search(ast.unparse(part)) for part in by) or any(spans(part, item.lineno) for part in off):
                return True
    return False


def _is_forgotten(at: FailingLine, name: str) -> bool:
    """`del self.features`, `self.__dict__.pop("features", None)`, `features.cache_clear()`."""
    for tree in at.files.values():
        for item in nodes_of(tree):
            if isinstance(item, ast.Attribute) and item.attr == name and isinstance(item.ctx, (ast.Del, ast.Store)):
                return True
            if isinstance(item, ast.Call) and called_name(item) in ("cache_clear", "delattr"):
                return True
            if isinstance(item, ast.Constant) and item.value == name:
                return True
    return False
