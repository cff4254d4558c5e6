"""Stack frames as lines of text: short names, short paths, uninteresting frames left out with a count."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.cells import cell_len

from pytracer._library_files import is_library_file
from pytracer._text import count_words, function_words
from pytracer.render.printing import padded
from pytracer.report.job import ExceptionReport, NativeFrame, PythonFrame, SourceLine, StackCycle, ThreadReport

PYTHON_FRAMES = 5
NATIVE_FRAMES = 5
_INNERMOST = 2
_MOST_RECORDED = (192, 24)  # of the crashed thread, and of others: csrc/crashsafe/python/python_stack.cpp
_FUNCTION_WIDTH = 44
_LONGEST_FUNCTION = 100  # with arguments; templates of C++ fill a screen
_LIBRARY = re.compile(r"^.*/(?:site-packages|dist-packages|lib/python3\.\d+)/(.*)$")
_INTERPRETER = re.compile(r"^(libpython3|python3|python$|libffi|_ctypes)")
_CALLING = re.compile(r"^(libffi|_ctypes)")  # of those: what calls other libraries
_NOT_THE_PROGRAM = re.compile(r"/pytracer/record/|^<frozen ")  # our wrappers, and how the interpreter starts a program
_ABORTING = re.compile(
    r"(?:__GI_)?_*(?:pthread_kill|raise|gsignal|abort|assert_fail|assert_perror_fail|libc_message|malloc_printerr"
    r"|fortify_fail|stack_chk_fail|chk_fail)\b|__pthread_kill_\w+|__assert_fail_base|__libc_message_impl"
    r"|__gnu_cxx::__verbose_terminate_handler|__cxxabiv1::__(?:terminate|unexpected)|std::terminate|__cxa_(?:re)?throw"
)
_CHECKED = re.compile(r"^(?:__GI_)?__\w+_chk$")
_C_LIBRARY = re.compile(r"^(libc[.-]|ld-linux|libpthread)")
_OURS = re.compile(r"^libpytracer_(torch|cuda)\b")
_INLINE_HELPER = re.compile(r"^/usr/include/|/site-packages/torch/include/")
_HANDLER = re.compile(r"^(libpytracer_core|__restore_rt$|__kernel_rt_sigreturn$)")


def short_file(file: str | None) -> str:
    """A source file without its common prefix: site-packages, the standard library, the current directory."""
    if not file:
        return "?"
    if match := _LIBRARY.match(file):
        return match[1]
    here = os.getcwd() + os.sep
    return file[len(here) :] if file.startswith(here) else file


def place_words(frame: PythonFrame) -> str:
    """`train.py:12 in main`."""
    return f"{position_words(frame)} in {frame.function or '?'}"


def exception_lines(exception: ExceptionReport, everything: bool = False) -> list[str]:
    """Of a deep stack also its other end: a frame that repeats is counted, and followed by those that began it."""
    stack, outer = list(exception.python_stack or ()), list(exception.outermost or ())
    first = stack[0] if stack else None
    if not outer or everything or any(frame != first for frame in stack):
        return python_lines(stack, everything)
    began = [frame for frame in _of_the_program(outer) if frame != first]
    reaches = outer[0] == first or exception.frame_count == len(stack) + len(outer)
    if not began or not reaches:
        return python_lines(stack, everything)
    again = (exception.frame_count or 0) - sum(frame != first for frame in outer) - 1
    return [*python_lines(stack[:1]), f"... the same line {again:,} more times", *python_lines(began)]


def python_lines(stack: Sequence[PythonFrame], everything: bool = False) -> list[str]:
    """One line per frame, innermost first: the innermost ones, then those outside libraries."""
    least = "at least " if len(stack) in _MOST_RECORDED else ""
    stack = stack if everything else _of_the_program(stack)
    chosen = list(range(len(stack))) if everything else _interesting(stack)
    width = max((cell_len(stack[position].function or "?") for position in chosen), default=0)
    lines = [
        f"{padded(stack[position].function or '?', min(width, 30))}  {position_words(stack[position])}"
        for position in chosen
    ]
    if len(chosen) < len(stack):
        lines.append(f"... {least}{count_words(len(stack) - len(chosen), 'more frame')}")
    return lines


def _of_the_program(stack: Sequence[PythonFrame]) -> Sequence[PythonFrame]:
    return [frame for frame in stack if not _NOT_THE_PROGRAM.search(frame.file or "")] or stack


def native_lines(stack: Sequence[NativeFrame], cycle: StackCycle | None = None) -> list[str]:
    """One line per frame, innermost first, without the crash handler; frames of the interpreter are only counted.

    A recursion is shown as one cycle.
    """
    frames = _without_wrappers([frame for frame in stack if not _is_handler(frame)])
    if cycle is not None:
        return _cycle_lines(cycle)
    lines, frames = _without_abort(frames)
    shown = 0
    for inside, run in groupby(_with_interpreter(frames), key=lambda item: item[1]):
        group = [frame for frame, _ in run]
        if len(lines) >= NATIVE_FRAMES:
            break
        if inside and lines:
            lines.append(f"... {count_words(len(group), 'frame')} of {_of_what(group)}")
            shown += len(group)
            continue
        taken = group[: 1 if inside else NATIVE_FRAMES - len(lines)]
        lines.extend(line for frame in taken for line in (_native(frame)[-1:] if inside else _native(frame)))
        shown += len(taken)
    if shown < len(frames):
        lines.append(f"... {count_words(len(frames) - shown, 'more frame')}")
    return lines


def _of_what(frames: Sequence[NativeFrame]) -> str:
    """What counted frames belong to: `ctypes and the Python interpreter`, also by libffi, which calls for ctypes."""
    images = [_image(frame) for frame in frames]
    by_ctypes = any(item.startswith("_ctypes") for item in images)
    called = "ctypes" if by_ctypes else "libffi" if any(item.startswith("libffi") for item in images) else ""
    others = any(not _CALLING.match(item) for item in images)
    return " and ".join(filter(None, (called, "the Python interpreter" if others else "")))


def _without_abort(frames: list[NativeFrame]) -> tuple[list[str], list[NativeFrame]]:
    """One line that counts the innermost frames by which a library ends the process, and the frames below them."""
    count = 0
    while count < len(frames) and _is_aborting(frames[count]):
        count += 1
    if count < _INNERMOST or count == len(frames):
        return [], frames
    if any("chk_fail" in (frame.function or "") for frame in frames[:count]):
        count = _checked_call(frames, count)
    return [f"... {count} frames of abort()"], frames[count:]


def _checked_call(frames: list[NativeFrame], first: int) -> int:
    """From a frame on: the place of `__sprintf_chk`, which the program called, below the C library's own functions."""
    end = next((n for n in range(first, len(frames)) if not _C_LIBRARY.match(_image(frames[n]))), first)
    return next((n for n in range(end - 1, first, -1) if _CHECKED.match(frames[n].function or "")), first)


