"""RecursionError of a method that asks itself for another item where it rejects one: all that it tried were rejected.

`if sample is None: return self[random.randrange(len(self))]`. What rejects them is followed through the functions that
return None; what their test compared is known where the recording has it.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.failing.expressions import names_in
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.processes.handlers import head_of_handler
from pytracer.analyze.evidence.failing.usage.compared_values import compared
from pytracer.analyze.evidence.slicing.calls import method_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind, set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.changes import RANDOM
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.returns import Named, ends_without_return, returns_none_at
from pytracer.analyze.evidence.syntax.scopes import is_parameter, own_nodes, parameters, spans_body
from pytracer.report.job import PythonFrame

_QUOTED = 60
_HOPS = 4
_ALIKE = 3  # steps from one try to the next
_VALUES = (  # never None
    *(ast.Dict, ast.List, ast.Tuple, ast.Set, ast.JoinedStr, ast.BinOp, ast.Compare, ast.Lambda),
    *(ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp),
)
_NEVER_NONE = ("np", "numpy", "torch", "Image")  # modules whose functions return something
_BUILTINS = frozenset({"list", "tuple", "dict", "set", "str", "int", "float", "bool", "sorted", "len", "sum", "bytes"})
_PLAIN = (ast.Name, ast.Constant, ast.BinOp, ast.operator, ast.expr_context)


class _Test(msgspec.Struct, frozen=True):
    """What rejects: `node` of `line`; `holds`: whether it does so by being true."""

    node: ast.expr
    line: int
    holds: bool = True


class _Rejecting(msgspec.Struct, frozen=True):
    """A function of the program that returns None at `line`, and the calls that led from the method to it.

    `sure`: all else that they return is something.
    """

    name: str
    function: Named
    spot: Spot
    line: int
    calls: tuple[tuple[ast.Call, Named], ...]
    sure: bool

    @property
    def returns(self) -> str:
        """`load() returns None`."""
        return f"{self.name}() {'returns' if self.sure else 'can return'} None"


def rejected_again(at: FailingLine, frame: PythonFrame, statement: ast.stmt, callee: str) -> str | None:
    """Of the line by which a method calls itself; None where it goes down something, or changes its index only."""
    depth = next((n for n, item in enumerate(at.frames) if item == frame), None)
    spot = at.slice.spot(depth) if depth is not None else None
    if spot is None or not isinstance(spot.scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    method = spot.scope
    index = next((name for name in parameters(method) if name not in ("self", "cls")), None)
    test = _test(method, statement)
    asked = _asked(statement, callee)
    if index is None or test is None or asked is None or not _is_another(method, asked, index):
        return None
    read = {item.id for item in nodes_of(test.node) if isinstance(item, ast.Name)} - {index, "self"}
    if not any(lines_that_bind(method, name) for name in read) or not _is_instead(statement, callee, read):
        return None
    return _words(at, frame, spot, test, callee)


def _words(at: FailingLine, frame: PythonFrame, spot: Spot, test: _Test, callee: str) -> str:
    what = "samples" if callee == "__getitem__" else "items"
    found = _rejecting(at, spot, test)
    how, look = _how(at, frame, spot, test, found)
    count = _tries(at, frame)
    many = f"; it tried some {count} in a row" if count else ""
    return (
        f"All {what} that line {frame.line} in {frame.function} asked for were rejected {how}{many}. {look}, and mend "
        "the data or the test; raise an error after some tries, before the recursion limit."
    )


def _how(at: FailingLine, frame: PythonFrame, spot: Spot, test: _Test, found: _Rejecting | None) -> tuple[str, str]:
    """By what, and what to look at."""
    own = f"`{shortened(ast.unparse(test.node), _QUOTED)}`{'' if test.holds else ' is false'}"
    plain = f"where {own} ({at.place(spot, test.line)})"
    caught = _caught(spot, test) if found is None else _handler_at(found.function, found.line)
    if caught is not None:
        head, at_line = head_of_handler(caught), at.place(found.spot if found is not None else spot, caught.lineno)
        to_none = f": {found.returns} at {at.place(found.spot, found.line)}" if found is not None else ""
        sets = "" if found is not None else f", which sets `{_none_tested(test)}` to None"
        return f"{plain}{to_none}", f"Print the error that the `{head}` at {at_line} catches{sets}"
    inner = test if found is None else _guard(found.function, found.line)
    if inner is None or found is None:
        known = compared(at, test.node, spot, (), frame) if test.holds and found is None else None
        if known is not None:
            return f"by {known.part} ({at.place(spot, test.line)}): {known.values}", f"See {known.part}"
        if found is None:
            return plain, f"Print what {at.place(spot, test.line)} tests"
        where = at.place(found.spot, found.line)
        return f"{plain}: {found.returns} at {where}", f"Print what {found.name}() is given"
    where = at.place(found.spot, inner.line)
    known = compared(at, inner.node, found.spot, found.calls, frame) if inner.holds else None
    if known is not None:
        how = f"by {known.part} ({where}): {known.values}, so that {found.name}() returned None"
        return how, f"Compare the two of {where}"
    words = f"`{shortened(ast.unparse(inner.node), _QUOTED)}`{'' if inner.holds else ' is false'}"
    return f"{plain}: {found.returns} where {words} ({where})", f"Print what {where} tests"


def _is_instead(statement: ast.stmt, callee: str, tested: set[str]) -> bool:
    """Whether the other item takes the place of the rejected one: MixUp asks for another one as well."""
    if isinstance(statement, ast.Return):
        value = statement.value
    elif isinstance(statement, ast.Assign):
        if not tested & {name for item in statement.targets for name in names_in(item)}:
            return False
        value = statement.value
    else:
        return False
    called = isinstance(value, ast.Call) and called_name(value) == callee
    return called or (isinstance(value, ast.Subscript) and ast.unparse(value.value) == "self")


def _asked(statement: ast.stmt, callee: str) -> ast.expr | None:
    """`n` of `self.load(n)`, and of `self[n]` in `__getitem__`."""
    for node in nodes_of(statement):
        if isinstance(node, ast.Call) and called_name(node) == callee and len(node.args) == 1:
            return node.args[0]
        if isinstance(node, ast.Subscript) and callee == "__getitem__" and ast.unparse(node.value) == "self":
            return node.slice
    return None


def _is_another(method: Named, asked: ast.expr, index: str) -> bool:
    """A draw, or the next one: `(index + 1) % len(self)`. Not an index that the data lead to."""
    if isinstance(asked, ast.Name):
        bound = lines_that_bind(method, asked.id)
        value = bound[0][1] if len(bound) == 1 else None
        return isinstance(value, ast.expr) and not isinstance(value, ast.Name) and _is_another(method, value, index)
    if any(isinstance(item, ast.Call) and RANDOM.search(ast.unparse(item.func)) for item in nodes_of(asked)):
        return True
    if not isinstance(asked, ast.BinOp):
        return False
    sizes = [item for item in nodes_of(asked) if isinstance(item, ast.Call) and called_name(item) == "len"]
    inside = {id(part) for item in sizes for part in nodes_of(item)}
    rest = [item for item in nodes_of(asked) if id(item) not in inside]
    names = {item.id for item in rest if isinstance(item, ast.Name)}
    return names == {index} and all(isinstance(item, _PLAIN) for item in rest)


def _test(method: Named, statement: ast.stmt) -> _Test | None:
    """Of the `if` that the statement is in, or that returns before it."""
    found = _guard(method, statement.lineno)
    if found is not None:
        return found
    for item, following in zip(method.body, method.body[1:], strict=False):
        if following is statement and isinstance(item, ast.If) and not item.orelse:
            return _Test(item.test, item.lineno, holds=False) if isinstance(item.body[-1], ast.Return) else None
    return None


def _guard(function: Named, line: int) -> _Test | None:
    """The innermost `if` around a line."""
    found: _Test | None = None
    for item in own_nodes(function):
        if isinstance(item, ast.If) and (found is None or item.lineno >= found.line):
            if spans_body(item.body, line):
                found = _Test(item.test, item.lineno)
            elif spans_body(item.orelse, line) and not (
                len(item.orelse) == 1 and isinstance(item.orelse[0], ast.If) and spans_body(item.orelse[0].body, line)
            ):
                found = _Test(item.test, item.lineno, holds=False)
    return found


def _handler_at(scope: ast.AST, line: int) -> ast.ExceptHandler | None:
    """The handler that a line is in, unless an `if` inside of that decides."""
    found = [item for item in own_nodes(scope) if isinstance(item, ast.ExceptHandler) and spans_body(item.body, line)]
    ifs = [item for item in own_nodes(scope) if isinstance(item, ast.If) and spans_body([item], line)]
    inner = max(found, key=lambda item: item.lineno, default=None)
    return inner if inner is not None and all(item.lineno < inner.lineno for item in ifs) else None


def _caught(spot: Spot, test: _Test) -> ast.ExceptHandler | None:
    """The only handler that sets the tested variable to None."""
    name = _none_tested(test)
    lines = [line for line, value in lines_that_bind(spot.scope, name) if is_none(value)] if name is not None else []
    found = {id(item): item for line in lines if (item := _handler_at(spot.scope, line)) is not None}
    return found.popitem()[1] if len(found) == 1 else None


def _tries(at: FailingLine, frame: PythonFrame) -> int | None:
    """How often the line is on the stack, of which the middle was not recorded; None where others are between."""
    depth = at.exception.frame_count
    places = [n for n, item in enumerate(at.stack) if item == frame]
    known = [b - a for a, b in itertools.pairwise(places)]
    if depth is None or any(item != 1 for item in known[:_ALIKE]):
        return None
    return max(depth - len([item for item in at.stack if item != frame]), 0) // 10 * 10 or None


def _none_tested(test: _Test) -> str | None:
    """`x` of `x is None`. Not of `not x`: what is empty is rejected as well."""
    node = test.node
    if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not is_none(node.comparators[0]):
        return None
    wanted = ast.Is if test.holds else ast.IsNot
    return node.left.id if isinstance(node.ops[0], wanted) and isinstance(node.left, ast.Name) else None


def _rejecting(at: FailingLine, spot: Spot, test: _Test) -> _Rejecting | None:
    """The one line of the program that None comes from, through the functions that pass it on."""
    found: _Rejecting | None = None
    tested: _Test | None = test
    for _ in range(_HOPS):
        name = _none_tested(tested) if tested is not None else None
        around = found.spot if found is not None else spot
        call = _call_that_gives(around.scope, name) if name is not None else None
        reached = _called(at, call, around) if call is not None else None
        lines = _none_lines(reached[1]) if reached is not None else []
        if call is None or reached is None or len(lines) != 1:
            return found
        who, function, inside = reached
        before = found.calls if found is not None else ()
        sure = (found is None or found.sure) and _gives_else(function)
        spot_of = Spot(inside.file, inside.tree, function, lines[0])
        found = _Rejecting(who, function, spot_of, lines[0], (*before, (call, function)), sure)
        tested = _guard(function, lines[0]) if _handler_at(function, lines[0]) is None else None
    return found


def _none_lines(function: Named) -> list[int]:
    """Its lines that return None, where all do so by a `return`."""
    first = returns_none_at(function)
    if first is None or not first[1] or ends_without_return(function):
        return []
    returns = [item for item in own_nodes(function) if isinstance(item, ast.Return)]
    return [item.lineno for item in returns if item.value is None or is_none(item.value)]


def _gives_else(function: Named) -> bool:
    """Whether the other lines that return do so with something: `return cache.get(name)` may be None as well."""
    returns = [item.value for item in own_nodes(function) if isinstance(item, ast.Return)]
    return all(value is None or is_none(value) or _is_something(function, value) for value in returns)


def _is_something(function: Named, value: ast.expr) -> bool:
    if isinstance(value, ast.Name):
        bound = lines_that_bind(function, value.id)
        if not bound:
            return is_parameter(function, value.id)
        return all(
            isinstance(item, ast.expr) and not isinstance(item, ast.Name) and _is_something(function, item)
            for _, item in bound
        )
    if isinstance(value, ast.Subscript):
        return isinstance(value.slice, ast.Slice)
    if isinstance(value, ast.Call):
        name = called_name(value) or ""
        root = ast.unparse(value.func).partition(".")[0]
        return root in _NEVER_NONE or name in _BUILTINS or name[:1].isupper()
    return isinstance(value, _VALUES) or (isinstance(value, ast.Constant) and value.value is not None)


def _call_that_gives(scope: ast.AST, name: str) -> ast.Call | None:
    """What a variable is set to, also `op(x) if x is not None else None`; None where it may be None otherwise."""
    calls: list[ast.Call] = []
    for node in own_nodes(scope):
        for target, value in set_by(node):
            if name not in names_in(target) or isinstance(target, (ast.Subscript, ast.Attribute)):
                continue
            if not isinstance(target, ast.Name) or value is None:
                return None
            parts = [value]
            if isinstance(value, ast.IfExp) and _none_tested(_Test(value.test, 0, holds=False)) == name:
                parts = [item for item in (value.body, value.orelse) if not is_none(item)]
            calls += [item for item in parts if isinstance(item, ast.Call)]
            if not all(isinstance(item, (ast.Call, *_VALUES)) for item in parts):
                return None
    return calls[0] if len(calls) == 1 else None


def _called(at: FailingLine, call: ast.Call, spot: Spot) -> tuple[str, Named, Spot] | None:
    """The function that is called; of `op` in `for op in ops` that of the program's only class that can give None."""
    found = at.slice.function(call, spot)
    if found is not None:
        owner = next((item.name for item in _classes(found[1].tree) if found[0] in item.body), None)
        return (f"{owner}.{found[0].name}" if owner else found[0].name), *found
    loops = [
        item
        for item in own_nodes(spot.scope)
        if isinstance(item, ast.For) and isinstance(item.target, ast.Name) and isinstance(call.func, ast.Name)
        if item.target.id == call.func.id
    ]
    if len(loops) != 1:
        return None
    files = program_files(at.snapshot, at.frames)
    able = [
        (f"{owner.name}.__call__", method, Spot(file, tree, method, method.lineno))
        for file, tree in files.items()
        for owner in _classes(tree)
        if (method := method_of(owner, ("__call__",))) is not None and _may_give_none(method)
    ]
    given = {item.id for tree in files.values() for item in nodes_of(tree) if isinstance(item, ast.Name)}
    functions = [item for tree in files.values() for item in tree.body if isinstance(item, ast.FunctionDef)]
    others = (item for item in functions if returns_none_at(item) is not None and _is_handed_on(files, item.name))
    if len(able) != 1 or next(others, None) is not None:
        return None
    return able[0] if able[0][0].partition(".")[0] in given and returns_none_at(able[0][1]) is not None else None


def _may_give_none(method: Named) -> bool:
    """Also by what `return self.apply(x)` returns."""
    returns = (item.value for item in own_nodes(method) if isinstance(item, ast.Return))
    passes = (item for item in returns if isinstance(item, ast.Call))
    return returns_none_at(method) is not None or any(ast.unparse(item.func).startswith("self.") for item in passes)


def _is_handed_on(files: dict[str, ast.Module], name: str) -> bool:
    """Whether a function is passed, or put in a list: `[Crop(8), drop_short]`."""
    for tree in files.values():
        called = {id(item.func) for item in nodes_of(tree) if isinstance(item, ast.Call)}
        if any(isinstance(item, ast.Name) and item.id == name and id(item) not in called for item in nodes_of(tree)):
            return True
    return False


def _classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    return (item for item in nodes_of(tree) if isinstance(item, ast.ClassDef))
