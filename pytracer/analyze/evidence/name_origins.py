"""Where the values came from that the line of an exception used: read from the program's own source.

An exception says what does not fit; the reader's next question is where that value was made. Names of the line are
followed to the last line that bound them, and through the callers that passed them on. Nothing is run, and a name that
several lines bind on different ways is said to come from the one above the line that failed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytracer.analyze.naming import short_file
from pytracer.analyze.parts import is_library_file
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, PythonFrame

_MOST = 2
_HOPS = 4  # callers that a value is followed through
_QUOTED = 70
_FILLS = frozenset({"append", "extend", "add", "update", "insert", "setdefault", "appendleft", "put"})
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?![\w.])")
_NOT_FINITE = re.compile(r"(?:^|\s)-?(?:nan|inf)$")
_EMPTY = re.compile(r"^\w+ of 0$|\[(?:\d+, )*0[,\]]")
_SMALL = 2  # 0 and 1 are in every message and shape

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Scope = _Function | ast.Module


@dataclass(frozen=True)
class NameOrigin:
    """A variable of the failing line. `frame`: the line that made its value; `also`: where it is filled or set otherwise."""

    name: str
    value: str | None
    frame: PythonFrame
    text: str
    also: str | None = None


def origin_words(snapshot: Snapshot, exception: ExceptionReport | None, stack: Sequence[PythonFrame]) -> str | None:
    """`` `metrics`, an empty list, comes from train.py:23 (`report(evaluate(model))`) ``; None where nothing stands out.

    Args:
        snapshot: The process that raised it: its sources count only as they were when it began.
        exception: With the variables of the innermost frame of the program.
        stack: Its frames, innermost first.
    """
    names, meant = _names_and_meant(snapshot, exception, stack)
    own = [frame for frame in stack if not is_library_file(frame.file)]
    found = (_follow(snapshot, own, name, meant.get(name)) for name in meant or names)
    known = [item for item in found if item is not None]
    kept = known[:_MOST] if meant or len(known) == 1 else ()  # of a line with one variable, that
    return "; ".join(_words(item) for item in kept) or None


def meant_words(snapshot: Snapshot, exception: ExceptionReport | None, stack: Sequence[PythonFrame]) -> str | None:
    """`` `metrics` was an empty list ``: those of the failing line that the message is about."""
    _, meant = _names_and_meant(snapshot, exception, stack)
    return " and ".join(f"`{name}` was {_value_words(value)}" for name, value in [*meant.items()][:_MOST]) or None


def _words(item: NameOrigin) -> str:
    value = f", {_value_words(item.value)}," if item.value is not None else ""
    text = item.text if len(item.text) <= _QUOTED else f"{item.text[: _QUOTED - 3]}..."
    also = f", and {item.also}" if item.also is not None else ""
    return f"`{item.name}`{value} comes from {short_file(item.frame.file)}:{item.frame.line} (`{text}`){also}"


def _value_words(value: str) -> str:
    """`list of 0` is an empty list, `[] float32 nan` a tensor with one number."""
    number = re.match(r"\[\] (\w+) (\S+)$", value)
    if number is not None:
        return f"{number[2]} ({number[1]})"
    if value.endswith(" of 0"):
        return f"an empty {value.removesuffix(' of 0')}"
    return f"a {value}" if " of " in value else value


def _names_and_meant(
    snapshot: Snapshot, exception: ExceptionReport | None, stack: Sequence[PythonFrame]
) -> tuple[Sequence[str], dict[str, str]]:
    """Variables of the failing line, and the values of those that the message is about."""
    frame = next((item for item in stack if not is_library_file(item.file)), None)
    if exception is None or frame is None:
        return (), {}
    values = {item.name: item.value for item in exception.variables or () if item.name and item.value}
    names = _names_of_line(snapshot, frame)
    return names, {name: values[name] for name in _meant(exception.message or "", names, values)}


def _meant(message: str, names: Sequence[str], values: dict[str, str]) -> list[str]:
    """Names whose value the message is about."""
    numbers = {text for text in _NUMBER.findall(message) if abs(int(text)) >= _SMALL}

    def is_meant(name: str) -> bool:
        value = values.get(name)
        if value is None:
            return False
        if value == "None":
            return "None" in message
        if f"'{value.split(' of ')[0]}' object" in message:
            return True
        return bool(_EMPTY.search(value) or _NOT_FINITE.search(value) or numbers & {*_NUMBER.findall(value)})

    return [name for name in names if is_meant(name)]


# ---- names of a line


def _names_of_line(snapshot: Snapshot, frame: PythonFrame) -> list[str]:
    """Variables that the statement reads, `self.x` included; of a `raise`, those of the `if` around it."""
    tree = syntax_tree(snapshot, frame)
    line = frame.line
    if tree is None or line is None:
        return []
    around = [item for item in ast.walk(tree) if isinstance(item, ast.stmt) and _spans(item, line)]
    inner = max(around, key=lambda item: (item.lineno, -(item.end_lineno or 0)), default=None)
    if inner is None:
        return []
    if isinstance(inner, ast.Raise):
        tests = [item for item in around if isinstance(item, (ast.If, ast.While)) and item.lineno < inner.lineno]
        return _names(max(tests, key=lambda item: item.lineno).test) if tests else []
    return [name for part in _parts(inner) for name in _names(part)]


def _spans(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """What a statement evaluates itself: of a loop or branch the head without the body."""
    if isinstance(statement, (ast.If, ast.While)):
        yield statement.test
    elif isinstance(statement, (ast.For, ast.AsyncFor)):
        yield statement.iter
    elif isinstance(statement, (ast.With, ast.AsyncWith)):
        yield from statement.items
    elif isinstance(statement, ast.AugAssign):
        yield statement.value
        yield statement.target
    elif not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Try)):
        yield statement


def _names(node: ast.AST) -> list[str]:
    """In order, each once. What is only called (`model(x)`, `torch.cat(x)`) is no value that does not fit."""
    called = {id(item.func) for item in ast.walk(node) if isinstance(item, ast.Call)}
    bound = {
        name.id
        for item in ast.walk(node)
        if isinstance(item, ast.comprehension)
        for name in ast.walk(item.target)
        if isinstance(name, ast.Name)
    }
    found: dict[str, tuple[int, int]] = {}
    for item in ast.walk(node):
        if id(item) in called:
            continue
        name = _variable(item)
        if name is not None and name not in bound and isinstance(item, (ast.Name, ast.Attribute)):
            at = (item.lineno, item.col_offset)
            found[name] = min(found.get(name, at), at)
    found.pop("self", None)
    return sorted(found, key=lambda name: found[name])


def _variable(node: ast.AST) -> str | None:
    """`x`, or `self.x`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return None


