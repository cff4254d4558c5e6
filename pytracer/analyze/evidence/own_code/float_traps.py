"""Who switched the floating-point traps on: a function of the program's own C, and the line that calls it.

A trap stays on for the whole thread, so that any code of it dies of what is NaN or infinity otherwise: torch, NumPy,
Python itself. By the source: the only function that enables them, of the exception that was trapped, and whose call is
seen. A call that is undone before the function ends, that comes only behind the line of the crash, or that passes
zeros, is none. Where there is no source, the only library of the program that imports feenableexcept() is named.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Container, Iterator, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import function_words, list_words, shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.own_code.native_calls import NativeCalls, native_calls
from pytracer.analyze.evidence.own_code.own_libraries import is_own_path
from pytracer.analyze.evidence.own_code.own_place import own_place
from pytracer.analyze.evidence.own_code.own_signature import levels_of, libraries_and_folders
from pytracer.analyze.evidence.own_code.reached_lines import ReachedLines
from pytracer.analyze.evidence.own_code.source_files import Source, sources_before
from pytracer.analyze.evidence.own_code.trap_enablers import ENABLES, FLAGS, Enabler, enablers
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.naming import LineWords, line_in, short_file
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.decode.symbols.image_symbols import imported
from pytracer.report.job import Evidence

_GIVES = {3: "infinity", 4: "infinity", 5: "0 or a subnormal number", 6: "a rounded number", 7: "NaN"}
_IMPORTED = "feenableexcept"
_PYTHON = Pattern(r"^(?:libpython3|python)")
_BY_IMPORT = frozenset({"feenableexcept", "fesetenv"})
_OF_EACH = frozenset({"__cxa_finalize", "__gmon_start__", "_ITM_deregisterTMCloneTable"})  # crtbegin.o asks for them
_QUOTED, _QUOTED_STATEMENT, _MOST_LINES = 60, 90, 2


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
    within: str | None = None
    """Of an operation of the very call that enabled them: the line of C that it is, with its place."""

    @property
    def words(self) -> str:
        """What the headline ends with."""
        if self.loaded:
            library = self.library or "its library"
            return f"most likely since {self.function}() enabled them as {library} was loaded ({self.place})"
        of = f" of {self.library}" if self.library is not None else ""
        does = "which enables them" if self.entry == self.function else f"which enables them by {self.function}()"
        if self.within is not None:
            return f"since {self.entry}(){of}, which is still running, enabled them ({self.place})"
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
        if self.within is not None:
            return self._operands(self.within)
        off = f"Leave the traps off where {self.entry}() returns to Python: "
        how = "fedisableexcept(), or feholdexcept() and fesetenv() around its own computation"
        if self.loaded:
            return f"Remove `{self.text}` ({self.place}), or enable traps only around the library's own computation."
        called = f"; or do not ask for them at {list_words(self.calls)}" if self.calls else ""
        return f"{off}{how}{called}. {self._why}"

    def _operands(self, within: str) -> str:
        """Who enables traps for its own computation asks for this stop."""
        called = f" in what {list_words(self._lines)} passes, and" if self.calls else ""
        return (
            f"Look at the operands of {within},{called} in what is computed before it: the traps of "
            f"{self.entry}() stop it as the result is {_GIVES.get(self.code, 'NaN or infinity')}. Refuse or replace "
            "such values before."
        )

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


class ImportsEnabler(msgspec.Struct, frozen=True):
    """A library of the program without source, the only one that imports `function`."""

    library: str
    function: str

    @property
    def words(self) -> str:
        """What the headline ends with."""
        return f"most likely by {self.library}, which imports {self.function}()"

    @property
    def advice(self) -> str:
        """Where to look."""
        return (
            f"Find whether {self.library} calls {self.function}() (in gdb: `break {self.function}`), and leave the "
            "traps off where it returns to Python: fedisableexcept(), or feholdexcept() and fesetenv() around its own "
            "computation. They hold for the whole thread, whatever runs there; torch does not enable them."
        )

    @property
    def evidence(self) -> Evidence:
        """What its table of symbols says."""
        sentence = f"{self.library} imports {self.function}(), which enables floating-point traps"
        return Evidence("source-line", sentence, function=self.function)


def float_traps(view: ProcessView) -> FloatTraps | ImportsEnabler | None:
    """Of a trapped operation of floats; None where no enabler is seen, or several."""
    code = view.crash.code if view.crash is not None else 0
    libraries, folders = libraries_and_folders(view)
    if code not in FLAGS or not libraries:
        return None
    frames = program_frames(view)
    reached = ReachedLines(program_files(view.process.snapshot, frames), frames)
    native, running = native_calls(reached.files), _own_running(view)
    for level in _levels(view, libraries, folders):
        found = [item for source in level for item in enablers(source, code, running)]
        if not found and any(ENABLES.search(text) for _, lines in level for text in lines):
            return None  # of another exception, or undone
        if not found:
            continue
        found = [item for item in found if _is_built_in(view, item, libraries)]
        each = [(item, [*_calls(item, reached, native, libraries)]) for item in found]
        called = [(item, calls) for item, calls in each if calls or item.loaded]
        return _of(view, *called[0], code, libraries) if len(called) == 1 else None
    callers = _importers(view, libraries)
    return ImportsEnabler(image_name(callers[0]), _IMPORTED) if len(callers) == 1 else None


def _own_running(view: ProcessView) -> frozenset[str]:
    """The functions of the program's own libraries on the native stack, by their last names."""
    own = [frame for frame in own_frames(view) if is_own_path(frame.image) and is_of_own_image(frame)]
    names = [name for frame in own for name in (frame.function, *(line.function for line in frame.lines or ())) if name]
    words = (re.findall(r"~?\w+", function_words(name).partition(".")[0]) for name in names)
    return frozenset(found[-1] for found in words if found)


