"""A tensor of a queue whose sender had ended: the lines, where the receiver itself had waited for that end."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_REBUILDS = ("rebuild_storage_fd", "rebuild_storage_filename")
_REDUCTIONS = "/torch/multiprocessing/reductions.py"
_MAKES = ("Process", "start_processes", "spawn", "SpawnProcess")


def joined_senders(at: FailingLine) -> str | None:
    """`worker.join()` above `queue.get()`, in the function that began the workers."""
    rebuilt = any(
        item.function in _REBUILDS and (item.file or "").endswith(_REDUCTIONS)
        for item in at.stack[: at.stack.index(at.frame)]
    )
    call = at.only(ast.Call)
    got = variable(call.func.value) if call is not None and isinstance(call.func, ast.Attribute) else None
    if not rebuilt or call is None or got is None or called_name(call) not in ("get", "recv", "get_nowait"):
        return None
    joins = [item for item in own_nodes(at.scope) if isinstance(item, ast.Call) and _joins(at, item)]
    if len(joins) != 1:
        return None
    (join,) = joins
    around = [loop for loop in loops_around(at.tree, join.lineno) if loop not in loops_around(at.tree, at.line)]
    first = around[0].lineno if around else join.lineno
    lines = f"lines {first} and {join.lineno}" if first != join.lineno else at.here(join.lineno)
    return (
        f"Line {join.lineno} joins the processes before line {at.line} gets what they sent: a tensor's memory comes "
        f"from its sender, which has ended by then. Join ({lines}) behind the last `{got}.{called_name(call)}()`, and "
        "let the senders wait for an Event until then; or send numpy arrays, or use "
        "torch.multiprocessing.set_sharing_strategy('file_system')."
    )


def _joins(at: FailingLine, call: ast.Call) -> bool:
    """Above the line, without a time-out, of a process that this function began; not in a loop around both."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "join" or call.args or call.keywords:
        return False
    if call.lineno >= at.line or set(loops_around(at.tree, call.lineno)) & set(loops_around(at.tree, at.line)):
        return False
    name = variable(call.func.value)
    return name is not None and (_is_process(at, name) or _runs_over(at, name, call.lineno))


def _runs_over(at: FailingLine, name: str, line: int) -> bool:
    """`for worker in workers`, of a list that this function fills with processes, or makes of them."""
    for loop in loops_around(at.tree, line):
        if isinstance(loop, ast.For) and variable(loop.target) == name:
            held = variable(loop.iter)
            return held is not None and _holds_processes(at, held)
    return False


def _holds_processes(at: FailingLine, held: str) -> bool:
    for item in own_nodes(at.scope):
        if isinstance(item, ast.Assign) and any(variable(part) == held for part in item.targets):
            if any(isinstance(part, ast.Call) and called_name(part) in _MAKES for part in ast.walk(item.value)):
                return True
        elif isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "append":
            put = item.args[0] if len(item.args) == 1 and variable(item.func.value) == held else None
            if isinstance(put, ast.Call) and called_name(put) in _MAKES:
                return True
            inner = variable(put) if put is not None else None
            if inner is not None and _is_process(at, inner):
                return True
    return False


def _is_process(at: FailingLine, name: str) -> bool:
    return any(
        isinstance(item, ast.Assign)
        and any(variable(part) == name for part in item.targets)
        and isinstance(item.value, ast.Call)
        and called_name(item.value) in _MAKES
        for item in own_nodes(at.scope)
    )
