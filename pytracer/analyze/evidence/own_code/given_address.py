"""The address of a tensor that a function passed to native code, which then ended with the function's variable.

`self.lib.push(self.handle, clip.data_ptr())` in `add()`, whose own `clip` nothing else holds: by the lines that
allocated and freed the memory, which are those that set the variable and let go of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import own_line, place_of
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.native_calls import Uses, parents_of
from pytracer.analyze.evidence.own_code.own_libraries import OwnCall, own_libraries
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, passed_values
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import (
    Scope,
    class_around,
    is_method,
    is_parameter,
    own_nodes,
    scope_of,
    spans,
    statement_at,
)
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import PythonFrame
from pytracer.report.job import PythonFrame as Frame

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SAME_MEMORY = frozenset({"untyped_storage", "storage", "detach", "view"})
_QUOTABLE = (ast.Expr, ast.Assign, ast.Return)
_QUOTED = 60
_HOLD = (
    "Hold `{name}` until {used} has used it: `{holds}` at {line}, and clear that list afterwards; or let {to}() copy "
    "the elements. An address keeps no tensor alive."
)
_AGAIN = (
    "Give {to}() the address of the new tensor behind {later}, or copy the new elements into the tensor that it knows "
    "(`{name}.copy_(...)`): it keeps an address alone, which {used} uses."
)


class GivenAddress(msgspec.Struct, frozen=True):
    """`what` (`` `clip` (line 59 in add()) ``) ended, as `ended` has it, and `line` had given `native` its address.

    `advice`: the change to make.
    """

    what: str
    ended: str
    line: str
    native: str
    advice: str

    @property
    def summary(self) -> str:
        """Behind the headline."""
        return f"{self.what} {self.ended}, and {self.line} had given {self.native}() its address alone"


class _Held(msgspec.Struct, frozen=True):
    """What holds a tensor: the variable `name` of `scope` since `line`, or a temporary of that line."""

    file: str | None
    tree: ast.Module
    scope: Scope
    name: str
    line: int
    temporary: bool = False


def given_address(view: ProcessView) -> GivenAddress | None:
    """Of the freed storage at the fault; None where its variable is not known, or something else may have held it."""
    storage = view.place.storage if view.place is not None else None
    if storage is None or not any(is_of_own_image(item) for item in own_frames(view)[:1]):
        return None
    made, freed = own_line(storage.allocated_by), own_line(storage.freed_by) if storage.freed_by is not None else None
    if made is None or freed is None:
        return None
    libraries = own_libraries(view)
    calls = libraries.calls if libraries is not None else ()
    found = {item for call in calls for item in _given(view, call, made, freed)}
    return found.pop() if len(found) == 1 else None


def _given(view: ProcessView, call: OwnCall, made: PythonFrame, freed: PythonFrame) -> Iterator[GivenAddress]:
    """By one call of the program's native code."""
    tree = syntax_tree(view.process.snapshot, call.at)
    scope = scope_of(tree, call.at.line) if tree is not None and call.at.line is not None else None
    if tree is None or scope is None or call.at.line is None:
        return
    nodes = [item for item in calls_on(tree, call.at.line) if called_name(item) == call.function]
    line, native = place_of(view, call.at.file, call.at.line), call.function
    for name in dict.fromkeys(name for node in nodes for name in _addresses(scope, node)):
        if "." in name:
            yield from _of_attribute(view, call, tree, name, made, freed)
            continue
        for held in _holders(view, call.at, tree, scope, name, nodes, made):
            ended = _ended(view, held, freed)
            if ended is not None:
                where = f" in {held.scope.name}()" if isinstance(held.scope, _FUNCTIONS) else ""
                at = f"{'a temporary of ' * held.temporary}{place_of(view, held.file, held.line)}{where}"
                advice = _HOLD.format(
                    name=name, holds=_holds(tree, scope, name), line=line, used=_used(view), to=native
                )
                yield GivenAddress(f"`{held.name}` ({at})", ended, line, native, advice)


def _of_attribute(
    view: ProcessView, call: OwnCall, tree: ast.Module, name: str, made: PythonFrame, freed: PythonFrame
) -> Iterator[GivenAddress]:
    """Of `self.rows`, which a line of its class set to another tensor later."""
    owner = class_around(tree, scope_of(tree, call.at.line or 0))
    bound = [
        _Held(call.at.file, tree, scope_of(tree, node.lineno), name, node.lineno)
        for node in nodes_of(owner or ast.Module([], []))
        if isinstance(node, ast.Assign) and any(ast.unparse(item) == name for item in node.targets)
    ]
    again = [item for item in bound if freed.file == item.file and _is_at(item, freed.line)]
    first = [item for item in bound if _is_made_there(view, item, made)]
    if again and first:
        line, later = place_of(view, call.at.file, call.at.line), place_of(view, freed.file, again[0].line)
        what = f"`{name}` ({place_of(view, first[0].file, first[0].line)})"
        advice = _AGAIN.format(name=name, to=call.function, later=later, used=_used(view))
        yield GivenAddress(what, f"was freed when {later} set another tensor", line, call.function, advice)


