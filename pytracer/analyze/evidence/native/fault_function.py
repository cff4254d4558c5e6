"""Which native function a headline names: the program's own or torch's operator, not a helper of libc, C++ or torch.

A fault in memmove(), in a destructor of a tensor or in the runner of a parallel loop says nothing to the author of the
program. What called the helper does: the first function outside of helpers, up to the innermost Python code.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import function_words
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.native.numba_functions import numba_words
from pytracer.analyze.evidence.operators.operator import find_operator
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame, SourceLine

EVALUATES = Pattern(r"^_?PyEval_")
_PYTHON = Pattern(r"^(libpython3|python|libffi|_ctypes)")
_INTERPRETER_IMAGE = Pattern(r"^(libpython3|python)")
_NUMPY = Pattern(r"/numpy(\.libs)?/|\b_multiarray_umath\b")
_SYSTEM = Pattern(
    r"^(libstdc\+\+|lib(c|m|dl|rt|pthread|gcc_s|gomp|omp|iomp5|tbb|util|mvec)\b|ld-|ld\.|libc-|libgomp-|\[|libpytracer_|lib[at]san|libubsan|"
    r"libjemalloc|libtcmalloc|libmimalloc)"
)
_TORCH = Pattern(r"^lib(torch|c10|aten|gloo|shm)|^_C\.")
_IN_TORCH = ("at::", "c10::", "torch::", "caffe2::", "pybind11::", "THP", "gloo::")
_HELPERS = Pattern(
    r"^(std::|__gnu_cxx::|c10::|pybind11::|pytracer::|at::internal::|at::parallel_for|at::Tensor(Base)?::|operator |"
    r"at::impl::|at::detail::|_Unwind|__cxa_|__clang_call_terminate)"
)
# glibc's copies of one function for processors: `__memset_avx512_unaligned_erms` is memset().
_LIBC_COPY = Pattern(
    r"^__(?P<name>(?:mem|str|stp|wcs|wmem|raw)[a-z]+)_(?:avx|sse|ssse|evex|erms|generic|sve|asimd)\w*$"
)
_SCRIPT_OPERATOR, _INTERPRETER = "torch::jit::(anonymous", "torch::jit::InterpreterState"
HEADERS = Pattern(r"^/usr/include/|^/usr/lib/gcc/|/torch/include/")
# What torch.compile makes: its folder, files named by hashes (torch 2.13, _inductor/codecache.py), functions.
_GENERATED = Pattern(r"/torchinductor_[^/]+/|(?:^|/)c[a-z2-7]{51}\.[\w.]+$")
_GENERATED_NAME = Pattern(r"^(?:cpp|triton_[a-z]{3})_fused_(?P<operators>\w+?)_\d+\b")
_KERNEL = Pattern(r"^at::(native|functorch|sparse|quantized|cpu)::|^torch::(csrc|jit|nn)")


class NativeFunction(msgspec.Struct, frozen=True):
    """`name` as in a headline; `own`: of the program or of a library that is not torch. `place`: `ninthops.cpp:9`."""

    name: str
    own: bool
    place: str | None = None

    @property
    def words(self) -> str:
        """`pooled (ninthops.cpp:9)`."""
        return f"{self.name} ({self.place})" if self.place else self.name


def fault_function(view: ProcessView) -> NativeFunction | None:
    """The function that a headline names; None where no frame has a name."""
    frames = list(_called_by_python(view))
    first = frames[0] if frames else None
    if first is None:
        return None
    numba = numba_words(view, frames)
    if numba is not None:
        return NativeFunction(numba, own=False)
    generated = next((frame for frame in frames if not _is_helper(frame)), None)
    if generated is not None and is_generated(generated):
        return _of_generated(generated)
    if (first.function or "").startswith(_SCRIPT_OPERATOR) and runs_torchscript(view):
        return NativeFunction("TorchScript's interpreter", own=False)  # its operators on numbers have no names
    own = next((frame for frame in frames if is_own_frame(frame)), None)
    if own is not None and (own is first or all(_is_helper(frame) for frame in frames[: frames.index(own)])):
        return _of(own)
    if first.function is not None and not _is_helper(first):
        called = f", called by {_of(own).words}" if own is not None and own.function else ""
        return NativeFunction(function_words(first.function) + called, own is not None)
    if own is not None and own.function:
        inner = next((frame for frame in frames if not _is_helper(frame)), first)
        called = f"{function_words(inner.function)}, called by " if inner.function and inner is not first else ""
        return NativeFunction(f"{called}{_of(own).words}", own=True)
    return _of_torch(view, frames)


def own_function(view: ProcessView) -> NativeFunction | None:
    """The innermost function of the program, or of a library that is not torch, that Python called."""
    own = next((frame for frame in _called_by_python(view) if is_own_frame(frame) and frame.function), None)
    return _of(own) if own is not None else None


def program_function(view: ProcessView) -> NativeFunction | None:
    """The same where it is native code of the program itself; None where an installed library or the system's ran."""
    own = next((frame for frame in _called_by_python(view) if is_own_frame(frame) and frame.function), None)
    return _of(own) if own is not None and not _is_installed(own.image) else None


