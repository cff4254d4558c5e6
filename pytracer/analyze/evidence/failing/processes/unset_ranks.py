"""A rank that the program reads from the environment, where it is not set: each process then takes the default.

Of processes that multiprocessing has started: torchrun and its like set the variables, mp.spawn() only passes a number.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import structs

from pytracer._library_files import of_multiprocessing
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.calls import method_of
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes

# Those that are recorded wherever they are set.
_RANKS = frozenset({"RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID", "SLURM_LOCALID"})
_RANKS |= {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"}
_READS = ("os.environ.get", "environ.get", "os.getenv", "getenv")
_SETS = frozenset({"update", "setdefault", "putenv"})
_STARTED = (*of_multiprocessing("process", "spawn"), "torch/multiprocessing/spawn.py")
_STARTS = frozenset({"spawn", "start_processes", "Process"})
_MOST = 60
_BOTH = 2


class UnsetRank(msgspec.Struct, frozen=True):
    """`os.environ.get("LOCAL_RANK", 0)`: what the process took in its place, and where."""

    name: str
    default: str
    node: ast.Call
    spot: Spot


def unset_rank(at: FailingLine, tests: Iterable[tuple[ast.AST, Spot]]) -> UnsetRank | None:
    """That of which conditions depend; None unless this process was started by another one, and nothing sets it.

    Args:
        at: The failing line.
        tests: Conditions, or values of them.
    """
    if not _is_started(at):
        return None
    found = {item.name: item for item in _reads(at, [*tests])}
    known = [item for name, item in found.items() if name not in at.snapshot.environment and not _is_set(at, name)]
    return known[0] if len(known) == len(found) == 1 else None


def _is_started(at: FailingLine) -> bool:
    """Whether the process runs a function that the program starts as a process of its own."""
    if any((frame.file or "").endswith(_STARTED) for frame in at.stack):
        return True
    name = (at.frames[-1].function or "").rpartition(".")[2]
    calls = (item for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.Call))
    return any(
        name
        in (
            ast.unparse(part).rpartition(".")[2]
            for part in (*item.args[:1], keyword_value(item, "target", "fn"))
            if part
        )
        for item in calls
        if called_name(item) in _STARTS
    )


def _reads(at: FailingLine, waiting: list[tuple[ast.AST, Spot]]) -> Iterator[UnsetRank]:
    seen: set[tuple[int, int]] = set()
    while waiting and len(seen) < _MOST:
        node, spot = waiting.pop(0)
        if (id(node), spot.line) in seen:
            continue
        seen.add((id(node), spot.line))
        read = _read(node, spot)
        if read is not None:
            yield read
        else:
            waiting += _steps(at, node, spot)


def _read(node: ast.AST, spot: Spot) -> UnsetRank | None:
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in _READS or len(node.args) != _BOTH:
        return None
    name, default = node.args
    if not isinstance(name, ast.Constant) or name.value not in _RANKS or not isinstance(default, ast.Constant):
        return None
    return UnsetRank(str(name.value), str(default.value), node, spot)


def _steps(at: FailingLine, node: ast.AST, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        made = at.slice.made(node, spot, calls=False)
        if made.through and made.node is not node:
            yield made.node, made.spot
        elif isinstance(node, ast.Attribute):
            yield from _of_property(at, node, spot)
    elif isinstance(node, ast.Call):
        step = at.slice.returned(node, spot)
        yield from [step] if step is not None else [(item, spot) for item in node.args]
    elif isinstance(node, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp)):
        yield from ((item, spot) for item in ast.iter_child_nodes(node) if isinstance(item, ast.expr))


def _of_property(at: FailingLine, node: ast.Attribute, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
    """What the method of a class of the program returns."""
    own = isinstance(node.value, ast.Name) and node.value.id == "self"
    inside = class_around(spot.tree, spot.scope) if own else None
    owner = (inside, spot) if inside is not None else at.slice.class_of(node.value, spot)
    method = method_of(owner[0], (node.attr,)) if owner is not None else None
    if owner is None or method is None or "property" not in " ".join(map(ast.unparse, method.decorator_list)):
        return
    for item in own_nodes(method):
        if isinstance(item, ast.Return) and item.value is not None:
            yield item.value, structs.replace(owner[1], scope=method, line=item.lineno, depth=None, call=None)


def _is_set(at: FailingLine, name: str) -> bool:
    """Whether a line of the program may set it: `os.environ["RANK"] = ...`, `os.environ.update(values)`."""
    for tree in at.files.values():
        for item in nodes_of(tree):
            if isinstance(item, ast.Subscript) and isinstance(item.ctx, ast.Store) and "environ" in source(item.value):
                if not isinstance(item.slice, ast.Constant) or item.slice.value == name:
                    return True
            elif isinstance(item, ast.Call) and called_name(item) in _SETS and "environ" in ast.unparse(item.func):
                text = ast.unparse(item)
                plain = all(isinstance(part, (ast.Constant, ast.Dict)) for part in item.args)
                if name in text or not plain or any(part.arg is None for part in item.keywords):
                    return True
    return False
