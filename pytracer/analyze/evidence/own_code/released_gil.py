"""Native code that calls Python where it has released the GIL: which function does so, and which line released it.

Py_BEGIN_ALLOW_THREADS is for code without Python. A callback that is only called where somebody has set one works
without it for as long as nobody has. ctypes.CDLL releases it for each call of a library, ctypes.PyDLL does not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import function_words
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.native.native_stack import image_name
from pytracer.analyze.evidence.native.null_thread_state import calling_frames, stateless_call
from pytracer.analyze.evidence.own_code.c_text import closing, defined, function_around, statement_at, without_texts
from pytracer.analyze.evidence.own_code.own_steps import (
    RELEASES,
    OwnStep,
    StepText,
    open_blocks,
    own_steps,
    step_text,
)
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import LineWords, line_in, short_file
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

_TAKES = Pattern(
    r"\b(?:gil_scoped_acquire|PyGILState_Ensure|Py_END_ALLOW_THREADS|PyEval_RestoreThread|PyEval_AcquireThread"
    r"|Py_BLOCK_THREADS)\b"
)
_CHANGES = Pattern(rf"(?P<releases>{RELEASES.pattern})|(?P<takes>{_TAKES.pattern})|(?P<gives>\bPyGILState_Release\b)")
_RELEASE = ("CDLL", "LoadLibrary", "load_library")
_OF_OPERATORS = "ops.load_library"  # of torch: ctypes calls nothing of it
_OF_BINDINGS = ("pybind11::", "std::", "void pybind11::", "nanobind::")
_BY_PYBIND = Pattern(r"\bpybind11\b|\bgil_scoped_\w+|\btorch/extension\.h\b")
_GUARDED = r"\bdef\w*\s*\([^;]*?&(?:\w+::)*{}\b[^;]*?call_guard\s*<[^>;]*(?P<at>gil_scoped_release)"


class Release(msgspec.Struct, frozen=True):
    """`text` (`Py_BEGIN_ALLOW_THREADS`) at `place` (`graph.c:38`), in `function`."""

    text: str
    place: str
    function: str


class CalledWithoutGil(msgspec.Struct, frozen=True):
    """`function`, at `place`, of `library` called `called`, an entry of Python's C API.

    `release`: where the GIL was released on the way. `of_python`: whether Python had called it; else it ran on a thread
    of native code. `by_pybind`: whether the source uses pybind11; None where there is none. `by_ctypes`: ctypes
    released it for the call of the library, which `loader` loads, if that is the only such line.
    """

    function: str | None
    place: str | None
    library: str
    called: str | None
    release: Release | None
    of_python: bool
    by_pybind: bool | None
    by_ctypes: bool = False
    loader: LineWords | None = None

    @property
    def summary(self) -> str:
        """Behind the headline."""
        where = f" ({self.place})" if self.place is not None else ""
        who = f"{self.function}(){where} of {self.library}" if self.function is not None else self.library
        called = f"called Python ({self.called})" if self.called is not None else "called Python"
        if not self.of_python:
            return f"{who} {called} on a thread that does not hold the GIL"
        if self.by_ctypes:
            return f"{who} {called} without the GIL, which ctypes.CDLL releases for each call"
        if self.release is None:
            return f"{who} {called} without holding the GIL, so that there is no thread state"
        within = f" in {self.release.function}()" if self.release.function != self.function else ""
        return (
            f"{who} {called} while the GIL was released, by {self.release.text} ({self.release.place}){within}, so "
            "that there is no thread state"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        at = f" at {self.place}" if self.place is not None else ""
        where = f"in {self.function}()" if self.function is not None else f"in the function of {self.library}"
        c, pybind = "PyGILState_Ensure() before it, PyGILState_Release() behind", "`py::gil_scoped_acquire gil;`"
        how = pybind if self.by_pybind else c if self.by_pybind is False else f"{c}; in pybind11 {pybind}"
        take = f"Take the GIL {where} around the call of Python{at}, and around all that it does with Python objects"
        if not self.of_python:
            return f"{take}: {how}."
        if self.by_ctypes:
            at = f" at {self.loader}" if self.loader is not None else ""
            return (
                f"Load {self.library} by ctypes.PyDLL in place of ctypes.CDLL{at}: it holds the GIL during each call, "
                f"and raises what the library has set as an error of Python. Or t{take[1:]}: {how}."
            )
        back = "Or call Python"
        if self.release is None:
            return f"{take}: {how}. {back} only where the GIL is held: what called that code had released it."
        return f"{take}: {how}. {back} outside of the part that {self.release.text} ({self.release.place}) begins."


def called_without_gil(view: ProcessView) -> CalledWithoutGil | None:
    """Of a null thread state, where the function's source takes the GIL nowhere before the call."""
    call = stateless_call(view)
    if call is None:
        return None
    found = _told(view, call.way, call.called, of_python=True)
    if found is None or not call.by_ctypes or found.release is not None:
        return found
    loaders = _loaders(view)
    by_ctypes = bool(loaders) and all(item.name in _RELEASE for item in loaders)
    loader = loaders[0].place if len(loaders) == 1 else None
    return msgspec.structs.replace(found, by_ctypes=by_ctypes, loader=loader)