def _is_installed(image: str | None) -> bool:
    return is_library_file(image) or (image or "").startswith(("/usr/", "/lib/", "/lib64/"))


def entered_function(view: ProcessView) -> str | None:
    """The bare name of the outermost such function: the one that Python itself called."""
    own = [frame for frame in _called_by_python(view) if is_own_frame(frame) and frame.function]
    return function_words(own[-1].function or "").rpartition("::")[2] if own else None


def _of_torch(view: ProcessView, frames: list[NativeFrame]) -> NativeFunction | None:
    """The kernel, else the operator, else whatever has a name."""
    kernel = next((name for frame in frames if _KERNEL.match(name := function_words(frame.function or ""))), None)
    if kernel is not None:
        return NativeFunction(kernel, own=False)
    operator = find_operator(view)
    if operator is not None and operator.name.startswith("aten::"):
        return NativeFunction(operator.name, own=False)
    named = next((frame for frame in frames if frame.function), None)
    if named is None or (named is not frames[0] and frames[0].function is None):
        return None
    copy = _LIBC_COPY.match(named.function or "")
    return NativeFunction(f"{copy['name']}()" if copy else function_words(named.function or ""), own=False)


def runs_torchscript(view: ProcessView) -> bool:
    """Whether the innermost Python code called a scripted function, in which it failed."""
    return any((frame.function or "").startswith(_INTERPRETER) for frame in _called_by_python(view))


def _called_by_python(view: ProcessView) -> Iterator[NativeFrame]:
    for frame in own_frames(view):
        if EVALUATES.match(frame.function or ""):
            return
        yield frame


def _is_helper(frame: NativeFrame) -> bool:
    image = image_name(frame.image)
    if _SYSTEM.match(image) or _PYTHON.match(image):
        return True
    if frame.function is None or frame.function.startswith("_Z"):
        return True  # the body of a parallel loop, whose name cannot be demangled
    return _HELPERS.match(function_words(frame.function)) is not None


def is_own_frame(frame: NativeFrame) -> bool:
    """Of a library that the program, or a package other than torch, brought; not what torch.compile made."""
    name = function_words(frame.function) if frame.function else ""
    return is_of_own_image(frame) and not _HELPERS.match(name) and not name.startswith(_IN_TORCH)


def is_of_own_image(frame: NativeFrame) -> bool:
    """The same of any function in such a library: what C++ or pybind11 put into it as well."""
    image = image_name(frame.image)
    if is_generated(frame) or image in ("", "?"):
        return False
    return not (_SYSTEM.match(image) or _PYTHON.match(image) or _TORCH.match(image))


def is_numpy(view: ProcessView) -> bool:
    """Whether code of NumPy made the access, below which only functions of libc and of the interpreter may be."""
    images = (frame.image or "" for frame in own_frames(view))
    own = (
        path for path in images if not (_SYSTEM.match(image_name(path)) or _INTERPRETER_IMAGE.match(image_name(path)))
    )
    return _NUMPY.search(next(own, "")) is not None


def is_generated(frame: NativeFrame) -> bool:
    """A kernel that torch.compile made: its names and files say nothing to anybody."""
    if _GENERATED_NAME.match(frame.function or ""):
        return True
    return any(_GENERATED.search(path) for path in (frame.image, *(line.file for line in frame.lines or ())) if path)


def _of_generated(frame: NativeFrame) -> NativeFunction:
    """`a kernel that torch.compile made (abs_mean_mul)`: of what it fused where its name has that."""
    fused = _GENERATED_NAME.match(frame.function or "")
    return NativeFunction("a kernel that torch.compile made" + (f" ({fused['operators']})" if fused else ""), own=False)


def _of(frame: NativeFrame) -> NativeFunction:
    """`pooled (ninthops.cpp:9)`, `decode` without its source, else the library."""
    if frame.function is None:
        return NativeFunction(image_name(frame.image), own=True)
    line = next(_own_lines(frame), None)
    place = f"{short_file(line.file)}:{line.line}" if line is not None and line.line is not None else None
    return NativeFunction(function_words(frame.function), own=True, place=place)


def _own_lines(frame: NativeFrame) -> Iterator[SourceLine]:
    """Inlined functions first; those of headers are helpers."""
    for line in frame.lines or ():
        helper = _HELPERS.match(function_words(line.function or "")) is not None
        if line.file and not helper and HEADERS.search(line.file) is None:
            yield line
