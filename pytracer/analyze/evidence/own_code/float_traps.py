"""Who switched the floating-point traps on: a function of the program's own C, and the line that calls it.

A trap stays on for the whole thread, so that any code of it dies of what is NaN or infinity otherwise: torch, NumPy,
Python itself. By the source: the only function that enables them, of the exception that was trapped, and whose call is
seen. A call that is undone before the function ends, that comes only behind the line of the crash, or that passes
zeros, is none. Where there is no source, the only library of the program that calls feenableexcept() is named.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import functions, image_name, own_frames
from pytracer.analyze.evidence.own_code.c_text import blanked, calls_of, closing, defined, function_around
from pytracer.analyze.evidence.own_code.native_calls import NativeCalls, native_calls
from pytracer.analyze.evidence.own_code.own_libraries import is_own_path
from pytracer.analyze.evidence.own_code.own_signature import levels_of, libraries_and_folders
from pytracer.analyze.evidence.own_code.source_files import Source, sources_before
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.loops import loops_of
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, scope_of, spans
from pytracer.analyze.naming import LineWords, line_in, short_file
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.decode.symbols.image_symbols import imported
from pytracer.report.job import Evidence, PythonFrame

_HIDDEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_ENABLES = re.compile(
    r"\bfeenableexcept\s*\(|\bfesetenv\s*\(\s*FE_NOMASK_ENV\b|\b_MM_SET_EXCEPTION_MASK\s*\((?=[^;]*~)"
)
_DISABLES = re.compile(
    r"\bfedisableexcept\s*\(|\bfesetenv\s*\((?!\s*FE_NOMASK_ENV\b)|\bfeupdateenv\s*\("
    r"|\b_MM_SET_EXCEPTION_MASK\s*\((?![^;]*~)"
)
_OTHER_WAY = re.compile(r"\A\W*:|\belse\b|\breturn\b")  # between the two: not both of them run
_LOADED = re.compile(r"\bconstructor\b")
_FLAG = re.compile(r"\b(?:FE|_MM_MASK)_([A-Z_]+)\b")
_ALL = ("ALL_EXCEPT", "NOMASK_ENV", "MASK")
# By the code of the signal: names of fenv.h and of xmmintrin.h.
_FLAGS = {
    3: ("DIVBYZERO", "DIV_ZERO"),
    4: ("OVERFLOW",),
    5: ("UNDERFLOW",),
    6: ("INEXACT",),
    7: ("INVALID",),
}
_GIVES = {3: "infinity", 4: "infinity", 5: "0 or a subnormal number", 6: "a rounded number", 7: "NaN"}
_IMPORTED = "feenableexcept"
_PYTHON = re.compile(r"^(?:libpython3|python)")
_QUOTED, _MOST_LINES, _MOST_CALLERS, _DEEPEST = 60, 2, 8, 4


class FloatTraps(msgspec.Struct, frozen=True):
    """`text`: `feenableexcept(FE_INVALID)`, at `place` in `function`; `calls`: the lines that call that, each as text.

    `entry`: the function that they call, which is `function` or calls it. `loaded`: it runs as its library is loaded.
    `library`: where the program has only one. `own`: the operation is one of the program's native code.
    """

    function: str
    place: str
    text: str
    entry: str
    calls: tuple[LineWords, ...]
    code: int
    own: bool
    loaded: bool = False
    library: str | None = None
    computes: str | None = None
    """The line of Python that a library runs there, which is the operation itself: `NAN = INF-INF`, with its place."""

    @property
    def words(self) -> str:
        """What the headline ends with."""
        if self.loaded:
            library = self.library or "its library"
            return f"most likely since {self.function}() enabled them as {library} was loaded ({self.place})"
        of = f" of {self.library}" if self.library is not None else ""
        does = "which enables them" if self.entry == self.function else f"which enables them by {self.function}()"
        return f"most likely since {list_words(self._lines)} called {self.entry}(){of}, {does} ({self.place})"

    @property
    def _lines(self) -> list[str]:
        return [item.partition(" (`")[0] for item in self.calls]

    @property
    def evidence(self) -> Evidence:
        """What the native source says."""
        return Evidence("source-line", f"{self.place} enables floating-point traps: `{self.text}`", text=self.text)

    @property
    def advice(self) -> str:
        """Where to switch them off again."""
        off = f"Leave the traps off where {self.entry}() returns to Python: "
        how = "fedisableexcept(), or feholdexcept() and fesetenv() around its own computation"
        if self.loaded:
            return f"Remove `{self.text}` ({self.place}), or enable traps only around the library's own computation."
        called = f"; or do not ask for them at {list_words(self.calls)}" if self.calls else ""
        return f"{off}{how}{called}. {self._why}"

    @property
    def _why(self) -> str:
        gives = _GIVES.get(self.code, "NaN or infinity")
        if self.own:
            return f"Without traps this operation gives {gives} and goes on; where it must not, look at its operands."
        here = f" ({self.computes})" if self.computes is not None else ""
        return (
            f"They hold for the whole thread; without them this operation{here} gives {gives} and no signal, which "
            "torch, NumPy and Python rely on."
        )


class _Enabler(msgspec.Struct, frozen=True):
    function: str
    place: str
    text: str
    names: frozenset[str]
    """Of the function and of those that call it."""
    undoers: frozenset[str]
    loaded: bool


class CallsEnabler(msgspec.Struct, frozen=True):
    """A library of the program without source, the only one that calls `function`."""

    library: str
    function: str

    @property
    def words(self) -> str:
        """What the headline ends with."""
        return f"most likely by {self.library}, which calls {self.function}()"

    @property
    def advice(self) -> str:
        """Where to look."""
        return (
            f"Find where {self.library} calls {self.function}() (in gdb: `break {self.function}`), and leave the traps "
            "off where it returns to Python: fedisableexcept(), or feholdexcept() and fesetenv() around its own "
            "computation. They hold for the whole thread, whatever runs there; torch does not enable them."
        )

    @property
    def evidence(self) -> Evidence:
        """What its table of symbols says."""
        return Evidence("source-line", f"{self.library} calls {self.function}(), which enables floating-point traps")


def float_traps(view: ProcessView) -> FloatTraps | CallsEnabler | None:
    """Of a trapped operation of floats; None where no enabler is seen, or several."""
    code = view.crash.code if view.crash is not None else 0
    libraries, folders = libraries_and_folders(view)
    if code not in _FLAGS or not libraries:
        return None
    frames = program_frames(view)
    files = program_files(view.process.snapshot, frames)
    native = native_calls(files)
    for level in _levels(view, libraries, folders):
        found = [item for source in level for item in _enablers(view, source, code)]
        if not found and any(_ENABLES.search(text) for _, lines in level for text in lines):
            return None  # of another exception, or undone
        if not found:
            continue
        called = [(item, calls) for item in found if (calls := [*_calls(item, files, native, frames)]) or item.loaded]
        return _of(view, *called[0], code, libraries) if len(called) == 1 else None
    callers = _importers(view, libraries)
    return CallsEnabler(image_name(callers[0]), _IMPORTED) if len(callers) == 1 else None


def _importers(view: ProcessView, libraries: Sequence[str]) -> list[str]:
    """Those of them that call feenableexcept() of the C library, as far as they are still here."""
    images = view.crash.images if view.crash is not None else ()
    return [item.path for item in images if item.path in libraries and imported(item.path, item.build_id, {_IMPORTED})]


def _levels(view: ProcessView, libraries: list[str], folders: list[str]) -> Iterator[list[Source]]:
    yield from levels_of(view, libraries, folders)
    if not all(map(os.path.exists, libraries)):
        yield sources_before(view.process.snapshot.created_wall_ns, folders)


# ---- C


def _enablers(view: ProcessView, source: Source, code: int) -> Iterator[_Enabler]:
    path, lines = source
    shown = "\n".join(lines)
    text = blanked(_HIDDEN, shown)
    met = set[str]()
    for match in _ENABLES.finditer(text):
        function, end = function_around(text, match.start()), closing(text, text.find("(", match.start()))
        if function is None or end is None or function.name in met:
            continue
        body_end = closing(text, function.body) or len(text)
        if not _traps(text[match.start() : end], text[function.body : match.start()], code):
            continue
        running = any(function.name in name for name in functions(view))
        if _is_undone(text[end:body_end]) and not running:
            continue
        met.add(function.name)
        head = text[max(text.rfind("}", 0, function.body), text.rfind(";", 0, function.body)) + 1 : function.body]
        whole = shown[match.start() : end + 1]
        yield _Enabler(
            function.name,
            f"{os.path.basename(path)}:{text.count(chr(10), 0, match.start()) + 1}",
            shortened(" ".join(whole.split()), _QUOTED),
            frozenset(_callers(text, function.name)),
            frozenset(_undoers(text)),
            _LOADED.search(head) is not None,
        )


def _traps(call: str, before: str, code: int) -> bool:
    """Whether the exception is among those that it names; where it names none, it may be."""
    flags = set(_FLAG.findall(call)) or set(_FLAG.findall(before))
    return not flags or bool(flags & {*_FLAGS[code], *_ALL})


def _is_undone(rest: str) -> bool:
    """Whether the traps are switched off again further down, on each way there."""
    off = _DISABLES.search(rest)
    return off is not None and _OTHER_WAY.search(rest, 0, off.start()) is None


def _callers(text: str, name: str) -> set[str]:
    """The function itself, and those of the file that call it, also through others."""
    found, waiting = {name}, [name]
    while waiting and len(found) < _MOST_CALLERS:
        for place, _ in calls_of(text, waiting.pop()):
            around = function_around(text, place)
            if around is not None and around.name not in found:
                found.add(around.name)
                waiting.append(around.name)
    return found


def _undoers(text: str) -> Iterator[str]:
    """Functions that only switch traps off."""
    for match in _DISABLES.finditer(text):
        function = function_around(text, match.start())
        if function is not None and len(defined(text, function.name)) == 1:
            body = text[function.body : closing(text, function.body) or len(text)]
            if _ENABLES.search(body) is None:
                yield function.name


# ---- Python


def _calls(
    item: _Enabler, files: Mapping[str, ast.Module], native: NativeCalls, frames: Sequence[PythonFrame]
) -> Iterator[tuple[LineWords, str]]:
    """Lines that call it and may have run, each with the function that they call."""
    here = frames[0].file if frames else None
    for file, tree in files.items():
        found = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and native.has(node)]
        off = [node for node in found if called_name(node) in item.undoers or _passes_zeros(node, item.names)]
        each = {node.lineno: node for node in found if called_name(node) in item.names and node not in off}
        for line, node in sorted(each.items()):
            scope = scope_of(tree, line)
            undone = [part.lineno for part in off if part.lineno > line and scope_of(tree, part.lineno) is scope]
            running = _running(file, tree, scope, frames)
            between = not undone or any(line <= at <= max(undone) for at in running)
            if between and _may_have_run(files, frames, file, tree, line):
                text = shortened(ast.unparse(node), _QUOTED)
                yield line_in(file, line, here).quoted(text), called_name(node) or ""


def _passes_zeros(node: ast.Call, names: Container[str | None]) -> bool:
    given = passed_values(node)
    zeros = all(isinstance(item, ast.Constant) and not item.value for item in given)
    return called_name(node) in names and bool(given) and zeros


def _running(file: str, tree: ast.Module, scope: Scope, frames: Sequence[PythonFrame]) -> list[int]:
    """The lines at which a function is on the stack."""
    return [item.line for item in frames if item.file == file and item.line and scope_of(tree, item.line) is scope]


def _may_have_run(
    files: Mapping[str, ast.Module],
    frames: Sequence[PythonFrame],
    file: str,
    tree: ast.Module,
    line: int,
    depth: int = _DEEPEST,
) -> bool:
    """Not where its function, or all that call that, are still at a line before it, and no loop has both."""
    scope = scope_of(tree, line)
    running = _running(file, tree, scope, frames)
    if running:
        loops = [item for item in loops_of(scope) if spans(item, line)]
        return min(running) >= line or any(spans(loop, at) for loop in loops for at in running)
    if isinstance(scope, (ast.Module, ast.Lambda)) or depth == 0:
        return True
    owner = class_around(tree, scope)
    name = owner.name if owner is not None and scope.name == "__init__" else scope.name
    callers = [
        (path, other, node.lineno)
        for path, other in files.items()
        for node in ast.walk(other)
        if isinstance(node, ast.Call) and called_name(node) == name
    ]
    return not callers or any(_may_have_run(files, frames, path, other, at, depth - 1) for path, other, at in callers)


def _of(
    view: ProcessView, item: _Enabler, calls: Sequence[tuple[LineWords, str]], code: int, libraries: Sequence[str]
) -> FloatTraps | None:
    entries = {name for _, name in calls}
    if len(entries) > 1 or len(calls) > _MOST_LINES:
        return None
    innermost = next(iter(own_frames(view)), None)
    callers = _importers(view, libraries) or libraries
    return FloatTraps(
        item.function,
        item.place,
        item.text,
        entries.pop() if entries else item.function,
        tuple(line for line, _ in calls),
        code,
        innermost is not None and is_own_path(innermost.image) and is_of_own_image(innermost),
        item.loaded and not calls,
        image_name(callers[0]) if len(callers) == 1 else None,
        _computes(view),
    )


def _computes(view: ProcessView) -> str | None:
    """The line of a library that the interpreter itself runs."""
    frame = next(iter(view.crash.python_stack if view.crash is not None else ()), None)
    innermost = next(iter(own_frames(view)), None)
    if frame is None or innermost is None or _PYTHON.match(image_name(innermost.image)) is None:
        return None
    text = line_text(view.process.snapshot, python_frame(frame)) if is_library_file(frame.file) else None
    return f"`{shortened(text, _QUOTED)}` at {short_file(frame.file)}:{frame.line}" if text else None