# ---- where they were bound


def _follow(snapshot: Snapshot, frames: Sequence[PythonFrame], name: str, value: str | None) -> NameOrigin | None:
    """Through the callers that passed it on as it was."""
    found = None
    for position, frame in enumerate(frames[:_HOPS]):
        tree = syntax_tree(snapshot, frame)
        if tree is None or frame.line is None:
            break
        scope = _scope(tree, frame.line)
        bound = _attribute(tree, scope, name) if name.startswith("self.") else _binding(tree, scope, name, frame.line)
        if bound is not None:
            line, also = bound
            at = PythonFrame(function=frame.function, file=frame.file, line=line)
            text = line_text(snapshot, at)
            return found if text is None else NameOrigin(found.name if found else name, value, at, text, also)
        caller = frames[position + 1] if position + 1 < len(frames) else None
        if not isinstance(scope, _Function) or not _is_parameter(scope, name) or caller is None:
            break
        text = line_text(snapshot, caller)
        if text is None:
            break
        found = NameOrigin(found.name if found else name, value, caller, text)
        passed = _argument(snapshot, caller, scope, name)
        if passed is None:
            break
        name = passed
    return found


def _scope(tree: ast.Module, line: int) -> _Scope:
    inside = [item for item in ast.walk(tree) if isinstance(item, _Function) and _spans_function(item, line)]
    return max(inside, key=lambda item: item.lineno, default=tree)


