"""The function of C, called by ctypes, whose result is an address, while no line of the program sets its `restype`.

ctypes then takes the result for a C int. A line that sets it for another object of CDLL sets nothing here: each that
loads a library makes functions of its own, and so does each `lib["make"]`. Nothing is said where a line may set it for
a function that is not known: `getattr(lib, name).restype` of a name from a file, `f.restype` of an `f` from elsewhere,
`setattr(f, "restype", ...)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.own_code.declared_functions import Files, declares, declaring, is_declared_at
from pytracer.analyze.evidence.slicing.bindings import last_binding
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import scope_of, statement_at
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_LOADERS = frozenset({"CDLL", "PyDLL", "LoadLibrary", "load_library"})
_KEPT = "load_library"  # of numpy: the same object for the same path
_QUOTED = 44
_MOST = 24


class OtherObject(msgspec.Struct, frozen=True):
    """`place` sets a restype; `text`: of what; `made`: the line that loads that library, and `ours` the one called.

    `again`: both load the same library, by what they pass.
    """

    place: LineWords
    text: str
    made: LineWords | None = None
    ours: LineWords | None = None
    again: bool = False

    @property
    def words(self) -> str:
        """Behind `sets the restype of`."""
        if self.made is None:
            return f"`{self.text}`, a new object each time"
        return f"another object, which {_bare(self.made)} loads"

    def repair(self, function: str, called: LineWords) -> str:
        """The change to make."""
        if self.made is None:
            attribute = f"`{function}.restype = ctypes.c_void_p`"
            return f"Write {attribute} in place of `{self.text}.restype = ...` at {_bare(self.place)}"
        if not self.again:
            return (
                f"Set `{function}.restype = ctypes.c_void_p` before {called}, as {_bare(self.place)} does for its own"
            )
        return (
            f"Call it on the library that {self.made} loads and {_bare(self.place)} declares, in place of loading it "
            f"again at {self.ours or called}: each CDLL(...) has functions of its own. Or declare them there, too"
        )


class UnsetRestype(msgspec.Struct, frozen=True):
    """`function` (`lib.make`) returned the address at `place`; `argtypes`: the line that declares its arguments.

    `other`: a line that sets the restype of another object of that library, or of one that nobody keeps.
    """

    function: str
    place: LineWords
    argtypes: LineWords | None
    other: OtherObject | None = None

    @property
    def source(self) -> str:
        """`` the address that `lib.make()` returned at line 6: its restype is not set ``."""
        if self.other is not None:
            return (
                f"the address that `{self.function}()` returned at {_bare(self.place)}: {_bare(self.other.place)} sets "
                f"the restype of {self.other.words}"
            )
        only = f", {self.argtypes} sets only its argtypes" if self.argtypes is not None else ""
        return f"the address that `{self.function}()` returned at {_bare(self.place)}: its restype is not set{only}"

    @property
    def repair(self) -> str:
        """`` Set `lib.make.restype = ctypes.c_void_p` before line 6 (`...`) ``."""
        if self.other is not None:
            return self.other.repair(self.function, self.place)
        beside = f", beside its argtypes at {self.argtypes}" if self.argtypes is not None else ""
        return f"Set `{self.function}.restype = ctypes.c_void_p` before {self.place}{beside}"


def _bare(place: LineWords) -> str:
    return place.partition(" (")[0]


def unset_restype(
    view: ProcessView, files: Files, file: str | None, call: ast.Call, here: str | None
) -> UnsetRestype | None:
    """Of a call that is known to be one of ctypes; None where a line may set the restype."""
    if not isinstance(call.func, ast.Attribute) or file is None or file not in files:
        return None
    other = None
    if may_set(files, call.func.attr, "restype"):
        other = _other_object(view, files, file, call.func, here)
        if other is None:
            return None
    text = line_text(view.process.snapshot, PythonFrame(file=file, line=call.lineno)) or ""
    declared = is_declared_at(files, call.func.attr, "argtypes")
    return UnsetRestype(
        ast.unparse(call.func),
        line_in(file, call.lineno, here).quoted(shortened(text, _QUOTED)),
        line_in(*declared[0], here) if len(declared) == 1 else None,
        other,
    )


def _other_object(
    view: ProcessView, files: Files, file: str, function: ast.Attribute, here: str | None
) -> OtherObject | None:
    """Where one line alone may set it, and that does so for an object that is known to be another one."""
    found = [*declaring(files, function.attr, "restype")]
    if len(found) != 1 or found[0][3] is None:
        return None
    where, node, target, _ = found[0]
    place = line_in(where, getattr(node, "lineno", 0), here)
    if not isinstance(target, (ast.Attribute, ast.Subscript)):
        return None
    back = Slice(view.process.snapshot, program_frames(view))
    made = _loading(back, files, where, target.value)
    if isinstance(target, ast.Subscript):
        return OtherObject(place, ast.unparse(target)) if made is not None else None
    ours = _loading(back, files, file, function.value)
    if made is None or ours is None or made.at == ours.at:
        return None
    again = made.library == ours.library
    if again and _KEPT in (called_name(made.call), called_name(ours.call)):
        return None
    return OtherObject(place, ast.unparse(target), _loads(view, made.at, here), _loads(view, ours.at, here), again)


class _Loading(msgspec.Struct, frozen=True):
    """A call that loads a library. `library`: what it passes, with where each name in that was set."""

    call: ast.Call
    at: tuple[str, int, int]
    library: tuple[object, ...]


def _loading(back: Slice, files: Files, file: str, library: ast.expr) -> _Loading | None:
    """Where the call is that loads a library, which makes an object each time."""
    tree = files[file]
    made = back.made(library, Spot(file, tree, scope_of(tree, library.lineno), library.lineno), calls=True)
    node, spot = made.node, made.spot
    if not isinstance(node, ast.Call) or called_name(node) not in _LOADERS or spot.file is None:
        return None
    passed = [*node.args, *(item.value for item in node.keywords)]
    names = sorted({item.id for one in passed for item in ast.walk(one) if isinstance(item, ast.Name)})
    bound = [(name, last_binding(spot.scope, name, node.lineno)) for name in names]
    set_at = [(name, (spot.file, found[0]) if found is not None else None) for name, found in bound]
    return _Loading(node, (spot.file, node.lineno, node.col_offset), (*map(ast.unparse, passed), *set_at))


def _loads(view: ProcessView, at: tuple[str, int, int], here: str | None) -> LineWords:
    text = line_text(view.process.snapshot, PythonFrame(file=at[0], line=at[1])) or ""
    return line_in(at[0], at[1], here).quoted(shortened(text, _QUOTED))


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
