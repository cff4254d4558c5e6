"""A method that pickle and copy ask for an object's state, and that makes a new object of the same class for it.

`__getstate__` that puts `self.after()` into the state, where after() returns `Stage(...)`: what is made is asked
in turn, so that no stack is large enough.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.report.job import PythonFrame

_ASKED = ("__getstate__", "__reduce__", "__reduce_ex__", "__getnewargs__", "__getnewargs_ex__")
_BRANCHES = (ast.If, ast.IfExp, ast.Match, ast.Try, ast.BoolOp)
_QUOTED = 60


class EndlessState(msgspec.Struct, frozen=True):
    """`text`, the call at `line` within `owner.method`, makes a new object of `owner`."""

    file: str
    line: int
    text: str
    owner: str
    method: str

    def words(self, place: str) -> str:
        """As a sentence of its own, but for its end. `place`: of the line."""
        return f"{place} (`{self.text}`) makes a new {self.owner} for the state of each {self.owner}"

    def advice(self, place: str) -> str:
        """The change to make."""
        return (
            f"Leave it out of what {self.owner}.{self.method}() returns: {self.words(place)}, whose state is asked in "
            "turn, and so on without end. Make it after loading from what is saved. No stack is large enough for that."
        )


def callers(frames: Sequence[PythonFrame]) -> list[PythonFrame]:
    """Those that called what walks through the objects, and none that it asked for their states."""
    names = [(item.function or "").rpartition(".")[2] for item in frames]
    asked = [place for place, name in enumerate(names) if name in (*_ASKED, "__deepcopy__")]
    return [*frames[asked[-1] + 1 :]] if asked else [*frames]


def endless_state(files: Mapping[str, ast.Module]) -> EndlessState | None:
    """The only one of a program; None where a condition may end it."""
    found = [
        item
        for file, tree in files.items()
        for owner in nodes_of(tree)
        if isinstance(owner, ast.ClassDef)
        for item in _of_class(file, owner)
    ]
    return found[0] if len(found) == 1 else None


def _of_class(file: str, owner: ast.ClassDef) -> Iterator[EndlessState]:
    methods = {item.name: item for item in owner.body if isinstance(item, ast.FunctionDef)}
    makers = {name for name, item in methods.items() if _returns_new(item, owner.name)}
    for name in _ASKED:
        method = methods.get(name)
        if method is None or any(isinstance(item, _BRANCHES) for item in own_nodes(method)):
            continue
        for call in _kept(method):
            if isinstance(call, ast.Call) and (_is_new(call, owner.name) or _is_own(call, makers)):
                text = shortened(ast.unparse(call), _QUOTED)
                yield EndlessState(file, call.lineno, text, owner.name, name)


def _kept(method: ast.FunctionDef) -> Iterator[ast.AST]:
    """What is returned, or put into what is: an object that it only compares with, or asks, is in no state."""
    for item in own_nodes(method):
        if isinstance(item, ast.Assign) and not isinstance(item.targets[0], ast.Subscript):
            continue
        if isinstance(item, (ast.Return, ast.Assign)):
            yield from _held(item.value)
        elif isinstance(item, ast.Call) and called_name(item) in ("update", "setdefault"):
            for value in passed_values(item):
                yield from _held(value)


def _held(value: ast.AST | None) -> Iterator[ast.AST]:
    """The parts of a tuple, list or dict, and what dict() and the like are given."""
    if value is None:
        return
    yield value
    parts = [*getattr(value, "elts", ()), *getattr(value, "values", ())] if not isinstance(value, ast.Call) else []
    if isinstance(value, ast.Call) and called_name(value) in ("dict", "tuple", "list"):
        parts = [*passed_values(value)]
    if isinstance(value, ast.BinOp):  # `self.__dict__ | {"after": self.after()}`
        parts = [value.left, value.right]
    for part in parts:
        yield from _held(part)


def _returns_new(method: ast.FunctionDef, owner: str) -> bool:
    """Whether all that a method returns is a new object of its class."""
    returns = [item for item in own_nodes(method) if isinstance(item, ast.Return)]
    branches = any(isinstance(item, _BRANCHES) for item in own_nodes(method))
    return bool(returns) and not branches and all(_is_new(item.value, owner) for item in returns)


def _is_new(node: ast.AST | None, owner: str) -> bool:
    """`Stage(...)`, `type(self)(...)`, `self.__class__(...)`."""
    if not isinstance(node, ast.Call):
        return False
    return ast.unparse(node.func) in (owner, "type(self)", "self.__class__")


def _is_own(call: ast.Call, makers: set[str]) -> bool:
    return ast.unparse(call.func) == f"self.{called_name(call)}" and called_name(call) in makers
