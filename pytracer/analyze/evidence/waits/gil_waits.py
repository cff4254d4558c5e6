"""Native code of the program that waits for its threads while it holds the GIL, which these need to call Python.

A thread of native code that calls Python is known to Python from the moment on at which it asks for the GIL, and has no
Python frame until it gets it. Without a call that releases it, pybind11 and CPython keep the GIL while a native
function runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import function_words
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import image_name
from pytracer.analyze.evidence.own_code.c_text import closing, defined, function_around, statement_at, without_comments
from pytracer.analyze.evidence.own_code.own_steps import (
    RELEASES,
    StepText,
    open_blocks,
    own_steps,
    step_text,
)
from pytracer.analyze.naming import short_file
from pytracer.analyze.parts import python_frame
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Crash
from pytracer.report.job import NativeFrame

_SYSTEM = Pattern(r"(libc|libpthread|libstdc\+\+|libc\+\+)[.-]")
_WAITS = Pattern(  # glibc's
    r"_*(?:GI_+)?(?:pthread_cond_(?:timed|clock)?wait\w*|futex\w*|(?:new_)?sem_(?:timed|clock)?wait\w*"
    r"|pthread_(?:timed|clock)?join\w*)"
)
_INTERPRETER = Pattern(r"(libpython3|python\d?)")
# The program's own guards and macros may release it, or not: `ScopedGilRelease`, `RELEASE_GIL()`.
_MAY_RELEASE = Pattern(r"\b(?!gil_scoped_acquire\b|PyGILState_)\w*gil\w*", re.IGNORECASE)
_BINDING = "pybind11::cpp_function::"
_BOUND = ("pybind11::cpp_function::initialize<", "pybind11::detail::argument_loader<")  # whose arguments name a guard
_OTHER_BINDINGS = Pattern(r"nanobind::|boost::python|_wrap_|__pyx|Swig", re.IGNORECASE)
_NEAR = 8
_MOST_FRAMES = 40


class GilWait(msgspec.Struct, frozen=True):
    """The native function `function`, at `place`, called `waits`, which waits. `threads`: how many asked for the GIL.

    `library`: of the function, where its name is not known. `held`: whether nothing on the way from Python releases the
    GIL, by the names of the functions and by their source. `by_pybind`: whether pybind11 bound it, in the source at
    `bound`.
    """

    waits: str
    function: str | None
    place: str | None
    library: str
    threads: int
    held: bool
    by_pybind: bool
    bound: str | None

    @property
    def wait_words(self) -> str:
        """Before the line of Python."""
        place = f" ({self.place})" if self.place is not None else ""
        return f"waited in {self.waits}(), in {self.function or self.library}{place}, called"

    @property
    def words(self) -> str:
        """After the line."""
        who = f"{self.threads} native threads" if self.threads > 1 else "a native thread"
        if self.held:
            return (
                f"it held the GIL, as nothing on that way releases it, while {who} seemed to wait for it, to run Python"
            )
        return f"{who} had come to Python and ran none of it, as if waiting for the GIL, which this call may hold"

    @property
    def advice(self) -> str:
        """Let go of it around the wait."""
        name = f"{self.function.rpartition('::')[2]}()" if self.function is not None else f"the code of {self.library}"
        release = f"Release the GIL while {name} waits for threads that call Python"
        if not self.by_pybind:
            return (
                f"{release}: Py_BEGIN_ALLOW_THREADS and Py_END_ALLOW_THREADS around the wait. The threads take it for "
                "each call of Python (PyGILState_Ensure)."
            )
        at = f" ({self.bound})" if self.bound is not None else ""
        return (
            f"{release}: `py::call_guard<py::gil_scoped_release>()` at its binding{at}, or a `py::gil_scoped_release` "
            "around the part that starts the threads and waits for them. Where these call Python they take it "
            "(py::gil_scoped_acquire; a std::function made from Python does so itself)."
        )


def gil_wait(view: ProcessView, end: Crash | None, native: Sequence[NativeFrame]) -> GilWait | None:
    """None where no native code of the program waits, the GIL is released, or no thread has asked for it.

    Args:
        view: The process.
        end: What was recorded at its end.
        native: The stack of its main thread, innermost first.
    """
    threads = _at_the_door(view, end)
    way = [*_way(native)] if threads else []
    if not way or any(RELEASES.search(item.function or "") for item in way):
        return None
    frames = [python_frame(item) for _, found in (end.python_threads if end is not None else ()) for item in found]
    own = [*own_steps(way)]
    texts = [step_text(view, frames, item) for item in own]
    released = [_releases(text, item.name) for text, item in zip(texts, own, strict=True)]
    if any(released):
        return None
    kept = bool(own) and all(item is False for item in released) and _binding_keeps(way)
    inner = native[: native.index(way[0])]
    line = own[0].line if own else None
    return GilWait(
        waits=next(function_words(item.function) for item in reversed(inner) if item.function),
        function=own[0].name if own else None,
        place=f"{short_file(line.file)}:{line.line}" if line is not None else None,
        library=image_name(way[0].image),
        threads=threads,
        held=kept and view.process.snapshot.versions.cuda is None,  # threads of autograd, one per device, are known
        by_pybind=any(_BINDING in (item.function or "") for item in way),
        bound=_bound(texts[0], own[0].name) if own else None,
    )


def _at_the_door(view: ProcessView, end: Crash | None) -> int:
    """Threads that Python knows and that run none of it; torch's own, which have names, keep themselves known to it."""
    snapshot = view.process.snapshot
    names = {item.pthread: item.name for item in snapshot.threads}
    main = names.get(snapshot.main_pthread or 0)
    found = end.python_threads if end is not None else ()
    return sum(
        not frames and pthread != snapshot.main_pthread and names.get(pthread, main) == main
        for pthread, frames in found
    )


