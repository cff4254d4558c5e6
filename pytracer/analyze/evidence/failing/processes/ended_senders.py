"""A tensor of a queue whose sender had ended: the lines that waited for that end before, and those that put it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import function_named, own_nodes

_REBUILDS = ("rebuild_storage_fd", "rebuild_storage_filename")
_REDUCTIONS = "/torch/multiprocessing/reductions.py"
_MAKES = ("Process", "SpawnProcess", "ForkProcess", "start_processes", "spawn")
_GETS = ("get", "recv", "get_nowait")
_BASES = 3


def received_from(at: FailingLine) -> str | None:
    """`queue` of the line `queue.get()` that failed to receive a tensor; None for any other failure."""
    rebuilt = any(
        item.function in _REBUILDS and (item.file or "").endswith(_REDUCTIONS)
        for item in at.stack[: at.stack.index(at.frame)]
    )
    call = at.only(ast.Call)
    if not rebuilt or call is None or not isinstance(call.func, ast.Attribute) or called_name(call) not in _GETS:
        return None
    return variable(call.func.value)


def joined_senders(at: FailingLine) -> str | None:
    """`worker.join()` above `queue.get()`: the line that waits, and what to write."""
    got = received_from(at)
    ends = [*ends_before(at)] if got is not None else []
    if got is None or len(ends) != 1 or ends[0][1].file != at.frame.file or ends[0][1].depth != 0:
        return None
    join = ends[0][0]
    if not isinstance(join, ast.Call) or called_name(join) != "join" or join.args or join.keywords:
        return None  # with a time-out, they may still run
    return (
        f"Line {join.lineno} joins the processes before line {at.line} gets what they sent: a tensor's memory comes "
        f"from its sender, which has ended by then. {later_advice(at, got, join, ends[0][1])}"
    )


def later_advice(at: FailingLine, got: str, wait: ast.Call | ast.While, spot: Spot) -> str:
    """Which lines to put behind the last `queue.get()`, and how the senders stay alive."""
    here, last = at.in_file(spot.file, wait.lineno), f"behind the last `{got}.{getting_method(at)}()`"
    called = called_name(wait) if isinstance(wait, ast.Call) else None
    if called == "spawn":
        what = f"Pass `join=False` at {here}, call join() of what it returns {last}"
    elif called == "join":
        around = [
            loop for loop in loops_around(spot.tree, wait.lineno) if loop not in loops_around(spot.tree, spot.line)
        ]
        first = around[0].lineno if around else wait.lineno
        lines = f"{at.in_file(spot.file, first)} and {here}" if first != wait.lineno else here
        lines = f"lines {first} and {wait.lineno}" if first != wait.lineno and spot.file == at.frame.file else lines
        what = f"Join ({lines}) {last}"
    else:
        what = f"Wait for their end ({here}) {last}"
    return (
        f"{what}, and let the senders wait for an Event until then; or send numpy arrays, which are sent by value: "
        "then this order is right as well, as long as all that is sent fits into the pipe."
    )


def getting_method(at: FailingLine) -> str:
    """`get`, or `recv`."""
    call = at.only(ast.Call)
    return (called_name(call) if call is not None else None) or "get"


def ends_before(at: FailingLine) -> Iterator[tuple[ast.Call | ast.While, Spot]]:
    """What waits for the end of processes above the line that gets, or above the calls that lead to it.

    `worker.join()`, `while worker.is_alive()` and torch's mp.spawn(); not where processes are started in between.
    """
    for depth in range(len(at.frames)):
        spot = at.slice.spot(depth)
        if spot is None:
            continue
        nodes = [item for item in own_nodes(spot.scope) if isinstance(item, (ast.Call, ast.While))]
        starts = [item.lineno for item in nodes if isinstance(item, ast.Call) and called_name(item) == "start"]
        for item in nodes:
            if item.lineno >= spot.line or any(item.lineno < line < spot.line for line in starts):
                continue
            if _waits(at, spot, item):
                yield item, spot
            elif isinstance(item, ast.Call) and not starts:
                yield from _waits_inside(at, spot, item)


def _waits_inside(at: FailingLine, spot: Spot, call: ast.Call) -> Iterator[tuple[ast.Call | ast.While, Spot]]:
    """Of a function of the program that is called: `run_workers(n)`, which begins them and waits for their end."""
    found = at.slice.function(call, spot)
    if found is None:
        return
    function, inside = found
    held = Spot(inside.file, inside.tree, function, function.end_lineno or function.lineno, None, (call, spot))
    for item in own_nodes(function):
        if isinstance(item, (ast.Call, ast.While)) and _waits(at, held, item):
            yield item, held


def _waits(at: FailingLine, spot: Spot, node: ast.Call | ast.While) -> bool:
    if isinstance(node, ast.While):
        asked = (item for item in nodes_of(node.test) if isinstance(item, ast.Call))
        return any(called_name(item) == "is_alive" for item in asked)
    if called_name(node) == "spawn":
        joins = keyword_value(node, "join")
        return not isinstance(joins, ast.Constant) or joins.value is not False
    if not isinstance(node.func, ast.Attribute) or node.func.attr != "join" or len(node.args) + len(node.keywords) > 1:
        return False
    given = node.args[0] if node.args else None
    if given is not None and not isinstance(given, (ast.Constant, ast.Name, ast.Attribute)):
        return False
    name = variable(node.func.value)
    return name is not None and (_is_process(at, spot, name) or _runs_over(at, spot, name, node.lineno))


def _runs_over(at: FailingLine, spot: Spot, name: str, line: int) -> bool:
    """`for worker in workers`, of a list that is filled with processes, or made of them."""
    for loop in loops_around(spot.tree, line):
        if isinstance(loop, ast.For) and variable(loop.target) == name:
            return _holds_processes(at, spot, loop.iter)
    return False


def _holds_processes(at: FailingLine, spot: Spot, held: ast.expr) -> bool:
    made = at.slice.made(held, spot, calls=True)
    if any(_makes(at, part) for part in nodes_of(made.node)):
        return True
    name = variable(held)
    return name is not None and any(
        isinstance(item, ast.Call)
        and isinstance(item.func, ast.Attribute)
        and item.func.attr == "append"
        and variable(item.func.value) == name
        and len(item.args) == 1
        and (_makes(at, item.args[0]) or _is_process(at, spot, variable(item.args[0])))
        for item in own_nodes(spot.scope)
    )


def _is_process(at: FailingLine, spot: Spot, name: str | None) -> bool:
    if name is None:
        return False
    made = at.slice.made(ast.parse(name, mode="eval").body, spot, calls=True)
    return _makes(at, made.node) or any(
        isinstance(item, ast.Assign) and any(variable(part) == name for part in item.targets) and _makes(at, item.value)
        for item in own_nodes(spot.scope)
    )


def _makes(at: FailingLine, node: ast.AST) -> bool:
    """`mp.Process(...)`, and `Worker(...)` of a class of the program that is a process."""
    name = called_name(node) if isinstance(node, ast.Call) else None
    return name in _MAKES or is_process_class(at, name)


def is_process_class(at: FailingLine, name: str | None) -> bool:
    """Whether a class of the program is derived from Process."""
    for _ in range(_BASES):
        found = class_in(at, name)
        bases = [ast.unparse(item).rpartition(".")[2] for item in found.bases] if found is not None else []
        if any(base in _MAKES for base in bases):
            return True
        name = bases[0] if len(bases) == 1 else None
    return False


def class_in(at: FailingLine, name: str | None) -> ast.ClassDef | None:
    """The class of that name in the files of the program."""
    classes = (item for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.ClassDef))
    return next((item for item in classes if item.name == name), None)


def function_in(at: FailingLine, name: str) -> tuple[str, ast.FunctionDef | ast.AsyncFunctionDef] | None:
    """A function of that name with its file, if it is the only one."""
    found = [(file, item) for file, tree in at.files.items() if (item := function_named(tree, name)) is not None]
    return found[0] if len(found) == 1 else None
