"""A regular expression that can take for ever in what a function runs, by the program's source.

Which functions a function calls is told by their names, so it is known what it may reach, not what it did.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import takewhile

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.slicing.callers import called_function, only_function
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nested_repetition import nested_repetition
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_named, qualified_name, scope_of, spans
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_CALLS = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")
_VERBOSE = Pattern(r"\b(X|VERBOSE)\b")
_OF_RE = Pattern(r"/re(/__init__)?\.py$")
_MOST = 40  # functions
_LONGEST = 60

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class SlowPattern(msgspec.Struct, frozen=True):
    """`at`: the line that calls `call`. `part`: the repetition of a repetition; `line`: of its pattern, in `file`.

    `only`: whether nothing else that the function reaches goes on for long by itself: no `while`.
    """

    at: PythonFrame
    call: str
    part: str
    file: str
    line: int
    only: bool

    @property
    def advice(self) -> str:
        """How to repair the pattern."""
        where = line_in(self.file, self.line, None)  # several files may be named before
        return (
            f"Repeat once only in the pattern of {where}: `{self.part}` can cut one text into rounds in many ways, and "
            "tries them all where what follows does not match, so that each further character may double the time; a "
            "higher limit does not help then. Possessive quantifiers (`++`, Python 3.11) do not go back; a bound on "
            "the text's length keeps it short."
        )


class _Place(msgspec.Struct, frozen=True):
    file: str
    function: _Function


def slow_pattern(files: Mapping[str, ast.Module], name: str) -> SlowPattern | None:
    """The first one that the only function of that name reaches."""
    begin = only_function(files, name)
    reached = [*_reached(files, _Place(*begin))] if begin is not None else []
    loops = any(isinstance(item, ast.While) for place in reached for item in nodes_of(place.function))
    for place in reached:
        for call in _calls(place.function):
            found = _of_call(files, place, call)
            if found is not None:
                return msgspec.structs.replace(found, only=not loops)
    return None


def pattern_at(view: ProcessView) -> SlowPattern | None:
    """The one of the line at which a process was, in no other function than those of `re`."""
    stack = [item for item in view.python_stack or () if not is_library_file(item.file)]
    at = stack[0] if stack else None
    within = [*takewhile(lambda item: item != at, view.python_stack or ())]
    if at is None or at.line is None or not all(_OF_RE.search(item.file or "") for item in within):
        return None
    files = program_files(view.process.snapshot, stack)
    scope = scope_of(files[at.file], at.line) if at.file in files else None
    if not isinstance(scope, _Function) or at.file is None:
        return None
    place, here = _Place(at.file, scope), [item for item in _calls(scope) if spans(item, at.line)]
    found = [pattern for item in here if (pattern := _of_call(files, place, item)) is not None]
    return found[0] if len(found) == 1 else None


def _calls(function: _Function) -> list[ast.Call]:
    found = [item for item in nodes_of(function) if isinstance(item, ast.Call)]
    return sorted(found, key=lambda item: (item.lineno, item.col_offset))


def _reached(files: Mapping[str, ast.Module], begin: _Place) -> Iterator[_Place]:
    """The function, then those that it calls, or gives on, and so on."""
    todo, seen = [begin], {id(begin.function)}
    while todo and len(seen) <= _MOST:
        place = todo.pop(0)
        yield place
        for found in _next(files, place):
            if id(found.function) not in seen:
                seen.add(id(found.function))
                todo.append(found)


def _next(files: Mapping[str, ast.Module], place: _Place) -> Iterator[_Place]:
    tree = files[place.file]
    for call in _calls(place.function):
        own = called_function(files, tree, call)
        given = [only_function(files, item.id) for item in call.args if isinstance(item, ast.Name)]
        yield from (_Place(*item) for item in (own, *given) if item is not None)
        yield from _of_object(files, tree, call)


def _of_object(files: Mapping[str, ast.Module], tree: ast.Module, call: ast.Call) -> Iterator[_Place]:
    """`__call__` of the class of `encoder`, in `encoder(text)`: where all lines that set it make an object of that."""
    if isinstance(call.func, ast.Call):
        kinds = [call.func]
    else:
        name = last_name(call.func)
        values = [value for target, value in _settings(tree) if name is not None and last_name(target) == name]
        kinds = [value for value in values if isinstance(value, ast.Call)]
    names = {called_name(item) for item in kinds}
    name = names.pop() if len(names) == 1 else None
    for file, where in files.items():
        owner = class_named(where, name) if name is not None else None
        for method in owner.body if owner is not None else ():
            if isinstance(method, ast.FunctionDef) and method.name == "__call__":
                yield _Place(file, method)


def _settings(tree: ast.Module) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    for item in nodes_of(tree):
        yield from set_by(item)


def _of_call(files: Mapping[str, ast.Module], place: _Place, call: ast.Call) -> SlowPattern | None:
    """Of `FORM.match(text)` and `re.match("...", text)`."""
    tree, name = files[place.file], called_name(call)
    if name not in _CALLS or not isinstance(call.func, ast.Attribute):
        return None
    found = (place.file, call) if imported_as(tree, call.func) == f"re.{name}" else _compiled(files, place, call.func)
    if found is None or not found[1].args:
        return None
    file, made = found
    text = _text(files[file], made.args[0])
    flags = [ast.unparse(item) for item in (*made.args[1:], keyword_value(made, "flags")) if item is not None]
    verbose = re.VERBOSE if any(_VERBOSE.search(item) for item in flags) else 0
    part = nested_repetition(text, verbose, whole=name == "fullmatch") if text is not None else None
    if part is None:
        return None
    at = PythonFrame(function=qualified_name(tree, place.function), file=place.file, line=call.lineno)
    told = f"{ast.unparse(call.func)}()"
    return SlowPattern(at, shortened(told, _LONGEST), shortened(part, _LONGEST), file, made.args[0].lineno, False)


def _compiled(files: Mapping[str, ast.Module], place: _Place, used: ast.Attribute) -> tuple[str, ast.Call] | None:
    """`re.compile(...)` of what has the method that is called; None where several lines set that name."""
    if isinstance(used.value, ast.Call):
        made: list[tuple[str, ast.expr | None]] = [(place.file, used.value)]
    else:
        name = last_name(used.value)
        made = [
            (file, value)
            for file, tree in files.items()
            for target, value in _settings(tree)
            if name is not None and last_name(target) == name
        ]
    file, value = made[0] if len(made) == 1 else ("", None)
    is_made = isinstance(value, ast.Call) and imported_as(files[file], value.func) == "re.compile"
    return (file, value) if is_made and isinstance(value, ast.Call) else None


def _text(tree: ast.Module, node: ast.expr) -> str | None:
    """A constant, or the only one that a variable of the module is set to."""
    if isinstance(node, ast.Name):
        values = [value for target, value in _settings(tree) if isinstance(target, ast.Name) and target.id == node.id]
        only = values[0] if len(values) == 1 else None
        return _text(tree, only) if isinstance(only, ast.Constant) else None
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
