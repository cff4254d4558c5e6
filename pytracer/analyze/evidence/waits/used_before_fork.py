"""Whether the program had used native code in the parent before it forked, by the copied frames of a child's stack.

The child's innermost line calls the code. A call of it, or of a function of the program that leads to it, above the
line that forked shows that the parent had used it, too. A branch that the fork is not in does not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import structs

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.loops import LEAVES, loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.passing import names_of_object
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, own_nodes, scope_of, spans, spans_body
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_FORK = Pattern(r"/multiprocess(?:ing)?/popen_fork\.py$")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Methods of Python's own objects: a call by such a name may be one of these.
_BUILT_IN = frozenset(name for kind in (str, bytes, list, dict, set, tuple) for name in dir(kind))
_QUOTED, _MOST_ROUNDS = 60, 4


class EarlierUse(msgspec.Struct, frozen=True):
    """`text` at `at` led to the same native code in the parent; `forked` is the line of the program that forked."""

    at: PythonFrame
    text: str
    forked: PythonFrame


class _Uses(msgspec.Struct, frozen=True):
    """The functions of the program that lead to the native call, which is `name` of `owner` (`lib` of `self.lib`)."""

    files: Mapping[str, ast.Module]
    name: str
    owner: str | None
    functions: frozenset[int] = frozenset()
    owners: frozenset[str | None] = frozenset()
    """Names of the owner: also those of the parameters that it is passed as."""
    kept: frozenset[int] = frozenset()
    """A function that counts by itself."""

    def leads_there(self, node: ast.AST) -> bool:
        """Whether a call, or `data[0]`, does."""
        if isinstance(node, ast.Subscript):
            return isinstance(node.ctx, ast.Load) and self._is_method(node.value, "__getitem__")
        if not isinstance(node, ast.Call):
            return False
        name, owner = called_name(node), _owner(node)
        if name == self.name and (owner == self.owner or (owner is not None and owner in self.owners)):
            return True
        return any(self._is_call_of(node, tree, item) for tree, item in self._users()) or self._is_method(
            node.func, "__call__"
        )

    def _users(self) -> Iterator[tuple[ast.Module, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for tree in self.files.values():
            for item in nodes_of(tree):
                if isinstance(item, _FUNCTIONS) and id(item) in self.functions:
                    yield tree, item

    def _is_call_of(self, node: ast.Call, tree: ast.Module, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        name, owner = called_name(node), class_around(tree, function)
        if owner is None:
            return name == function.name
        if function.name == "__init__":
            return name == owner.name
        if name != function.name or not isinstance(node.func, ast.Attribute):
            return False
        return name not in _BUILT_IN or self._holds(node.func.value, owner.name)

    def _is_method(self, value: ast.expr, name: str) -> bool:
        """Whether an object has such a method, which leads there."""
        methods = [(tree, item) for tree, item in self._users() if item.name == name]
        owners = [class_around(tree, item) for tree, item in methods]
        return any(owner is not None and self._holds(value, owner.name) for owner in owners)

    def _holds(self, value: ast.expr, owner: str) -> bool:
        """Whether a variable of that name is set to an object of a class anywhere in the program; `self` of its own."""
        if isinstance(value, ast.Name) and value.id == "self":
            named = (item for tree in self.files.values() for item in nodes_of(tree) if isinstance(item, ast.ClassDef))
            return any(part is value for item in named if item.name == owner for part in nodes_of(item))
        wanted = _last(value)
        return wanted is not None and any(
            isinstance(item, ast.Assign)
            and isinstance(item.value, ast.Call)
            and called_name(item.value) == owner
            and any(_last(target) == wanted for target in item.targets)
            for tree in self.files.values()
            for item in nodes_of(tree)
        )


def used_before_fork(snapshot: Snapshot, stack: Sequence[PythonFrame], native: Sequence[str]) -> EarlierUse | None:
    """The first such call; None where there is none, or the stack does not show the fork.

    Args:
        snapshot: The child.
        stack: Of its main thread, the innermost frame first; those of its parent come last.
        native: Names of the native functions that are running.
    """
    at = max((place for place, frame in enumerate(stack) if _FORK.search(frame.file or "")), default=None)
    if at is None:
        return None
    own, outer = ([item for item in part if not is_library_file(item.file)] for part in (stack[:at], stack[at + 1 :]))
    first = next(iter(own), None)
    call = _native_call(syntax_tree(snapshot, first), first, native)
    if call is None or not outer or first is None:
        return None
    files = program_files(snapshot, [*own, *outer])
    owner = _owner(call)
    owners = {name for tree in files.values() for name in (names_of_object(tree, owner) if owner is not None else ())}
    uses = _leading(_Uses(files, called_name(call) or "", owner, owners=frozenset(owners)))
    for frame in reversed(outer):
        found = _before(files.get(frame.file or ""), frame, uses)
        if found is not None:
            line, text = found
            return EarlierUse(PythonFrame(frame.function, frame.file, line), text, outer[0])
    return None


def called_before_fork(
    stack: Sequence[PythonFrame], files: Mapping[str, ast.Module], function: ast.FunctionDef | ast.AsyncFunctionDef
) -> EarlierUse | None:
    """The first call above the fork that led to a function of these files in the parent."""
    at = max((place for place, frame in enumerate(stack) if _FORK.search(frame.file or "")), default=None)
    outer = [item for item in stack[at + 1 :] if not is_library_file(item.file)] if at is not None else []
    uses = _leading(_Uses(files, "", None, functions=frozenset({id(function)}), kept=frozenset({id(function)})))
    for frame in reversed(outer):
        found = _before(files.get(frame.file or ""), frame, uses)
        if found is not None:
            return EarlierUse(PythonFrame(frame.function, frame.file, found[0]), found[1], outer[0])
    return None


def _native_call(tree: ast.Module | None, frame: PythonFrame | None, native: Sequence[str]) -> ast.Call | None:
    """By the name of a native function, as ctypes has it; else the outermost call of the line."""
    calls = calls_on(tree, frame.line) if tree is not None and frame is not None and frame.line else []
    return next((item for item in calls if called_name(item) in native), next(iter(calls), None))


def _leading(uses: _Uses) -> _Uses:
    """With all functions that lead to the call, over a few others."""
    for _ in range(_MOST_ROUNDS):
        found = uses.kept | frozenset(
            id(item)
            for tree in uses.files.values()
            for item in nodes_of(tree)
            if isinstance(item, _FUNCTIONS) and any(uses.leads_there(node) for node in own_nodes(item))
        )
        if found == uses.functions:
            break
        uses = structs.replace(uses, functions=found)
    return uses


def _before(tree: ast.Module | None, frame: PythonFrame, uses: _Uses) -> tuple[int, str] | None:
    """The first call above a line of its function, or anywhere in a loop around it, that leads there."""
    if tree is None or frame.line is None:
        return None
    scope, line = scope_of(tree, frame.line), frame.line
    around = [loop for loop in loops_around(tree, line) if loop.lineno < line]
    found = [
        (node.lineno, shortened(ast.unparse(node), _QUOTED))
        for node in own_nodes(scope)
        if isinstance(node, (ast.Call, ast.Subscript)) and not spans(node, line)
        if node.lineno < line or any(spans_body(loop.body, node.lineno) for loop in around)
        if uses.leads_there(node) and _goes_on(scope, node.lineno, line)
    ]
    return min(found, default=None)


def _goes_on(scope: Scope, earlier: int, line: int) -> bool:
    """Whether the code behind an earlier line may come to a line: it is in no other branch, nor in one that leaves."""
    for item in own_nodes(scope):
        if not isinstance(item, ast.If):
            continue
        for branch, other in ((item.body, item.orelse), (item.orelse, item.body)):
            apart = spans_body(branch, earlier) and not spans_body(branch, line)
            if apart and (spans_body(other, line) or isinstance(branch[-1], LEAVES)):
                return False
    return True


def _owner(call: ast.Call) -> str | None:
    return _last(call.func.value) if isinstance(call.func, ast.Attribute) else None


def _last(node: ast.AST) -> str | None:
    """`lib` of `self.lib` and of `lib`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
