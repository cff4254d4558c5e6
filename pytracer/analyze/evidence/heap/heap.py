"""Evidence of a damaged heap: the C library's message, and the functions that die of it."""

from __future__ import annotations

from itertools import takewhile

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import function_words
from pytracer.analyze.evidence.native.aborts import PLUMBING, is_abort, printed
from pytracer.analyze.evidence.native.native_stack import functions, image_name, own_frames
from pytracer.analyze.platform.glibc_messages import explain_text
from pytracer.analyze.platform.signals import SIGBUS, SIGSEGV
from pytracer.analyze.view import ProcessView

# Messages by which allocators report damage before they abort.
_ACCUSERS = ("malloc_printerr", "safety_check_fail", "safety_check_detected_heap_corruption", "InvalidFree", "mi_error")
_NAMES = """
malloc free calloc realloc cfree memalign posix_memalign aligned_alloc __libc_malloc __libc_free __libc_calloc
__libc_realloc __libc_memalign _mid_memalign __GI___libc_malloc __GI___libc_free _int_malloc _int_free _int_free_chunk
_int_free_merge_chunk _int_realloc _int_memalign malloc_consolidate unlink_chunk munmap_chunk sysmalloc
systrim tcache_get tcache_put __malloc_arena_thread_freeres tcache_thread_shutdown malloc_trim
"""
_FUNCTIONS = frozenset(_NAMES.split())
_REQUESTED = """
malloc calloc memalign posix_memalign aligned_alloc __libc_malloc __libc_calloc __libc_memalign _mid_memalign
__GI___libc_malloc
"""
_REQUESTS = frozenset(_REQUESTED.split())
_SHUTDOWN = ("Py_FinalizeEx", "_PyRuntime_Finalize", "finalize_modules")
NUMPY_FREES = ("array_dealloc", "array_data_free", "npy_free_cache", "PyDataMem_UserFREE")
_RELEASES = (*NUMPY_FREES, "Py_DECREF", "Py_XDECREF", "_Py_Dealloc")
# Of CPython, where a call of Python code ends: its variables are released.
_CLEARS = ("_PyFrame_Clear", "_PyFrame_ClearLocals", "_PyFrame_ClearExceptCode", "_PyEvalFrameClearAndPop",
           "_PyEval_FrameClearAndPop", "clear_thread_frame")  # fmt: skip
_MOST_UNNAMED = 6  # unlink_chunk, _int_malloc, _int_memalign, _mid_memalign, then posix_memalign has a name
_C_LIBRARY = Pattern(r"libc[.-][\w.]*so|libc\.so|ld-musl")
_ALLOCATORS = Pattern(r"lib(jemalloc|tcmalloc|mimalloc)")


class HeapDamage(msgspec.Struct, frozen=True):
    """How the damage was noticed. `text` is the allocator's own, `meaning` its explanation.

    `function` is where the process died without a message; `of_request`: while memory was asked for, so that every
    pointer that it followed was the allocator's own.
    """

    text: str | None
    meaning: str | None
    function: str | None
    of_request: bool = False


def heap_damage(view: ProcessView) -> HeapDamage | None:
    """Whether a process died of a damaged heap, as far as its end shows it."""
    if is_abort(view):
        text = printed(view)
        meaning = explain_text(text) if text else None
        if meaning is not None:
            return HeapDamage(text, meaning, None)
        accused = any(name in function for function in functions(view) for name in _ACCUSERS)
        return HeapDamage(None, None, None) if accused else None
    crash = view.crash
    if crash is None or view.raised or not view.is_fault or crash.signal not in (SIGSEGV, SIGBUS):
        return None
    function = _allocator_function(view)
    return HeapDamage(None, None, function, _is_request(view)) if function else None


def ends_in(view: ProcessView) -> str | None:
    """`its exit handlers`: what was running at the end of the program; None where its Python code had not ended."""
    if view.python_stack:
        return None
    names = functions(view)
    if "__run_exit_handlers" in names or "__cxa_finalize" in names:
        return "its exit handlers"
    return "the interpreter's shutdown" if any(name in _SHUTDOWN for name in names) else None


def allocator_user(view: ProcessView) -> str | None:
    """The innermost function that belongs neither to the allocator nor to the way to abort()."""
    of_torch = ("c10::alloc_cpu", "c10::free_cpu", "c10::DefaultCPUAllocator")
    all_names = (name for name in functions(view) if not name.startswith(of_torch))
    names = (name for name in all_names if name.partition(".")[0] not in _FUNCTIONS)
    return next((name for name in names if not any(part in name for part in (*PLUMBING, *_ACCUSERS))), None)


def user_words(view: ProcessView) -> str:
    """`, below array_dealloc`, of the function that called the allocator; or that NumPy freed a local array."""
    user = allocator_user(view)
    if user is None:
        return ""
    names = functions(view)
    below = (name for name in names[names.index(user) :] if name != user and name not in _RELEASES)
    if user in NUMPY_FREES and next(below, None) in _CLEARS:
        return ", found as NumPy freed a local array of a function that had ended"
    return f", below {function_words(user)}"


def _is_request(view: ProcessView) -> bool:
    """Whether the outermost function of the allocator on the stack was asked for memory."""
    names = [(frame.function or "").partition(".")[0] for frame in own_frames(view)]
    outermost = [name for name in takewhile(lambda name: name in _FUNCTIONS or not name, names) if name][-1:]
    return any(name in _REQUESTS for name in outermost)


def _allocator_function(view: ProcessView) -> str | None:
    """The allocator's function at the top of the stack. Its inner functions have no names in a stripped libc."""
    frames = own_frames(view)
    if not frames:
        return None
    image = image_name(frames[0].image)
    if _ALLOCATORS.match(image):
        return function_words(frames[0].function) if frames[0].function else image
    if not _C_LIBRARY.match(image):
        return None
    for frame in frames[:_MOST_UNNAMED]:
        if image_name(frame.image) != image:
            return None
        if frame.function is not None:
            name = frame.function.partition(".")[0]  # without the compiler's `.constprop.0`
            return name if name in _FUNCTIONS else None
    return None
