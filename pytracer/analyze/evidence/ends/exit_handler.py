"""A function that C ran at exit, and that called Python, or was a callback of Python, when the interpreter had ended.

C runs the functions that atexit() was given behind Py_FinalizeEx(). A callback of ctypes or cffi then finds no
interpreter, however well it is held.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.fault_function import is_own_frame
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.own_code.dropped_callback import callback_types
from pytracer.analyze.evidence.own_code.native_calls import native_calls
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.own_libraries import files_of_program
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import LineWords, short_file
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

_QUOTED = 44
_STATES = ("PyGILState_Ensure", "PyThreadState_New", "PyEval_AcquireThread", "PyEval_RestoreThread")
_RUNS = ("__run_exit_handlers", "__run_on_exit", "exit")
_CALLBACKS = Pattern(r"^(_ctypes|_cffi_backend)\b")
_OF_CALLBACK = Pattern(r"^(_ctypes|_cffi_backend|libffi)\b")
_GIVES = ("atexit", "on_exit")
_RUNNING = ("Py_FinalizeEx", "_PyEval_EvalFrameDefault")  # the interpreter is there


class ExitHandler(msgspec.Struct, frozen=True):
    """`function` (`slog_flush`) of `library`, at `place` of its source when it called Python.

    `registered`: the line that gave it to C, with its text. `callback`: what it called, where that is one line.
    `own_call`: how Python calls the function itself, where it can.
    """

    function: str
    library: str
    place: str | None
    registered: str | None
    callback: tuple[str, LineWords] | None
    own_call: str | None

    @property
    def summary(self) -> str:
        """Behind the subject of the headline."""
        at = f" ({self.place})" if self.place is not None else ""
        registered = f" (registered at {self.registered})" if self.registered is not None else ""
        called = (
            f"the callback `{self.callback[0]}` ({self.callback[1]})" if self.callback is not None else "a callback"
        )
        return (
            f"died at its exit: {self.function}(){at} of {self.library}, which C runs when the interpreter has "
            f"ended{registered}, called {called} of Python"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        run = f"Run `{self.own_call}()`"
        if self.own_call is None:
            run = f"Let {self.library} export what {self.function}() does as a function, and call that"
        register = f" (`atexit.register({self.own_call})`)" if self.own_call is not None else ""
        out = (
            f"take out {self.registered}"
            if self.registered is not None
            else f"do not give {self.function}() to atexit()"
        )
        return (
            f"{run} while the interpreter is there: at the end of the program, or by Python's atexit{register}, "
            f"which runs before it ends. And {out}, or let {self.function}() call no callback any more then: holding "
            f"the callback does not help. What {self.function}() had still to hand over at this exit is lost; what the "
            "program had saved before is not."
        )


class GivenToExit(msgspec.Struct, frozen=True):
    """`text` (`libc.on_exit(report, None)`) at `line` gave a callback itself to C, to be run at exit."""

    text: str
    line: LineWords

    @property
    def summary(self) -> str:
        """Behind the subject of the headline."""
        return (
            f"died at its exit: C ran the callback of Python that `{self.text}` ({self.line}) had given to it when the "
            "interpreter had ended"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        return (
            f"Use Python's atexit.register() at {self.line} instead of `{self.text}`: it runs before the interpreter "
            "ends, and what it is given needs no ctypes. C's atexit() and on_exit() run behind that: holding the "
            "callback does not help. What it was to do at this exit was not done; what the program had saved before is "
            "not concerned."
        )


def exit_handler(view: ProcessView) -> ExitHandler | GivenToExit | None:
    """None unless C was running such a function, and that had called, or was, a callback of ctypes or cffi."""
    frames = own_frames(view)
    names = [frame.function or "" for frame in frames]
    if not any(name in _STATES for name in names[:3]) or any(name in _RUNNING for name in names):
        return None
    run = next((number for number, name in enumerate(names) if name in _RUNS), None)
    handler = frames[run - 1] if run else None
    inside = any(_CALLBACKS.match(image_name(frame.image)) for frame in frames[:run])
    if handler is not None and inside and _OF_CALLBACK.match(image_name(handler.image)):
        return _given(view)
    if handler is None or handler.function is None or not inside or not is_own_frame(handler):
        return None
    function = handler.function.partition("(")[0]
    line = next((item for item in handler.lines or () if item.file and item.line), None)
    place = f"{short_file(line.file)}:{line.line}" if line is not None else None
    registered, is_static = _registered(handler, function)
    callback, library = _of_python(view)
    own = f"{library}.{function}" if library is not None and not is_static else None
    return ExitHandler(function, image_name(handler.image), place, registered, callback, own)


def _given(view: ProcessView) -> GivenToExit | None:
    """The only line of the program that calls C's atexit() or on_exit()."""
    files = files_of_program(view)
    found = [
        (file, node)
        for file, tree in files.items()
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called_name(node) in _GIVES
    ]
    if len(found) != 1:
        return None
    file, call = found[0]
    return GivenToExit(shortened(ast.unparse(call), _QUOTED), place_of(view, file, call.lineno))


def _registered(frame: NativeFrame, function: str) -> tuple[str | None, bool]:
    """`` slog.c:21: `atexit(slog_flush)` ``, and whether other files cannot call the function."""
    source = own_source(frame)
    if source is None:
        return None, False
    given = re.compile(rf"\b(?:std::)?(?:atexit|on_exit)\s*\(\s*&?{re.escape(function)}\b[^;]*")
    static = re.compile(rf"^\s*static\b.*\b{re.escape(function)}\s*\(")
    lines = source[1]
    found = [(number, match[0]) for number, text in enumerate(lines, 1) if (match := given.search(text)) is not None]
    words = None
    if len(found) == 1:
        words = f"{short_file(source[0].file or '')}:{found[0][0]}: `{shortened(found[0][1], _QUOTED)}`"
    return words, any(static.match(text) for text in lines)


def _of_python(view: ProcessView) -> tuple[tuple[str, LineWords] | None, str | None]:
    """The only callback that the program makes, and the variable of the library that is given it."""
    files = files_of_program(view)
    types = {name for tree in files.values() for name in callback_types(tree)}
    made = [
        (file, node)
        for file, tree in files.items()
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and node.args and last_name(node.func) in types
    ]
    if len(made) != 1:
        return None, None
    file, node = made[0]
    text = shortened(ast.unparse(node), _QUOTED)
    return (text, place_of(view, file, node.lineno)), _library(files)


def _library(files: Mapping[str, ast.Module]) -> str | None:
    """`self.lib`: what the functions of the only library are called by, where that is one expression."""
    native = native_calls(files)
    calls = [node for tree in files.values() for node in nodes_of(tree) if native.is_of_library(node)]
    owners = {
        ast.unparse(node.func.value)
        for node in calls
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    return next(iter(owners)) if len(owners) == 1 else None
