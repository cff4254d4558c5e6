"""C called a callback of ctypes or cffi whose owner had been freed: the fault is in what hands the call to Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytracer._patterns import Pattern
from pytracer._text import function_words
from pytracer.analyze.evidence.lifetime.variables import line_words, python_frames
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.own_code.dropped_callback import DroppedCallback, dropped_callbacks
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence, NativeFrame

_CLOSURES = ("ffi_closure_", "closure_fcn", "invoke_callback", "general_invoke_callback")
_HANDS_ON = Pattern(r"^(libffi|_ctypes|_cffi_backend|(lib)?python[\d.])")
_C_LIBRARY = ("libc.", "libc-")  # qsort(), and what the kernel calls signal handlers by
_MOST = 2


@dataclass(frozen=True)
class FreedCallback(Explanation):
    """`callbacks`: the objects that lines made and nothing holds. `caller`: `solver_fit()`, else `C`."""

    verdict_class = "use-after-free"
    names_source = True
    callbacks: tuple[DroppedCallback, ...]
    caller: str

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def access(self, view: ProcessView) -> str | None:
        """See Explanation."""
        modules = {item.module for item in self.callbacks}
        return (
            f"died because C called a callback of {' or '.join(sorted(modules))} that had likely been garbage-collected"
        )

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": {self.caller} called {' or '.join(item.words for item in self.callbacks)}"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation: the address is of what took the place of the callback."""
        return ()

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        said = " ".join(item.advice for item in self.callbacks)
        below = "" if _is_interpreter(own_frames(view)[0]) else f" It was called below {line_words(view)}."
        return f"{said}{below}"


def freed_callback(view: ProcessView) -> FreedCallback | None:
    """None where Python itself was on its way into C, or the callback's own Python code was running.

    But for where the interpreter itself failed in that code, of an object that only the callback held.
    """
    caller = _caller(view)
    if caller is None:
        return None
    names = [(frame.function or "").rpartition(".")[2] for frame in python_frames(view)]
    fails = names[:1] if _is_interpreter(own_frames(view)[0]) else []
    found = [
        item
        for item in dropped_callbacks(view)
        if item.function not in names or (item.alone and [item.function] == fails)
    ]
    return FreedCallback(tuple(found[:_MOST]), caller) if found else None


def _is_interpreter(frame: NativeFrame) -> bool:
    """Whether it is the loop that runs Python's code, and no function that this called."""
    return (frame.function or "").startswith("_PyEval_EvalFrame")


def _caller(view: ProcessView) -> str | None:
    """Who called libffi's closure, below which the fault is."""
    frames = own_frames(view)
    at = next((number for number, frame in enumerate(frames) if not _hands_on(frame)), 0)
    if not at and len(frames) > 1 and frames[0].image is None:  # what was freed is libffi's code for the callback
        at = 1
    elif not at or not _is_closure(frames[at - 1]):
        return None
    caller = frames[at]
    if not is_of_own_image(caller) and not image_name(caller.image).startswith(_C_LIBRARY):
        return None
    return f"{function_words(caller.function)}()" if caller.function else "C"


def _hands_on(frame: NativeFrame) -> bool:
    """Whether it is of libffi, of ctypes or cffi, or of the interpreter."""
    return _HANDS_ON.match(image_name(frame.image)) is not None


def _is_closure(frame: NativeFrame) -> bool:
    return image_name(frame.image).startswith("libffi") or (frame.function or "").startswith(_CLOSURES)
