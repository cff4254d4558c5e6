"""CPython's own functions that found no thread state: native code called them without the GIL.

The state of the running thread is null while it does not hold the GIL. What reads it first depends on the release, from
3.9 to 3.14: the frame of a Python function is pushed on its stack, a call counts its depth in it, an error and the
interpreter's memory are found through it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.address_space.regions import NEAR_NULL_BYTES
from pytracer.analyze.evidence.native.native_stack import image_name, is_at_exit, own_frames
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

_INTERPRETER = Pattern(r"^(libpython3|python\d?(\.\d+)?t?d?$)")
_FOREIGN_CALLS = Pattern(r"^(_ctypes|libffi|_cffi_backend)\b")
# Given no object whose fields they read before the state, or only one that the caller has looked into.
_ONLY_STATE = Pattern(
    r"^(_?PyErr_\w+|_?PyThreadState_\w+|_?PyEval_(?!EvalFrame)\w+|_PyEvalFramePushAndInit\w*|_PyFrame_(New|Push)\w*"
    r"|function_code_fastcall|_?PyObject_GC_(New|Malloc|Alloc|Del|Link|Resize)\w*|gc_alloc|_Py_CheckFunctionResult"
    r"|_Py_(Enter|Leave|Check|Make)Rec\w*|_?PyObject_(Malloc|Calloc|Realloc)|pymalloc_alloc|PyMem_(Malloc|Calloc)"
    r"|Py(Tuple|List|Dict)_New|PyFloat_FromDouble|PyLong_From(Long|LongLong|Unsigned\w+|S?size_t|Double)"
    r"|PyUnicode_New|new_dict|new_keys_object|_PyInterpreterState_GET|_PyThreadState_GET)$",
)
# Also read the type of an object that they are given.
_CALLS = Pattern(
    r"^(_?PyObject_(Call|Vectorcall|FastCall|MakeTpCall)\w*|object_vacall|_PyFunction_Vectorcall|cfunction_\w+"
    r"|_Py_Dealloc)$"
)
_OF_ANY = frozenset({0, 8, 0xA8})  # an object's reference count and type, and a type's flags
_OF_CALLED = _OF_ANY | {16, 24, 0x30, 0x38, 0x80}  # what objects have next, and tp_dealloc, _vectorcall_offset, _call
_EVALUATES = Pattern(r"^_?PyEval_EvalFrame")
_MOST_FRAMES = 24


class StatelessCall(msgspec.Struct, frozen=True):
    """`way`: from the native frame that called into Python's C API out to Python code; `called`: the entry of it.

    `by_ctypes`: ctypes had called that frame's library, and released the GIL for it.
    """

    called: str | None
    way: tuple[NativeFrame, ...]
    by_ctypes: bool = False


def stateless_call(view: ProcessView) -> StatelessCall | None:
    """None unless native code, itself called by Python, called the C API, and that used a null thread state.

    cffi, which releases the GIL itself, is not meant, nor ctypes that calls the interpreter, nor one that has ended.
    """
    frames, crash = own_frames(view)[:_MOST_FRAMES], view.crash
    if crash is None or not crash.python_matched or not crash.python_stack or is_at_exit(view):
        return None
    entered = next((at for at, item in enumerate(frames) if not _is_of_python(item)), 0)
    inner = frames[:entered]
    if not inner or any(_EVALUATES.match(item.function or "") for item in inner) or not _reads_state(view, inner[0]):
        return None
    way, by_ctypes = _way(frames[entered:])
    return StatelessCall(inner[-1].function, way, by_ctypes) if way else None


def calling_frames(view: ProcessView) -> tuple[NativeFrame, ...]:
    """Of a thread without Python code: those around the innermost frames, which are of the interpreter."""
    frames = own_frames(view)[:_MOST_FRAMES]
    entered = next((at for at, item in enumerate(frames) if not _is_of_python(item)), len(frames))
    return tuple(frames[entered:])


def _way(frames: Sequence[NativeFrame]) -> tuple[tuple[NativeFrame, ...], bool]:
    """Out to the interpreter or to ctypes, and whether it is that; nothing where cffi lies between."""
    end = next((at for at, item in enumerate(frames) if _is_of_python(item)), 0)
    foreign = [at for at, item in enumerate(frames[:end]) if _FOREIGN_CALLS.match(image_name(item.image))]
    if not foreign:
        return tuple(frames[:end]), False
    ctypes = any(image_name(item.image).startswith("_ctypes") for item in frames[foreign[0] : end])
    return (tuple(frames[: foreign[0]]), True) if ctypes else ((), False)


def _reads_state(view: ProcessView, frame: NativeFrame) -> bool:
    """Whether the access is one of a field of the thread state, by the function and by the place of the field."""
    place, instruction = view.place, view.instruction
    if place is None or instruction is None or instruction.base_value != 0 or instruction.index is not None:
        return False
    if not 0 < place.addr < NEAR_NULL_BYTES:
        return False
    names = [(item.function or "").partition(".")[0] for item in (frame, *(frame.lines or ()))]
    if any(_ONLY_STATE.match(name) for name in names):
        return place.addr not in _OF_ANY
    return any(_CALLS.match(name) for name in names) and place.addr not in _OF_CALLED


def _is_of_python(frame: NativeFrame) -> bool:
    return _INTERPRETER.match(image_name(frame.image)) is not None