def _way(native: Sequence[NativeFrame]) -> Iterator[NativeFrame]:
    """The frames from the one that waits out to Python; none where a library that releases the GIL lies between."""
    place = next((at for at, item in enumerate(native[:_NEAR]) if not _SYSTEM.match(image_name(item.image))), 0)
    if not any(_WAITS.fullmatch(item.function or "") for item in native[:place]):
        return
    found: list[NativeFrame] = []
    for frame in native[place:_MOST_FRAMES]:
        if _INTERPRETER.match(image_name(frame.image)):
            yield from found
            return
        if not is_of_own_image(frame) and not _SYSTEM.match(image_name(frame.image)):
            return  # ctypes and torch's operators release it
        found.append(frame)


def _binding_keeps(way: Sequence[NativeFrame]) -> bool:
    """Whether what bound the function does not release the GIL: pybind11 has that in the names of its templates."""
    names = [item.function or "" for item in way]
    if any(_OTHER_BINDINGS.search(name) or _MAY_RELEASE.search(name) for name in names) or not all(names):
        return False
    of_pybind = any(_BINDING in name for name in names)
    return not of_pybind or any(bound in name for bound in _BOUND for name in names)


def _releases(source: StepText | None, name: str) -> bool | None:
    """Whether the function has released the GIL where it waits; None where that is not known."""
    if source is None:
        return None
    text = without_comments("\n".join(source.lines))
    if source.line is None:
        functions = defined(text, name.rpartition("::")[2])
        return _released_in(text[functions[0].body : closing(text, functions[0].body)]) if len(functions) == 1 else None
    place = statement_at(source.lines, source.line)
    around = function_around(text, place)
    return _released_in(open_blocks(text[around.body + 1 : place])) if around is not None else None


def _released_in(text: str) -> bool | None:
    """None where something of the program's own may release it, by its name."""
    if RELEASES.search(text):
        return True
    return None if _MAY_RELEASE.search(text) else False


def _bound(source: StepText | None, name: str) -> str | None:
    """`fleet.cpp:57`, the only line with `.def("evaluate", &Fleet::evaluate)`."""
    if source is None:
        return None
    binds = re.compile(rf'\bdef\w*\s*\(\s*"[^"]*"\s*,\s*&(?:\w+::)*{re.escape(name.rpartition("::")[2])}\b')
    found = [number for number, line in enumerate(source.lines, 1) if binds.search(line)]
    return f"{short_file(source.file)}:{found[0]}" if len(found) == 1 else None