def _is_aborting(frame: NativeFrame) -> bool:
    """On the way from the error to the signal; functions of the C++ library between the known ones have no names."""
    if frame.function:
        return _ABORTING.match(frame.function) is not None
    return _image(frame).startswith("libstdc++")


def _without_wrappers(frames: list[NativeFrame]) -> list[NativeFrame]:
    """Without our functions that only pass a call on; one that fails itself is the innermost frame, and stays."""
    first = next((n for n, frame in enumerate(frames) if not _is_wrapper(frame)), len(frames))
    return frames[:first] + [frame for frame in frames[first:] if not _is_wrapper(frame)]


def _is_wrapper(frame: NativeFrame) -> bool:
    return (frame.function or "").startswith("pytracer::") or _OURS.match(_image(frame)) is not None


def _cycle_lines(cycle: StackCycle) -> list[str]:
    frames = cycle.frames or []
    these = "this frame repeats" if len(frames) == 1 else f"these {len(frames)} frames repeat"
    end = f"{count_words(cycle.repeats or 0, 'time')}; {cycle.depth} frames in all"
    if all(_INTERPRETER.match(_image(frame)) for frame in frames) and any(_evaluates(frame) for frame in frames):
        return [f"... {len(frames)} frames of the Python interpreter, which repeat {end}"]
    lines = [line for frame in frames[:NATIVE_FRAMES] for line in _native(frame)]
    if len(frames) > NATIVE_FRAMES:
        lines.append(f"... {count_words(len(frames) - NATIVE_FRAMES, 'more frame')}")
    return [*lines, f"... {these} {end}"]


def _evaluates(frame: NativeFrame) -> bool:
    return (frame.function or "").startswith(("_PyEval_", "PyEval_"))


