"""The function of C, called by ctypes, whose result is an address, while no line of the program sets its `restype`.

ctypes then takes the result for a C int. Nothing is said where a line may set it for a function that is not known:
`getattr(lib, name).restype` of a name from a file, `f.restype` of an `f` from elsewhere, `setattr(f, "restype", ...)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.own_code.declared_functions import Files, declares, is_declared_at
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import statement_at
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_LOADERS = frozenset({"CDLL", "PyDLL", "LoadLibrary", "load_library"})
_QUOTED = 44
_MOST = 24


class UnsetRestype(msgspec.Struct, frozen=True):
    """`function` (`lib.make`) returned the address at `place`; `argtypes`: the line that declares its arguments."""

    function: str
    place: LineWords
    argtypes: LineWords | None

    @property
    def source(self) -> str:
        """`` the address that `lib.make()` returned at line 6: its restype is not set ``."""
        only = f", {self.argtypes} sets only its argtypes" if self.argtypes is not None else ""
        return f"the address that `{self.function}()` returned at {_bare(self.place)}: its restype is not set{only}"

    @property
    def repair(self) -> str:
        """`` Set `lib.make.restype = ctypes.c_void_p` before line 6 (`...`) ``."""
        beside = f", beside its argtypes at {self.argtypes}" if self.argtypes is not None else ""
        return f"Set `{self.function}.restype = ctypes.c_void_p` before {self.place}{beside}"


def _bare(place: LineWords) -> str:
    return place.partition(" (")[0]


def unset_restype(
    view: ProcessView, files: Files, file: str | None, call: ast.Call, here: str | None
) -> UnsetRestype | None:
    """Of a call that is known to be one of ctypes; None where a line may set the restype."""
    if not isinstance(call.func, ast.Attribute) or file not in files or may_set(files, call.func.attr, "restype"):
        return None
    text = line_text(view.process.snapshot, PythonFrame(file=file, line=call.lineno)) or ""
    declared = is_declared_at(files, call.func.attr, "argtypes")
    return UnsetRestype(
        ast.unparse(call.func),
        line_in(file, call.lineno, here).quoted(shortened(text, _QUOTED)),
        line_in(*declared[0], here) if len(declared) == 1 else None,
    )


def may_set(files: Files, function: str, attribute: str) -> bool:
    """Whether a line sets `restype` or `argtypes` of it, or of a function that is not known."""
    return any(True for _ in declares(files, function, attribute))


def native_call_behind(back: Slice, tree: ast.Module, line: int, spot: Spot) -> tuple[ast.Call, Spot] | None:
    """The call of ctypes whose result a line makes memory of: of `from_numpy(as_array(cast(lib.make(), kind)))`.

    Only what is the memory is followed, not its shape or type; None where that is none, or more than one.
    """
    statement = statement_at(tree, line)
    value = getattr(statement, "value", None)
    waiting: list[tuple[ast.AST, Spot]] = [(value, spot)] if isinstance(value, ast.expr) else []
    found: dict[int, tuple[ast.Call, Spot]] = {}
    for _ in range(_MOST):
        if not waiting:
            break
        node, at = waiting.pop()
        made = back.made(node, at, calls=True)
        node, at = made.node, made.spot
        if isinstance(node, ast.Call) and _is_ctypes(back, node, at):
            found[id(node)] = node, at
        else:
            waiting += [(item, at) for item in _memory_of(node)]
    return next(iter(found.values())) if len(found) == 1 and not waiting else None


def _memory_of(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call):
        yield from node.args[:1]
        if isinstance(node.func, ast.Attribute):
            yield node.func.value
    elif isinstance(node, (ast.Attribute, ast.Subscript, ast.Yield, ast.Await)) and node.value is not None:
        yield node.value


def _is_ctypes(back: Slice, call: ast.Call, spot: Spot) -> bool:
    """Whether it is of a library that the program loads by ctypes."""
    if not isinstance(call.func, ast.Attribute):
        return False
    library = back.made(call.func.value, spot, calls=True).node
    return isinstance(library, ast.Call) and called_name(library) in _LOADERS