class _Loader(msgspec.Struct, frozen=True):
    """A call of the program that loads a library by ctypes."""

    name: str
    place: LineWords


def _loaders(view: ProcessView) -> list[_Loader]:
    frames = program_frames(view)
    here = frames[0].file if frames else None
    return [
        _Loader("PyDLL" if "pydll" in ast.unparse(node.func) else name, line_in(file, node.lineno, here))
        for file, tree in program_files(view.process.snapshot, frames).items()
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and (name := called_name(node) or "") in (*_RELEASE, "PyDLL")
        if not ast.unparse(node.func).endswith(_OF_OPERATORS)
    ]


def caller_without_gil(view: ProcessView) -> CalledWithoutGil | None:
    """The same of a thread without Python code, which is known to have no thread state; None without a name."""
    found = _told(view, calling_frames(view)[:1], None, of_python=False)
    return found if found is not None and found.function is not None else None


def _told(
    view: ProcessView, way: Sequence[NativeFrame], called: str | None, *, of_python: bool
) -> CalledWithoutGil | None:
    if not way:
        return None
    frames = program_frames(view)
    own = [item for item in own_steps(way) if not item.name.startswith(_OF_BINDINGS)]
    texts = [step_text(view, frames, item) for item in own]
    release: Release | None = None
    for at, (step, text) in enumerate(zip(own, texts, strict=True)):
        change = _last_change(text, step, own[at - 1].name if at else called) if text is not None else None
        if change == "takes":
            return None  # it holds the GIL there, by its source
        if isinstance(change, Release):
            release = change
            break
    first = own[0] if own else None
    place = _place(first, texts[0], called) if first is not None else None
    known = [item for item in texts if item is not None]
    return CalledWithoutGil(
        function=function_words(first.name).partition("(")[0] if first is not None else None,
        place=place,
        library=image_name(way[0].image),
        called=called,
        release=release,
        of_python=of_python,
        by_pybind=any(_BY_PYBIND.search("\n".join(item.lines)) for item in known) if known else None,
    )


def _place(step: OwnStep, text: StepText | None, called: str | None) -> str | None:
    """Of the call, by the debug information, or by the only call of that name in the text."""
    if step.line is not None:
        return f"{short_file(step.line.file or '')}:{step.line.line}"
    if text is None or called is None:
        return None
    whole, body = _body(text, step.name)
    found = [match.start() for match in re.finditer(rf"\b{re.escape(called)}\s*\(", whole[slice(*body)])]
    return f"{short_file(text.file)}:{_line(whole, body[0] + found[0])}" if len(found) == 1 else None


def _last_change(text: StepText, step: OwnStep, inner: str | None) -> Release | str | None:
    """What the function did to the GIL last before it went on: a release, "takes", or None of nothing.

    A guard of pybind11 at the binding of the function counts as its first.
    """
    whole, (begin, end) = _body(text, step.name)
    if begin == end:
        return None
    if text.line is None:  # up to the only call of the function that was going on
        name = re.escape((inner or "").rpartition("::")[2])
        calls = [item.start() for item in re.finditer(rf"\b{name}\s*\(", whole[begin:end])] if name else []
        if len(calls) != 1:
            return None
        end = begin + calls[0]
    last = None
    for match in _CHANGES.finditer(open_blocks(whole[begin:end])):
        if match["releases"] is None or last is None or last["releases"] is None:  # else the guard's name: `nogil`
            last = match if match["gives"] is None else None  # as it was before: not known
    name = step.name.rpartition("::")[2]
    if last is None:
        last = re.search(_GUARDED.format(re.escape(name)), whole)
        return _release(text, whole, "call_guard<gil_scoped_release>", last.start("at"), name) if last else None
    if last["takes"] is not None:
        return "takes" if "END_ALLOW" not in last[0] and "Restore" not in last[0] else None
    return _release(text, whole, last[0], begin + last.start(), name)


def _release(text: StepText, whole: str, what: str, at: int, function: str) -> Release:
    return Release(what, f"{short_file(text.file)}:{_line(whole, at)}", function)


def _body(text: StepText, name: str) -> tuple[str, tuple[int, int]]:
    """The source without comments and quotes, and from where to where the function's body goes, or up to its line."""
    whole = without_texts("\n".join(text.lines))
    if text.line is None:
        functions = defined(whole, name.rpartition("::")[2])
        if len(functions) != 1:
            return whole, (0, 0)
        return whole, (functions[0].body + 1, closing(whole, functions[0].body) or len(whole))
    place = statement_at(text.lines, text.line)
    around = function_around(whole, place)
    return whole, ((around.body + 1, place) if around is not None else (0, 0))


def _line(whole: str, at: int) -> int:
    return whole.count("\n", 0, at) + 1
