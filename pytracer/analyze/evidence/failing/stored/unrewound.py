"""A buffer or temporary file that is read from where the writing left it: at its end, where nothing is left to read."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Made, Spot, name_made
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, passed_values
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, parents_of, scope_of

_NOTHING_LEFT = Pattern(r"^$|Ran out of input|Expecting value: line 1 column 1 \(char 0\)|failed finding central dir")
_KINDS = ("EOFError", "JSONDecodeError", "RuntimeError")
_BUFFERS = frozenset({"BytesIO", "StringIO"})
_FILES = frozenset({"TemporaryFile", "NamedTemporaryFile", "SpooledTemporaryFile"})
_READS, _WRITES = frozenset({"load"}), frozenset({"save", "dump", "write", "writelines", "savez"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SETS = frozenset({"seek", "getvalue", "getbuffer", "truncate"})


class _Unrewound(msgspec.Struct, frozen=True):
    """`name`: of the buffer where `write` fills it."""

    name: str
    write: ast.Call
    spot: Spot


def unrewound(at: FailingLine) -> str | None:
    """Where to set it back."""
    found, subject = _unrewound(at), unrewound_subject(at)
    if found is None or subject is None:
        return None
    return f"{capital(subject)}. Call `{found.name}.seek(0)` behind it, before line {at.line} reads."


def unrewound_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _unrewound(at)
    if found is None:
        return None
    line = at.place(found.spot, found.write.lineno)
    return f"`{found.name}` is read from where writing it left off, its end: no line sets it back behind {line}"


def _unrewound(at: FailingLine) -> _Unrewound | None:
    """By the only line that writes it; nothing in a program that sets any file to a place."""
    spot = at.slice.spot(0)
    if spot is None or at.node is None or at.kind not in _KINDS or not _NOTHING_LEFT.search(at.message):
        return None
    reads = [item for item in nodes_of(at.node) if isinstance(item, ast.Call) and called_name(item) in _READS]
    if len(reads) != 1 or not reads[0].args or any(map(_sets_place, at.files.values())):
        return None
    made = at.slice.made(reads[0].args[0], spot, calls=True)
    name = name_made(made) if _is_buffer(made.node) else None
    if name is None:
        made = _kept_buffer(variable(reads[0].args[0]), spot) or made
        name = variable(reads[0].args[0]) if _is_buffer(made.node) else None
    writes = [*_writes(made, name)] if name is not None else []
    if name is None or len(writes) != 1 or _may_be_left_out(made, writes[0]):
        return None
    return _Unrewound(name, writes[0], made.spot)


def _kept_buffer(name: str | None, spot: Spot) -> Made | None:
    """The only thing that the methods of a class set an attribute to, beside None: `self.best, self.buffer = ...`."""
    owner = class_around(spot.tree, spot.scope) if name is not None and name.startswith("self.") else None
    given = [pair for item in nodes_of(owner) for pair in set_by(item)] if owner is not None else []
    values = [value for target, value in given if variable(target) == name and not is_none(value)]
    if len(values) != 1 or values[0] is None or not _is_buffer(values[0]):
        return None
    line = values[0].lineno
    return Made(values[0], structs.replace(spot, scope=scope_of(spot.tree, line), line=line, depth=None))


def _may_be_left_out(made: Made, write: ast.Call) -> bool:
    """Whether a branch or a loop has the write and not the making: then the buffer may be empty."""
    parents = parents_of(made.spot.tree)
    above, around = parents.get(write), set[ast.AST]()
    while above is not None and not isinstance(above, (*_FUNCTIONS, ast.Module)):
        around.add(above)
        above = parents.get(above)
    maybe = (item for item in around if isinstance(item, (ast.If, ast.IfExp, ast.ExceptHandler, ast.For, ast.While)))
    return any(made.node not in nodes_of(item) for item in maybe)


def _is_buffer(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if called_name(node) in _BUFFERS:
        return not node.args and not node.keywords
    mode = argument_at(node, 0, "mode")
    return called_name(node) in _FILES and (mode is None or (isinstance(mode, ast.Constant) and "+" in str(mode.value)))


def _writes(made: Made, name: str) -> Iterator[ast.Call]:
    """Of an attribute in all methods of its class."""
    owner = class_around(made.spot.tree, made.spot.scope) if name.startswith("self.") else None
    for item in nodes_of(owner or made.spot.scope):
        if not isinstance(item, ast.Call) or called_name(item) not in _WRITES:
            continue
        base = item.func.value if isinstance(item.func, ast.Attribute) else None
        if (base is not None and variable(base) == name) or any(variable(part) == name for part in passed_values(item)):
            yield item


def _sets_place(tree: ast.Module) -> bool:
    return any(isinstance(item, ast.Call) and called_name(item) in _SETS for item in nodes_of(tree))
