"""What ends the loop of a child that waits for its next command: a message, and the line that sends it."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import elements, last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import (
    Scope,
    all_parameters,
    class_around,
    own_nodes,
    qualified_name,
    scope_of,
    spans,
)
from pytracer.analyze.evidence.waits.queue_marks import taking
from pytracer.analyze.naming import LineWords, line_in

_RECEIVES, _SENDS = ("recv", "get"), ("send", "put", "put_nowait")
_LEAVES = (ast.Break, ast.Return, ast.Raise)
_OTHERS = frozenset({"Pipe", "open", "Pool", "SummaryWriter", "ThreadPoolExecutor", "ProcessPoolExecutor", "Queue"})
_LONGEST = 40
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class LoopEnd(msgspec.Struct, frozen=True):
    """`mark`: the message at which the loop ends, as the program writes it. `line`: the only one that sends it.

    `function`: which has that line, `Envs.close`, where it is a function that the program has to call. `called`:
    whether it may do so somewhere.
    """

    mark: str
    line: LineWords | None
    function: str | None
    called: bool

    @property
    def words(self) -> str:
        """After "its loop": `ends at 'close', which only Envs.close() sends (line 71), and nothing calls that`."""
        if self.line is None:
            return f"ends at `{self.mark}`, which no line of the program sends"
        if self.function is None:
            return f"ends at `{self.mark}`, which {self.line} sends"
        uncalled = "" if self.called else ", and nothing in the program calls that"
        return f"ends at `{self.mark}`, which only {self.function}() sends ({self.line}){uncalled}"

    @property
    def advice(self) -> str:
        """Before the program ends."""
        if self.function is not None:
            return (
                f"Call {self.function}() for each of them when its work is done, also on the way out of an exception "
                "(`try`/`finally`)"
            )
        sends = f" ({self.line})" if self.line is not None else ""
        return (
            f"Send `{self.mark}`{sends} once to each of them when its work is done, also after an exception (`finally`)"
        )


def loop_end(files: Mapping[str, ast.Module], file: str, line: int) -> LoopEnd | None:
    """Of the loop around a line that receives; None where it has no such end, or several, or several lines send it."""
    tree = files.get(file)
    if tree is None:
        return None
    mark = _mark(tree, line)
    if mark is None:
        return None
    child = scope_of(tree, line)
    sends = [
        (path, item)
        for path, other in files.items()
        for item in nodes_of(other)
        if isinstance(item, ast.Call) and called_name(item) in _SENDS and _sent(item) == mark
        if scope_of(other, item.lineno) is not child
    ]
    if not sends:
        return LoopEnd(mark, None, None, called=False)
    if len(sends) > 1:
        return None
    path, send = sends[0]
    at, scope = line_in(path, send.lineno, file), scope_of(files[path], send.lineno)
    if not isinstance(scope, _Function) or scope.name in ("__exit__", "__del__", "main"):
        return LoopEnd(mark, at, None, called=True)
    called = _may_be_called(files, files[path], scope, child)
    return LoopEnd(mark, at, qualified_name(files[path], scope), called)


def _mark(tree: ast.Module, line: int) -> str | None:
    """`'close'` of `if command == 'close': break`, below `command, data = remote.recv()` in a loop."""
    taken = taking(tree, line)
    if taken is not None and taken.mark is not None:
        return taken.mark
    loop = next(iter(reversed(loops_around(tree, line))), None)
    scope = scope_of(tree, line)
    received = {
        part.id
        for item in own_nodes(scope)
        if isinstance(item, ast.Assign) and spans(item, line) and _receives(item.value)
        for target in item.targets
        for part in (elements(target)[:1])
        if isinstance(part, ast.Name)
    }
    if loop is None or len(received) != 1:
        return None
    name = received.pop()
    found = {
        ast.unparse(item.test.comparators[0])
        for item in nodes_of(loop)
        if isinstance(item, ast.If) and isinstance(item.test, ast.Compare) and len(item.test.ops) == 1
        and isinstance(item.test.ops[0], (ast.Eq, ast.Is)) and _is_received(item.test.left, name)
        and any(isinstance(part, _LEAVES) for part in item.body)
    }  # fmt: skip
    return found.pop() if len(found) == 1 else None


def _receives(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and called_name(node) in _RECEIVES


def _is_received(node: ast.expr, name: str) -> bool:
    """`message`, and `message[0]`."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value in (0, "cmd"):
        node = node.value
    return isinstance(node, ast.Name) and node.id == name


def _sent(call: ast.Call) -> str | None:
    """`'close'` of `remote.send(('close', None))`."""
    if len(call.args) != 1 or call.keywords:
        return None
    first = elements(call.args[0])[:1]
    return shortened(ast.unparse(first[0]), _LONGEST) if first else None


def _may_be_called(files: Mapping[str, ast.Module], home: ast.Module, function: _Function, child: Scope) -> bool:
    """Whether a line of the program calls it, or passes it on; not where something else is called by the same name."""
    owner = class_around(home, function)
    for tree in files.values():
        calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call)]
        heads = {id(item.func) for item in calls}
        named = (item for item in nodes_of(tree) if last_name(item) == function.name and id(item) not in heads)
        if any(isinstance(getattr(item, "ctx", None), ast.Load) for item in named):
            return True
        for call in calls:
            scope = scope_of(tree, call.lineno)
            outside = scope is not child and scope is not function
            if outside and called_name(call) == function.name and not _is_of_another(scope, call, owner):
                return True
    return False


def _is_of_another(scope: Scope, call: ast.Call, owner: ast.ClassDef | None) -> bool:
    """Whether its object is known to be of another kind: an end of Pipe(), a file that is opened."""
    base = call.func.value if isinstance(call.func, ast.Attribute) else None
    if not isinstance(base, ast.Name) or base.id in all_parameters(scope):
        return (base is None) is (owner is not None)
    made = [item for _, item in lines_that_bind(scope, base.id)]
    return bool(made) and all(isinstance(item, ast.Call) and called_name(item) in _OTHERS for item in made)
