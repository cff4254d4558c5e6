"""A callback of ctypes or cffi that a line gave to C, and that nothing keeps: C then calls what has been freed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.own_code.declared_functions import PROTOTYPES
from pytracer.analyze.evidence.own_code.native_calls import NativeCalls, Uses, native_calls, parents_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_QUOTED = 44


class DroppedCallback(msgspec.Struct, frozen=True):
    """`text`: `LIKELIHOOD(loglike)`, of `place` (`line 35`).

    `function`: the Python function that it calls, where it has a name. `variable`: of `held_by`, the function that
    alone held it; None where nothing did. `module`: ctypes or cffi. `alone`: what it calls was made for it, as a bound
    method is.
    """

    text: str
    place: str
    function: str | None
    module: str
    variable: str | None = None
    held_by: str | None = None
    alone: bool = False

    @property
    def words(self) -> str:
        """`` `LIKELIHOOD(loglike)` of line 35, which nothing holds ``."""
        if self.variable is None:
            return f"`{self.text}` of {self.place}, which nothing holds"
        return f"`{self.text}` of {self.place}, which only `{self.variable}` of {self.held_by}() held"

    @property
    def advice(self) -> str:
        """The change to make."""
        freed = (
            f"{self.held_by}(), whose `{self.variable}` is all that holds it, returns"
            if self.variable is not None
            else "the call of that line returns, unless it is held"
        )
        return (
            f"Keep `{self.text}` of {self.place} in an attribute or a variable of the module for as long as C may "
            f"call it: it owns the code that C calls, and is freed when {freed}."
        )


def dropped_callbacks(view: ProcessView) -> Iterator[DroppedCallback]:
    """Those of the failing line's file first; not of a line that is running, whose call has not returned."""
    frames = program_frames(view)
    files = program_files(view.process.snapshot, frames)
    native = native_calls(files)
    types = {name for tree in files.values() for name in callback_types(tree)}
    for file, tree in files.items():
        yield from _Callbacks(tree, file, frames, native, types).found()


def callback_types(tree: ast.Module) -> Iterator[str]:
    """Names of the prototypes that a file makes."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and called_name(node.value) in PROTOTYPES:
            yield from filter(None, map(last_name, node.targets))


class _Callbacks:
    """Those of one file."""

    def __init__(
        self, tree: ast.Module, file: str, frames: list[PythonFrame], native: NativeCalls, types: set[str]
    ) -> None:
        self._tree, self._file, self._native, self._types = tree, file, native, types
        self._first = frames[0].file if frames else None
        self._running = {frame.line for frame in frames if frame.file == file and frame.line}
        self._parents: Mapping[int, ast.AST] = parents_of(tree)

    def found(self) -> Iterator[DroppedCallback]:
        """In no order but that of the syntax tree."""
        for node in nodes_of(self._tree):
            if isinstance(node, ast.FunctionDef):
                yield from self._of_decorated(node)
            module = self._makes(node)
            if module is None or not isinstance(node, ast.Call):
                continue
            around = self._parents.get(id(node))
            if isinstance(around, ast.Call) and node in around.args:
                passed = around.lineno not in self._running and self._native.has(around)
                if passed and not self._is_around(around):
                    yield self._described(node, module)
            elif isinstance(around, ast.Assign) and len(around.targets) == 1:
                yield from self._of_local(node, around.targets[0], module)

    def _makes(self, node: ast.AST) -> str | None:
        """The module whose callback an expression makes; None where it makes none."""
        if not isinstance(node, ast.Call) or not node.args:
            return None
        function = node.func
        if isinstance(function, ast.Call):
            return "ctypes" if called_name(function) in PROTOTYPES else None
        if last_name(function) in self._types:
            return "ctypes"
        return "cffi" if last_name(function) == "callback" and len(node.args) > 1 and _is_ffi(function) else None

    def _is_around(self, call: ast.Call) -> bool:
        """Whether a line that is running is one of the call's own."""
        return any(call.lineno <= line <= (call.end_lineno or call.lineno) for line in self._running)

    def _of_local(self, node: ast.Call, target: ast.expr, module: str) -> Iterator[DroppedCallback]:
        """Of a variable of a function."""
        holder = self._only_holder(target.id, node.lineno) if isinstance(target, ast.Name) else None
        if holder is not None and isinstance(target, ast.Name):
            yield self._described(node, module, target.id, holder)

    def _of_decorated(self, node: ast.FunctionDef) -> Iterator[DroppedCallback]:
        """`@REPORT` before a function inside of a function."""
        for item in node.decorator_list:
            module = self._decorates(item)
            holder = self._only_holder(node.name, item.lineno) if module is not None else None
            if module is not None and holder is not None:
                text = f"@{_maker(item)} def {node.name}"
                yield DroppedCallback(text, self._place(node.lineno), node.name, module, node.name, holder)

    def _decorates(self, node: ast.expr) -> str | None:
        """`REPORT`, `CFUNCTYPE(None)` and `ffi.callback("void()")`."""
        if isinstance(node, ast.Call) and called_name(node) in PROTOTYPES:
            return "ctypes"
        if isinstance(node, ast.Call):
            return "cffi" if called_name(node) == "callback" and _is_ffi(node.func) else None
        return "ctypes" if last_name(node) in self._types else None

    def _only_holder(self, name: str, line: int) -> str | None:
        """The function that has returned, whose variable alone held what it gave to C and to nothing else."""
        scope = scope_of(self._tree, line)
        if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        if any(scope_of(self._tree, line) is scope for line in self._running):
            return None
        given = any(
            self._native.has(call) and any(isinstance(item, ast.Name) and item.id == name for item in call.args)
            for call in nodes_of(scope)
            if isinstance(call, ast.Call)
        )
        return scope.name if given and not Uses(self._parents, self._native.has).keep(scope, name) else None

    def _place(self, line: int) -> LineWords:
        return line_in(self._file, line, self._first)

    def _described(
        self, node: ast.Call, module: str, variable: str | None = None, held_by: str | None = None
    ) -> DroppedCallback:
        given = node.args[-1]
        function = "<lambda>" if isinstance(given, ast.Lambda) else last_name(given)
        alone = isinstance(given, ast.Attribute) and imported_as(self._tree, given) is None
        return DroppedCallback(_text(node), self._place(node.lineno), function, module, variable, held_by, alone)


def _is_ffi(function: ast.expr) -> bool:
    """`ffi.callback` and `self.ffi.callback`."""
    return isinstance(function, ast.Attribute) and "ffi" in (last_name(function.value) or "").lower()


def _maker(node: ast.expr) -> str:
    """`REPORT`; `CFUNCTYPE(...)` of one with its types."""
    return f"{called_name(node)}(...)" if isinstance(node, ast.Call) else ast.unparse(node)


def _text(node: ast.Call) -> str:
    """`LogFn(write)`; without the types: `CFUNCTYPE(...)(write)`, `ffi.callback(..., write)`."""
    maker, given = node.func, shortened(ast.unparse(node.args[-1]), _QUOTED)
    if isinstance(maker, ast.Call):
        return f"{called_name(maker)}(...)({given})"
    return f"{ast.unparse(maker)}({'..., ' * (len(node.args) > 1)}{given})"