def _addresses(scope: Scope, call: ast.Call) -> Iterator[str]:
    """Variables with tensors whose addresses a call is given, also by a variable with the address."""
    for given in passed_values(call):
        for node in nodes_of(given):
            owner = _owner(node)
            if owner is None and isinstance(node, ast.Name):
                bound = lines_that_bind(scope, node.id)
                value = bound[0][1] if len(bound) == 1 else None
                owners = [_owner(item) for item in nodes_of(value)] if value is not None else []
                owner = next((item for item in owners if item is not None), None)
            if owner is not None:
                yield owner


def _owner(node: ast.AST) -> str | None:
    """`x` of `x.data_ptr()` and of `x.untyped_storage().data_ptr()`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "data_ptr":
        return None
    owner = node.func.value
    while isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and called_name(owner) in _SAME_MEMORY:
        owner = owner.func.value
    return variable(owner)


def _holders(
    view: ProcessView,
    at: Frame,
    tree: ast.Module,
    scope: Scope,
    name: str,
    calls: Sequence[ast.Call],
    made: PythonFrame,
) -> Iterator[_Held]:
    """All that holds the memory, if that is a variable of the function around a call, or of who calls that."""
    if at.line is None:
        return
    above = [item for item in lines_that_bind(scope, name) if item[0] <= at.line]
    if above:
        held = _Held(at.file, tree, scope, name, max(line for line, _ in above))
        if _is_made_there(view, held, made) and not _is_kept(held, calls):
            yield held
        return
    other = syntax_tree(view.process.snapshot, Frame(file=made.file, line=made.line))
    statement = statement_at(other, made.line) if other is not None and made.line is not None else None
    if statement is None or other is None or not isinstance(scope, _FUNCTIONS) or not is_parameter(scope, name):
        return
    if Uses(parents_of(tree), lambda node: node in calls).keep(scope, name):
        return
    outer = scope_of(other, statement.lineno)
    passing = [item for item in own_nodes(outer) if isinstance(item, ast.Call) and called_name(item) == scope.name]
    for call in passing:
        given = argument_of(call, scope, name)
        if given is not None and not isinstance(given, (ast.Name, ast.Attribute, ast.Subscript, ast.Constant)):
            if spans(statement, call.lineno):
                yield _Held(made.file, other, outer, shortened(ast.unparse(given), _QUOTED), call.lineno, True)
        elif isinstance(given, ast.Name):
            lines = [line for line, _ in lines_that_bind(outer, given.id) if line <= call.lineno]
            held = _Held(made.file, other, outer, given.id, max(lines, default=0))
            if lines and _is_made_there(view, held, made) and not _is_kept(held, passing):
                yield held


def _is_made_there(view: ProcessView, held: _Held, made: PythonFrame) -> bool:
    """Whether the line that binds a variable allocated the memory, or calls the function that did."""
    statement = statement_at(held.tree, held.line)
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or made.line is None:
        return False
    if held.file == made.file and spans(statement, made.line):
        return True
    inner = syntax_tree(view.process.snapshot, Frame(file=made.file, line=made.line))
    function = scope_of(inner, made.line) if inner is not None else None
    value = statement.value
    return isinstance(value, ast.Call) and called_name(value) == getattr(function, "name", None)


def _ended(view: ProcessView, held: _Held, freed: PythonFrame) -> str | None:
    """`was freed when add() returned`, by the line that let go of it; None where that is another one."""
    other = syntax_tree(view.process.snapshot, Frame(file=freed.file, line=freed.line))
    if other is None or freed.line is None:
        return None
    inside = freed.file == held.file and scope_of(held.tree, freed.line) is held.scope
    if held.temporary:
        return "ended with that line" if inside and _is_at(held, freed.line) else None
    if inside:
        line = place_of(view, freed.file, freed.line)
        return f"was freed when {line} set it anew" if _is_at(held, freed.line) else f"was freed at {line}"
    name = getattr(held.scope, "name", None)
    calls = [item for item in calls_on(other, freed.line) if called_name(item) == name]
    return f"was freed when {name}() returned" if calls else None


def _is_at(held: _Held, line: int | None) -> bool:
    """Whether a line is of the statement."""
    statement = statement_at(held.tree, held.line)
    return statement is not None and line is not None and spans(statement, line)


def _is_kept(held: _Held, calls: Sequence[ast.Call]) -> bool:
    """Whether anything but the variable may hold what it was set to."""
    statement = statement_at(held.tree, held.line)
    last = (statement.end_lineno if statement is not None else None) or held.line
    before = range(held.line if loops_around(held.tree, held.line) else 0, last + 1)
    return Uses(parents_of(held.tree), lambda node: node in calls).keep(held.scope, held.name, before)


def _holds(tree: ast.Module, scope: Scope, name: str) -> str:
    """`self.held.append(clip)`."""
    return f"{'self.' * is_method(tree, scope)}held.append({name})"


def _used(view: ProcessView) -> str:
    """`line 67`, with its text; of a thread that runs no Python none is known."""
    frame = next(iter(program_frames(view)), None)
    if frame is None or view.crash is None or not view.crash.python_stack:
        return "the native thread"
    tree = syntax_tree(view.process.snapshot, frame)
    statement = statement_at(tree, frame.line) if tree is not None and frame.line is not None else None
    text = f" (`{shortened(ast.unparse(statement), _QUOTED)}`)" if isinstance(statement, _QUOTABLE) else ""
    return f"{place_of(view, frame.file, frame.line)}{text}"