def numbered_lines(thread: ThreadReport, cycle: StackCycle | None = None) -> Iterator[str]:
    """Every frame of a thread with its number, from the innermost on; missing frames are counted."""
    stack = thread.native_stack or []
    after_gap, left_out = thread.frames_after_gap or 0, thread.frames_left_out or 0
    first_after = len(stack) - after_gap if left_out else len(stack)
    repeated = {_key(frame) for frame in cycle.frames or []} if cycle else set()
    begin = cycle.first or 0 if cycle else len(stack)
    end = begin + len(cycle.frames or []) if cycle else len(stack)
    for position, frame in enumerate(stack):
        if left_out and position == first_after and cycle is None:
            yield f"... {count_words(left_out, 'frame')} left out ..."
        if position == end and cycle is not None:
            which = f"frame {begin} repeats" if end - begin == 1 else f"frames {begin}-{end - 1} repeat"
            yield f"... {which} {count_words(cycle.repeats or 0, 'time')} ..."
        if position >= end and _key(frame) in repeated:
            continue
        number = position + (left_out if position >= first_after else 0)
        if not _is_handler(frame):
            *inlined, own = _native(frame, full=True)
            yield from (f"     {line}" for line in inlined)
            yield f"#{number:<3} {own}"


def _key(frame: NativeFrame) -> object:
    return frame.function or (frame.image, frame.offset)


def _with_interpreter(frames: Sequence[NativeFrame]) -> Iterator[tuple[NativeFrame, bool]]:
    """Each frame, and whether it belongs to the interpreter: its own, and the C library's that started it."""
    below = False
    for frame in frames:
        inside = bool(_INTERPRETER.match(_image(frame)))
        below = below or inside
        yield frame, inside or (below and bool(_C_LIBRARY.match(_image(frame))))


def _interesting(stack: Sequence[PythonFrame]) -> list[int]:
    """Positions of the innermost frames and of the next ones outside libraries; a single one between them, too."""
    if len(stack) <= PYTHON_FRAMES:
        return list(range(len(stack)))
    own = [i for i in range(_INNERMOST, len(stack)) if not is_library_file(stack[i].file or "")]
    return sorted({*range(_INNERMOST), *own[: PYTHON_FRAMES - _INNERMOST]})


def position_words(frame: PythonFrame) -> str:
    """`train.py:12`."""
    return short_file(frame.file) + (f":{frame.line}" if frame.line is not None else "")


def _native(frame: NativeFrame, full: bool = False) -> list[str]:
    """The functions inlined at a frame, a line each, then the frame itself."""
    image = _image(frame) or "no image"
    unsure = "" if frame.found in ("exact", "unwound", None) else f"  ({frame.found})"
    lines = frame.lines or []
    told = [item for item in lines[:-1] if full or not _INLINE_HELPER.search(item.file or "")]
    shown = [f"{_function(item.function, full)}  {_source(item)}(inlined)" for item in told]
    own = lines[-1] if lines else SourceLine()
    name = frame.function or own.function
    if name is None:
        return [*shown, f"{image} + {frame.offset or '?'}{unsure}"]
    if not full and _INTERPRETER.match(image):
        return [
            *shown,
            f"{_function(name, full)}  {image}{unsure}",
        ]  # its source says nothing to anybody but its authors
    return [*shown, f"{_function(name, full)}  {_source(own)}{image}{unsure}"]


def _function(name: str | None, full: bool) -> str:
    if name is None:
        return "?"
    if not full or len(name) > _LONGEST_FUNCTION:
        name = function_words(name)
    return name if full else _narrow(name)


def _narrow(name: str) -> str:
    """A name that is too wide without its outer namespaces, of one that runs a kernel the kernel."""
    while len(name) > _FUNCTION_WIDTH and "::" in name.partition("<")[0]:
        name = name.partition("::")[2]
    if len(name) > _FUNCTION_WIDTH and name.endswith(">"):
        name = name.rpartition("<")[2][:-1]
    return name[: _FUNCTION_WIDTH - 3] + "..." if len(name) > _FUNCTION_WIDTH else name


def _source(place: SourceLine) -> str:
    if not place.file:
        return ""
    return short_file(place.file) + (f":{place.line}" if place.line is not None else "") + "  "


def _image(frame: NativeFrame) -> str:
    return (frame.image or "").rsplit("/", 1)[-1]


def _is_handler(frame: NativeFrame) -> bool:
    return bool(_HANDLER.match(_image(frame)) or _HANDLER.match(frame.function or ""))