def _spans_function(node: _Function, line: int) -> bool:
    return node.lineno < line <= (node.end_lineno or 0)


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Of a scope without those of functions and classes inside."""
    for item in ast.iter_child_nodes(scope):
        yield item
        if not isinstance(item, (*_Function.__args__, ast.ClassDef)):  # type: ignore[attr-defined]
            yield from _own_nodes(item)


def _binding(tree: ast.Module, scope: _Scope, name: str, line: int) -> tuple[int, str | None] | None:
    """The last line above `line` that binds it, and the first that fills it; of the module where the function has none."""
    bound = _lines_that_bind(scope, name)
    if not bound and not (isinstance(scope, _Function) and _is_parameter(scope, name)):
        scope, bound = tree, _lines_that_bind(tree, name)
    if not bound:
        return None
    above = [item for item in bound if item[0] < line]
    at, value = max(above or bound, key=lambda item: item[0])
    if isinstance(value, (ast.Import, ast.ImportFrom)):
        return None
    filled = _first_fill(scope, name) if _is_empty_container(value) else None
    return at, _filled(filled if filled != line else None)


def _filled(line: int | None) -> str | None:
    return f"is filled at line {line}" if line is not None else None


def _lines_that_bind(scope: ast.AST, name: str) -> list[tuple[int, ast.AST | None]]:
    found: list[tuple[int, ast.AST | None]] = []
    for node in _own_nodes(scope):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            if any((item.asname or item.name.split(".")[0]) == name for item in node.names):
                found.append((node.lineno, node))
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_binds(target, name) for target in targets):
                found.append((node.lineno, node.value))
        elif isinstance(node, (ast.For, ast.AsyncFor)) and _binds(node.target, name):
            found.append((node.lineno, None))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None and _binds(node.optional_vars, name):
            found.append((node.optional_vars.lineno, None))
    return found


def _binds(target: ast.AST, name: str) -> bool:
    """`a, (b, *c) = ...` binds three; `a[0] = ...` and `a.b = ...` none."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(_binds(item, name) for item in target.elts)
    if isinstance(target, ast.Starred):
        return _binds(target.value, name)
    return isinstance(target, ast.Name) and target.id == name


def _is_empty_container(value: ast.AST | None) -> bool:
    if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        return not value.elts
    if isinstance(value, ast.Dict):
        return not value.keys
    names = ("list", "dict", "set", "deque", "defaultdict")
    return (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in names and not value.args
    )


def _first_fill(scope: ast.AST, name: str) -> int | None:
    """`x.append(...)`, `x[key] = ...`, `x += ...`."""
    lines = []
    for node in _own_nodes(scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _FILLS:
            if _variable(node.func.value) == name:
                lines.append(node.lineno)
        elif isinstance(node, ast.Assign):
            held = [item.value for item in node.targets if isinstance(item, ast.Subscript)]
            if any(_variable(item) == name for item in held):
                lines.append(node.lineno)
        elif isinstance(node, ast.AugAssign) and _variable(node.target) == name:
            lines.append(node.lineno)
    return min(lines, default=None)


def _attribute(tree: ast.Module, scope: _Scope, name: str) -> tuple[int, str | None] | None:
    """The only line of the class that sets `self.x`, or the one in __init__ and the first elsewhere."""
    owner = next(
        (
            item
            for item in ast.walk(tree)
            if isinstance(item, ast.ClassDef) and any(part is scope for part in item.body)
        ),
        None,
    )
    if owner is None:
        return None
    first, others = None, []
    for method in owner.body:
        if not isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for node in ast.walk(method):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if _is_annotated(node) else []
            if any(_variable(item) == name for target in targets for item in _flat(target)):
                (others if method.name != "__init__" else [first := node.lineno]).append(node.lineno)
    if first is not None:
        return first, f"is set at line {others[0]}" if others else _filled(_first_fill_of_class(owner, name))
    return (others[0], None) if len(others) == 1 else None


def _is_annotated(node: ast.AST) -> bool:
    return isinstance(node, ast.AnnAssign) and node.value is not None


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for item in target.elts:
            yield from _flat(item)
    else:
        yield target


def _first_fill_of_class(owner: ast.ClassDef, name: str) -> int | None:
    lines = [line for method in owner.body if (line := _first_fill(method, name)) is not None]
    return min(lines, default=None)


# ---- what a caller passed


def _is_parameter(scope: _Function, name: str) -> bool:
    return name in _parameters(scope)


def _parameters(scope: _Function) -> list[str]:
    given = scope.args
    return [item.arg for item in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def _argument(snapshot: Snapshot, caller: PythonFrame, scope: _Function, name: str) -> str | None:
    """The caller's own name for it: `step(model, batch)` passes `batch`; None for an expression or an unknown call."""
    tree = syntax_tree(snapshot, caller)
    line = caller.line
    if tree is None or line is None or isinstance(scope, ast.Lambda):
        return None
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _spans(node, line) and _called_name(node) == scope.name
    ]
    if len(calls) != 1:
        return None
    call, names = calls[0], _parameters(scope)
    if names[:1] == ["self"] and isinstance(call.func, ast.Attribute):
        names = names[1:]
    keyword = next((item.value for item in call.keywords if item.arg == name), None)
    position = names.index(name) if name in names else len(call.args)
    starred = any(isinstance(item, ast.Starred) for item in call.args)
    value = (
        keyword if keyword is not None else call.args[position] if not starred and position < len(call.args) else None
    )
    return _variable(value) if value is not None else None


def _called_name(call: ast.Call) -> str | None:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None
