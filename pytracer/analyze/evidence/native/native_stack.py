"""The crashed thread's native stack, as rules ask about it."""

from __future__ import annotations

from pytracer._text import function_words, hex_addr
from pytracer.analyze.view import ProcessView, is_handler_frame
from pytracer.decode.types.snapshot import Crash
from pytracer.report.job import NativeFrame

_AT_EXIT = ("__run_exit_handlers", "__run_on_exit", "_dl_fini", "__cxa_finalize")
_USE_THREAD_STATE = (
    "_PyErr_",
    "PyErr_",
    "_PyThreadState_",
    "PyThreadState_",
    "_PyEval_",
    "PyEval_",
    "_PyObject_GC_",
)


def is_at_exit(view: ProcessView) -> bool:
    """Whether exit() was calling handlers and destructors of static objects."""
    return any(part in name for name in functions(view) for part in _AT_EXIT)


def own_frames(view: ProcessView) -> list[NativeFrame]:
    """The native frames that are not part of crash handling, innermost first."""
    return [frame for frame in view.native_stack or () if not is_handler_frame(frame)]


def calls_python_without_gil(view: ProcessView) -> bool:
    """Whether one of CPython's functions used a null thread state: on a thread without Python code."""
    frame, crash = next(iter(own_frames(view)), None), view.crash
    if frame is None or crash is None or crash.python_matched or crash.python_stack:
        return False
    return _is_of_python(frame) and crash.tid != view.process.snapshot.pid


def calls_python_by_ctypes(view: ProcessView) -> bool:
    """Whether Python code called one of CPython's own functions as foreign code, and that found no thread state.

    Below libffi, the frames up to the fault are the interpreter's alone, and the innermost one uses the thread state: a
    null argument fails elsewhere.
    """
    frames = own_frames(view)
    place = next((at for at, frame in enumerate(frames) if image_name(frame.image).startswith("libffi.")), 0)
    called = frames[:place]
    ctypes = any(image_name(frame.image).startswith("_ctypes.") for frame in frames[place : place + 6])
    asks = bool(called) and (called[0].function or "").startswith(_USE_THREAD_STATE)
    return ctypes and asks and all(_is_of_python(frame) for frame in called)


def _is_of_python(frame: NativeFrame) -> bool:
    return (frame.function or "").startswith(("Py", "_Py")) and "python" in image_name(frame.image)


def functions(view: ProcessView) -> list[str]:
    """The names on the native stack, as far as they are known."""
    return [frame.function for frame in own_frames(view) if frame.function]


def below_function(view: ProcessView) -> str:
    """`, below call_back`: the innermost function that is still known after a jump to no code, or nothing."""
    names = functions(view)
    return f", below {function_words(names[0])}" if names else ""


def image_name(path: str | None) -> str:
    """The file name of an image, without folders and the kernel's note that it was deleted."""
    return (path or "").removesuffix(" (deleted)").rsplit("/", 1)[-1]


def frame_words(frame: NativeFrame) -> str:
    """`gloo::Pair::read`, else `libx.so+0x1100`, else the bare address."""
    if frame.function:
        return function_words(frame.function)
    if frame.image:
        return f"{image_name(frame.image)}+{frame.offset}"
    return frame.offset or "an unknown place"


def image_at(crash: Crash, addr: int) -> str | None:
    """Path of the program or library whose code lies at `addr`: from the images, else from the memory map."""
    for image in crash.images:
        if image.start <= addr < image.end:
            return image.path
    frame = next((item for item in crash.native_stack if item.pc == addr and item.image), None)
    if frame is not None:
        return frame.image
    mapping = next((item for item in crash.mappings if item.start <= addr < item.end), None)
    return mapping.path if mapping is not None and "x" in mapping.permissions and mapping.path else None


def code_words(crash: Crash, addr: int) -> str:
    """What lies at a code address: the library, generated code, data, or nothing."""
    image = image_at(crash, addr)
    if image is not None:
        return f"code of {image_name(image)}"
    mapping = next((item for item in crash.mappings if item.start <= addr < item.end), None)
    if mapping is None:
        return f"{hex_addr(addr)}, where no memory was mapped"
    if "x" in mapping.permissions:
        return f"generated code at {hex_addr(addr)}, which belongs to no library"
    return f"data at {hex_addr(addr)} ({mapping.path or 'anonymous memory'}, {mapping.permissions})"


def memory_word(crash: Crash, addr: int, nbytes: int = 8) -> int | None:
    """`nbytes` of memory at `addr` as they were at the crash, little-endian; None when they were not kept."""
    for block in crash.memory:
        offset = addr - block.addr
        if offset >= 0 and offset + nbytes <= len(block.content):
            return int.from_bytes(block.content[offset : offset + nbytes], "little")
    return None
