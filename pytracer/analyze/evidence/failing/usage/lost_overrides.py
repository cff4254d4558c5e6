"""A function that C++ calls in Python and does not find, as the Python object has ended: C++ keeps only its own half.

pybind11 finds an override by the Python object. Where a native object was given one that nothing in Python keeps, such
as `world.field = Spring()`, a std::shared_ptr keeps the C++ half alone, and the pure virtual function is called.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.failing.expressions import short
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.own_code.handles import gives_itself_away
from pytracer.analyze.evidence.own_code.native_calls import KEEPS, Uses, parents_of
from pytracer.analyze.evidence.own_code.python_overrides import Overriders, overriders
from pytracer.analyze.evidence.own_code.source_files import sources_before
from pytracer.analyze.evidence.slicing.callers import called_function, calls_of
from pytracer.analyze.evidence.slicing.makers import makers
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, passed_values
from pytracer.analyze.evidence.syntax.imports import imported_as, imported_names
from pytracer.analyze.evidence.syntax.names import elements, last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Function, own_nodes, parameters, scope_of, spans, statement_at

_MESSAGE = Pattern(r'Tried to call pure virtual function "(?:.*::)?(?P<base>\w+)(?:<[^"]*>)?::(?P<method>\w+)"')
_KEEPS_HALF = Pattern(r"\b(?:keep_alive|smart_holder|trampoline_self_life_support)\b")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MOST = 2


class _Given(msgspec.Struct, frozen=True):
    """`node` of `file` gives it to C++. `variable` of `function`, which has returned, held it; None: nothing did."""

    file: str
    node: ast.Call | ast.Assign
    variable: str | None = None
    function: str | None = None


class _Found(msgspec.Struct, frozen=True):
    given: tuple[_Given, ...]
    family: Overriders


def lost_override(at: FailingLine) -> str | None:
    """What to do about it."""
    found = _found(at)
    if found is None:
        return None
    method = f"{found.family.method}()"
    classes = [f"`{item.name}` ({at.in_file(item.file, item.node.lineno)})" for item in found.family.with_method]
    have = f"{list_words(classes, _MOST)} {'has' if len(classes) == 1 else 'have'} {method}"
    places = list_words([at.in_file(item.file, item.node.lineno) for item in found.given], _MOST)
    return (
        f"Keep the object of {places} in Python for as long as C++ uses it: in an attribute or variable that lives "
        "that long. Or let the binding keep it: py::keep_alive<1, 2>() on what takes it, or py::smart_holder with "
        f"py::trampoline_self_life_support. The class is not at fault: {have}."
    )


def lost_override_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _found(at)
    if found is None:
        return None
    first, others = found.given[0], found.given[1:]
    place = at.in_file(first.file, first.node.lineno)
    text = short(ast.unparse(first.node))
    also = list_words([at.in_file(item.file, item.node.lineno) for item in others], _MOST)
    held = f"`{first.variable}` of {first.function}(), which has returned, and which" if first.variable else None
    return (
        f"nothing in Python keeps {held or 'the object that'} {place} gives to C++ (`{text}`)"
        f"{f', nor that of {also}' if also else ''}; likely its Python half, which has {found.family.method}(), has "
        "ended, and C++ holds only its own half"
    )


def _found(at: FailingLine) -> _Found | None:
    match = _MESSAGE.search(at.message)
    family = overriders(at.files, match["base"], match["method"]) if match is not None else None
    if family is None or any(gives_itself_away(item.node) for item in family.classes):
        return None
    if _calls_base(at, family) or _keeps_python_half(at, family):
        return None
    given = tuple(_Search(at, family).given())
    return _Found(given, family) if given else None


def _calls_base(at: FailingLine, family: Overriders) -> bool:
    """Whether an override runs, or the line calls the function of the base class itself: C++ then found the override.

    As `super().pick(x)`, `Policy.pick(self, x)`.
    """
    inside = any(
        family.method in (frame.function or "").split(".") and frame.file == item.file and spans(item.node, frame.line)
        for frame in at.frames
        for item in family.classes
        if frame.line is not None
    )
    return inside or any(_is_of_base(item, family) for item in calls_on(at.tree, at.line))


def _is_of_base(call: ast.Call, family: Overriders) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr != family.method:
        return False
    owner, first = call.func.value, call.args[0] if call.args else None
    by_super = isinstance(owner, ast.Call) and called_name(owner) == "super"
    itself = first is not None and last_name(first) == "self"
    return by_super or last_name(owner) in (family.base, *family.names) or itself


def _keeps_python_half(at: FailingLine, family: Overriders) -> bool:
    """Whether a native source of the program, or text in its files, may have the binding keep the Python object."""
    texts = (
        node.value
        for tree in at.files.values()
        for node in nodes_of(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    if any(_KEEPS_HALF.search(text) for text in texts):
        return True
    folders = dict.fromkeys(os.path.dirname(file) for file in at.files)
    sources = sources_before(at.snapshot.created_wall_ns, folders)
    return any(_KEEPS_HALF.search(line) for _, lines in sources for line in lines)


class _Search:
    """What the program gives to native objects, and nothing keeps."""

    def __init__(self, at: FailingLine, family: Overriders) -> None:
        self._at, self._family = at, family
        self._running = [(frame.file, frame.line) for frame in at.frames if frame.line is not None]
        calls = calls_on(at.tree, at.line)
        owners = [call.func.value for call in calls if isinstance(call.func, ast.Attribute)]
        names = {last_name(item) for item in (*owners, *(value for call in calls for value in passed_values(call)))}
        self._receivers = names - {None, "self", *imported_names(at.tree)}
        self._parents = {file: parents_of(tree) for file, tree in at.files.items()}
        nodes = (node for tree in at.files.values() for node in nodes_of(tree))
        self._defined = {node.name for node in nodes if isinstance(node, (*_FUNCTIONS, ast.ClassDef))}

    def given(self) -> Iterator[_Given]:
        """In the order of the files and lines."""
        found: dict[tuple[str, int], _Given] = {}
        for file, tree in self._at.files.items():
            for node in nodes_of(tree):
                for value in self._handed(file, node):
                    for item in self._unkept(file, node, value):
                        found.setdefault((item.file, item.node.lineno), item)
        yield from (found[key] for key in sorted(found))

    def _handed(self, file: str, node: ast.AST) -> list[ast.expr]:
        """What a native object is given by an attribute, a method, or when it is made."""
        if isinstance(node, ast.Assign):
            only = node.targets[0] if len(node.targets) == 1 else None
            native = isinstance(only, ast.Attribute) and self._is_native(file, only.value)
            values = [node.value] if native else []
        elif isinstance(node, ast.Call):
            values = passed_values(node) if self._is_native_call(file, node) else []
        else:
            return []
        return [part for item in values for part in elements(item)]

    def _is_native_call(self, file: str, call: ast.Call) -> bool:
        name = called_name(call)
        if name in self._defined or name in KEEPS - {"add", "register", "push"}:
            return False
        if self._is_of_module(file, call):
            return True
        return isinstance(call.func, ast.Attribute) and self._is_native(file, call.func.value)

    def _is_native(self, file: str, owner: ast.expr) -> bool:
        """Whether C++ made it: by its name, what the failing line uses; else the call that made it is of the module."""
        if last_name(owner) in (None, "self", "cls"):
            return False
        made = self._makers(file, owner)
        calls = [item for item, _ in made if isinstance(item, ast.Call)]
        if calls:
            return len(calls) == len(made) and all(self._is_of_module(at, item) for item, at in made)
        return last_name(owner) in self._receivers

    def _is_of_module(self, file: str, node: ast.AST) -> bool:
        """Whether it calls what is in the module of the base class, and is none of the program."""
        own = not isinstance(node, ast.Call) or called_name(node) in self._defined
        return not own and self._is_foreign(file, node.func)  # type: ignore[attr-defined]

    def _is_foreign(self, file: str, name: ast.expr) -> bool:
        """Whether it names what is in that module."""
        origin = imported_as(self._at.files[file], name) or ast.unparse(name)
        return origin.rpartition(".")[0].rpartition(".")[2] == self._family.module

    def _unkept(self, file: str, node: ast.AST, value: ast.expr) -> Iterator[_Given]:
        if not isinstance(node, (ast.Call, ast.Assign)):
            return
        if isinstance(value, ast.Call):
            if not self._runs(file, node.lineno) and self._makes(file, value):
                yield _Given(file, node)
            return
        scope = scope_of(self._at.files[file], value.lineno)
        if not isinstance(value, ast.Name) or not isinstance(scope, _FUNCTIONS) or not self._has_returned(file, scope):
            return
        targets = node.targets if isinstance(node, ast.Assign) else []
        uses = Uses(self._parents[file], lambda item: item is node, lambda item: item in targets, lambda _: True)
        if uses.keep(scope, value.id):
            return
        if value.id in parameters(scope):
            yield from self._by_callers(file, scope, value.id)
            return
        bound = lines_that_bind(scope, value.id)
        made = bound[0][1] if len(bound) == 1 else None
        if isinstance(made, ast.Call) and self._makes(file, made):
            yield _Given(file, node, value.id, scope.name)

    def _by_callers(self, file: str, function: Function, name: str) -> Iterator[_Given]:
        """What a function that hands its parameter on is called with."""
        if isinstance(function, ast.Lambda) or lines_that_bind(function, name):
            return
        for call in calls_of(self._at.files, file, function):
            given = call.argument(function, name)
            if (
                isinstance(given, ast.Call)
                and self._makes(call.file, given)
                and not self._runs(call.file, call.call.lineno)
            ):
                yield _Given(call.file, call.call)

    def _makes(self, file: str, call: ast.Call) -> bool:
        """Whether it makes an object of such a class, and keeps it nowhere: also by a function that returns it so."""
        function = called_function(self._at.files, self._at.files[file], call)
        if function is not None:
            returned = [item.value for item in own_nodes(function[1]) if isinstance(item, ast.Return)]
            made = [
                item
                for item in returned
                if isinstance(item, ast.Call)
                and called_function(self._at.files, self._at.files[function[0]], item) is None
            ]
            return bool(made) and len(made) == len(returned) and all(self._makes(function[0], item) for item in made)
        if self._is_foreign(file, call.func):
            return False
        classes = [last_name(item) for item, _ in self._makers(file, call.func)]
        return bool(classes) and all(item in self._family.names for item in classes)

    def _makers(self, file: str, node: ast.expr) -> list[tuple[ast.AST, str]]:
        tree = self._at.files[file]
        spot = Spot(file, tree, scope_of(tree, node.lineno), node.lineno)
        return [(item.node, item.spot.file or file) for item in makers(self._at.files, self._at.slice, node, spot)]

    def _runs(self, file: str, line: int) -> bool:
        """Whether the statement of a line has not ended: a call still has what it was given."""
        statement = statement_at(self._at.files[file], line)
        return statement is None or any(at == file and spans(statement, number) for at, number in self._running)

    def _has_returned(self, file: str, scope: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        tree = self._at.files[file]
        here = any(at == file and scope_of(tree, line) is scope for at, line in self._running)
        return not here and not any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in own_nodes(scope))