def _is_built_in(view: ProcessView, item: Enabler, libraries: Sequence[str]) -> bool:
    """Not where all libraries can be read and none imports what it calls: as what an #ifdef left out."""
    if item.call not in _BY_IMPORT or view.crash is None:
        return True
    images = {image.path: image for image in view.crash.images}
    taken = [imported(path, images[path].build_id, {item.call, *_OF_EACH}) for path in libraries]
    return not all(taken) or any(item.call in names for names in taken)


def _importers(view: ProcessView, libraries: Sequence[str]) -> list[str]:
    """Those of them that import feenableexcept() of the C library, as far as they are still here."""
    images = view.crash.images if view.crash is not None else ()
    return [item.path for item in images if item.path in libraries and imported(item.path, item.build_id, {_IMPORTED})]


def _levels(view: ProcessView, libraries: list[str], folders: list[str]) -> Iterator[list[Source]]:
    yield from levels_of(view, libraries, folders)
    if not all(map(os.path.exists, libraries)):
        yield sources_before(view.process.snapshot.created_wall_ns, folders)


def _calls(
    item: Enabler, reached: ReachedLines, native: NativeCalls, libraries: Sequence[str]
) -> Iterator[tuple[LineWords, str]]:
    """Lines that call it and may have run, each with the function that they call."""
    here = reached.frames[0].file if reached.frames else None
    stems = {image_name(path).partition(".")[0] for path in libraries}
    for file, tree in reached.files.items():
        others = _Imports.of(tree, stems)
        found = [node for node in nodes_of(tree) if isinstance(node, ast.Call) and native.has(node)]
        found = [node for node in found if native.is_of_library(node) or not others.have(node)]
        off = [node for node in found if called_name(node) in item.undoers or _passes_zeros(node, item.names)]
        each = {node.lineno: node for node in found if called_name(node) in item.names and node not in off}
        for line, node in sorted(each.items()):
            scope = scope_of(tree, line)
            undone = [part.lineno for part in off if part.lineno > line and scope_of(tree, part.lineno) is scope]
            between = not undone or any(line <= at <= max(undone) for at in reached.running(scope))
            if between and reached.may_have_run(file, line):
                text = shortened(ast.unparse(node), _QUOTED)
                yield line_in(file, line, here).quoted(text), called_name(node) or ""


class _Imports(msgspec.Struct, frozen=True):
    """The names that a file imports, but for modules that a library of the program is."""

    names: frozenset[str]

    @classmethod
    def of(cls, tree: ast.Module, stems: set[str]) -> _Imports:
        """Those of a file; `stems`: the names of the libraries without suffix."""
        found = set[str]()
        for node in nodes_of(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
                for part in node.names:
                    if stems.isdisjoint(name.rpartition(".")[2] for name in (module, part.name)):
                        found.add(part.asname or part.name.partition(".")[0])
        return cls(frozenset(found))

    def have(self, node: ast.Call) -> bool:
        """Whether it calls a function of what another module has: `wandb.init()`; torch.ops may have any."""
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        text = ast.unparse(owner) if owner is not None else ""
        return text.partition(".")[0] in self.names and not text.startswith("torch.ops.")


def _passes_zeros(node: ast.Call, names: Container[str | None]) -> bool:
    given = passed_values(node)
    zeros = all(isinstance(item, ast.Constant) and not item.value for item in given)
    return called_name(node) in names and bool(given) and zeros


def _of(
    view: ProcessView, item: Enabler, calls: Sequence[tuple[LineWords, str]], code: int, libraries: Sequence[str]
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
        next(iter(entries), item.function),
        tuple(line for line, _ in calls),
        code,
        innermost is not None and is_own_path(innermost.image) and is_of_own_image(innermost),
        item.loaded and not calls,
        image_name(callers[0]) if len(callers) == 1 else None,
        _computes(view),
        _within(view, {item.function, *entries}),
    )


def _within(view: ProcessView, enabling: set[str]) -> str | None:
    """The line of C, where the innermost function is one of those that enabled the traps, or they called it."""
    place = own_place(view)
    if place is None or enabling.isdisjoint(_own_running(view)):
        return None
    innermost = next(iter(own_frames(view)), None)
    if innermost is None or not is_own_path(innermost.image):
        return None
    return f"`{shortened(place.text.rstrip(';'), _QUOTED_STATEMENT)}` ({place.place})"


def _computes(view: ProcessView) -> str | None:
    """The line of a library that the interpreter itself runs."""
    frame = next(iter(view.crash.python_stack if view.crash is not None else ()), None)
    innermost = next(iter(own_frames(view)), None)
    if frame is None or innermost is None or _PYTHON.match(image_name(innermost.image)) is None:
        return None
    text = line_text(view.process.snapshot, python_frame(frame)) if is_library_file(frame.file) else None
    return f"`{shortened(text, _QUOTED)}` at {short_file(frame.file)}:{frame.line}" if text else None
