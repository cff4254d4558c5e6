"""What sets the flag by which a rank leaves a loop on its own: a signal's handler, a clock, one line of the program."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from pytracer.analyze.collectives.clock_tests import reads_clock
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import Loop, breaks, deciding_ifs
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import comes_alone, one_rank_words
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans_body
from pytracer.analyze.naming import line_in


class StopFlag(msgspec.Struct, frozen=True):
    """`sets`: how it is set, after "which"; `why`: why only some ranks leave then, a sentence."""

    sets: str
    why: str


def way_out(loop: Loop) -> tuple[int, ast.expr] | None:
    """The one condition that ends a loop before its rounds are over: the line and the test; None of several."""
    inside = [*own_nodes(loop)]
    leaving = [item for item in inside if isinstance(item, ast.Return) or breaks(loop, item)]
    heads = isinstance(loop, ast.While) and not isinstance(loop.test, ast.Constant)
    if heads and isinstance(loop, ast.While):
        return (loop.lineno, loop.test) if not leaving else None
    tests = [item for item in inside if isinstance(item, ast.If) and any(part is leaving[0] for part in item.body)] \
        if len(leaving) == 1 else []  # fmt: skip
    return (tests[0].lineno, tests[0].test) if len(tests) == 1 else None


def stop_flag(files: Mapping[str, ast.Module], file: str, line: int, test: ast.expr) -> StopFlag | None:
    """By what the files of the program show of the condition at a line."""
    tree = files.get(file)
    if tree is None:
        return None
    clock = reads_clock(files, tree, line, test)
    if clock is not None:
        by = f", by `{clock}`" if clock else ""
        return StopFlag(f"goes by the clock of each process{by}", "Each rank reads a clock of its own.")
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    name = _flag_name(test)
    setters = [(path, item) for path, other in files.items() for item in _setters(other, name)] if name else []
    if len(setters) != 1:
        return None
    path, setter = setters[0]
    if isinstance(test, ast.Name) and not _same_variable(files[path], setter, test.id, scope_of(tree, line)):
        return None
    where = line_in(path, setter.lineno, file)
    handler = next(_handlers(files, path, setter), None)
    if handler is not None:
        return _of_handler(*handler, where)
    around = next((item for item, is_around in deciding_ifs(files[path], setter.lineno) if is_around), None)
    in_else = around is not None and not spans_body(around.body, setter.lineno)
    below = f" {'in the else of' if in_else else 'below'} `if {source(around.test)}:`" if around is not None else ""
    return StopFlag(f"{where} sets{below}", "It is set on each rank by itself.")


def _same_variable(tree: ast.Module, setter: ast.stmt | ast.expr, name: str, scope: ast.AST) -> bool:
    """Of a plain name: in the same function, or declared there as one of outside."""
    own = scope_of(tree, setter.lineno)
    outer = any(isinstance(item, (ast.Global, ast.Nonlocal)) and name in item.names for item in nodes_of(own))
    return own is scope or outer or isinstance(setter, ast.Call)


def _of_handler(tree: ast.Module, call: ast.Call, where: str) -> StopFlag:
    number = ast.unparse(call.args[0]).rpartition(".")[2]
    signal = f"{number} handler" if number.startswith("SIG") else "signal handler"
    for item, around in deciding_ifs(tree, call.lineno):
        if comes_alone(item, call.lineno, around=around):
            only = one_rank_words(item.test)
            why = f"Only {only} has that handler (line {call.lineno}, below `if {source(item.test)}:`)."
            return StopFlag(f"its {signal} sets ({where})", why)
    return StopFlag(f"its {signal} sets ({where})", "A signal comes to one process, or to each at another time.")


def _flag_name(test: ast.expr) -> str | None:
    """The last name of `self.stop`, `state["stop"]` and `stop.is_set()`."""
    if isinstance(test, ast.Call) and called_name(test) == "is_set" and isinstance(test.func, ast.Attribute):
        return _flag_name(test.func.value)
    if isinstance(test, ast.Attribute):
        return test.attr
    if isinstance(test, ast.Subscript):
        key = test.slice
        return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None
    return test.id if isinstance(test, ast.Name) else None


def _setters(tree: ast.Module, name: str) -> Iterator[ast.stmt | ast.expr]:
    """What can make it true; of an event `set()`."""
    for item in nodes_of(tree):
        if isinstance(item, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            value = item.value
            off = isinstance(value, ast.Constant) and not value.value
            made = isinstance(value, ast.Call) and called_name(value) == "Event"
            if value is not None and not off and not made and any(_flag_name(one) == name for one in targets):
                yield item
        elif isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and not item.args:
            yield from [item] if item.func.attr == "set" and _flag_name(item.func.value) == name else ()


def _handlers(
    files: Mapping[str, ast.Module], path: str, setter: ast.stmt | ast.expr
) -> Iterator[tuple[ast.Module, ast.Call]]:
    """The `signal.signal(number, handler)` whose handler has the line."""
    scope = scope_of(files[path], setter.lineno)
    name = getattr(scope, "name", None)
    for tree in files.values():
        for item in nodes_of(tree):
            if not isinstance(item, ast.Call) or len(item.args) < 2 or called_name(item) not in ("signal", "sigaction"):
                continue
            given = item.args[1]
            inside = isinstance(given, ast.Lambda) and any(part is setter for part in nodes_of(given))
            if inside or (name is not None and ast.unparse(given).rpartition(".")[2] == name):
                yield tree, item
