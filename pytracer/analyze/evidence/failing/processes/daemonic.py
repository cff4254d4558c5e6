"""A process that may start none: what it was to start, and what made it daemonic."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, keyword_value
from pytracer.analyze.evidence.syntax.constants import is_true
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_REFUSED = "daemonic processes are not allowed to have children"  # CPython, multiprocessing/process.py
_OF_LOADER = Pattern(r"/torch/utils/data/_utils/worker\.py$")
_OF_POOL = Pattern(r"/(?:multiprocess|multiprocessing)/pool\.py$")
_LOADING = Pattern(r"/torch/utils/data/dataloader\.py$")


def daemonic(at: FailingLine) -> str | None:
    """Who the process is decides what to change: a worker of a DataLoader or of a Pool, or one of the program's own."""
    if at.message != _REFUSED:
        return None
    loads = any(_LOADING.search(frame.file or "") for frame in at.stack)
    what = "a DataLoader with workers" if loads else "a process or pool"
    instead = "num_workers=0" if loads else "threads (concurrent.futures.ThreadPoolExecutor)"
    files = [frame.file or "" for frame in at.stack]
    if any(map(_OF_LOADER.search, files)):
        return (
            f"Line {at.line} starts {what} in a worker of a DataLoader, and such a worker may not: use {instead} there "
            "and give that DataLoader more workers, or num_workers=0 if its dataset needs processes of its own."
        )
    if any(_OF_POOL.search(frame.file or "") and frame.function == "worker" for frame in at.stack):
        return (
            f"Line {at.line} starts {what} in a worker of multiprocessing.Pool, and such a worker may not: use "
            f"{instead} there, or concurrent.futures.ProcessPoolExecutor in place of that Pool, whose workers may."
        )
    made = [*_made_daemonic(at)]
    if len(made) != 1:
        return None
    file, node = made[0]
    return (
        f"{capital(at.in_file(file, node.lineno))} (`{short(source(node))}`) makes this process a daemon, and a daemon "
        f"may not start {what}, as line {at.line} does: leave `daemon` out there, and let it end and join() it when "
        f"its work is done; or use {instead} at line {at.line}."
    )


def _made_daemonic(at: FailingLine) -> Iterator[tuple[str, ast.Call | ast.Assign]]:
    """What starts the process that runs these functions, by the name of its target."""
    runs = {(frame.function or "").rpartition(".")[2] for frame in at.frames}
    for file, tree in at.files.items():
        for node in nodes_of(tree):
            for target, value in set_by(node):
                if isinstance(node, ast.Assign) and isinstance(target, ast.Attribute) and target.attr == "daemon":
                    of = last_name(target.value)
                    made = any(last_name(own) == of and _runs(call, runs) for own, call in _set_in(tree))
                    if made and is_true(value):
                        yield file, node
            if isinstance(node, ast.Call) and _runs(node, runs) and is_true(keyword_value(node, "daemon")):
                yield file, node


def _set_in(tree: ast.Module) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    for node in nodes_of(tree):
        yield from set_by(node)


def _runs(call: ast.AST | None, functions: set[str]) -> bool:
    if not isinstance(call, ast.Call) or not (called_name(call) or "").endswith("Process"):
        return False
    target = argument_at(call, 1, "target")
    return target is not None and last_name(target) in functions
