"""stack-overflow: a thread ran over the end of its stack.

What: the address that was refused lies below the crashed thread's own stack, and so does the stack pointer. The frames
that repeat, how deep it went and both ends of the stack are named.

Why it happens: endless or very deep recursion, in Python through C functions (repr, pickle, copy, `__getattr__`) or in
native code (destructors of long chains, recursive descents); a function with a very large frame; a thread with a
small stack.

What to do: end the recursion or turn it into a loop (where its arguments are passed on as they are, the tests that come
out the same each time are named); make the data flat that a parser, pickle or a destructor walks
through (the line that nests it is named, and one that raised Python's limit of recursion), or walk through it in a
loop: the links of a tree are its data. Of a function that calls itself for `tree.children`, the line that adds a level
to those is named. A loop that puts each node below the last one makes a tree as deep as what it goes through is long,
such as a file's line that did not end. A larger stack holds more in proportion. Where the depth is meant, give the
thread more: `ulimit -s` before the start for the main thread, `threading.stack_size()` for Python threads,
OMP_STACKSIZE for OpenMP's.

How it can be wrong: without the recorded bounds of the stack they are taken from the memory map. Only the innermost
and the outermost frames are kept, so that a cycle of more than 24 functions is not seen. Where no line of the program
is among the Python frames that were kept, its only call of the function that repeats is named.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import count_words, hex_addr, list_words, size_words
from pytracer.analyze.address_space.stack_bounds import GUARD_BYTES, is_proven, ran_over, stack_bounds
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.usage.endless_calls import EndlessCall, endless_call
from pytracer.analyze.evidence.failing.usage.endless_lookups import endless_lookup_of
from pytracer.analyze.evidence.failing.usage.recursions import level_added
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.descents import Descent, descent, levels
from pytracer.analyze.evidence.native.native_stack import frame_words, image_name, own_frames
from pytracer.analyze.evidence.native.nesting import (
    Nesting,
    adding_words,
    deepening_line,
    guard_words,
    nesting_advice,
    of_native,
    of_python,
    only_call,
)
from pytracer.analyze.evidence.native.recursion import Cycle, find_cycle
from pytracer.analyze.evidence.own_code.circles import circle
from pytracer.analyze.evidence.own_code.large_locals import LargeLocal, large_local
from pytracer.analyze.evidence.own_code.own_libraries import is_own_path
from pytracer.analyze.evidence.phrases import fault_evidence, in_function, python_evidence
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import LineWords, introduction, place_words
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.rules.fault import MemoryFaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Confidence, Evidence, NativeFrame, PythonFrame, StackCycle

DEEP_FRAMES = 500
SMALL_STACK_BYTES = 1 << 20
USUAL_STACK_BYTES = 8 << 20
_LEAST_FRAME = 16  # bytes: what a call and its return address take
_EVALUATORS = ("_PyEval_EvalFrame", "_PyEval_Vector", "PyEval_Eval", "_PyFunction_Vectorcall")
_MORE = {
    "main": "If the depth is meant, raise the limit before the start: `ulimit -s`.",
    "python": "If the depth is meant, give the thread more: threading.stack_size() before it is started.",
    "openmp": "If the depth is meant, set OMP_STACKSIZE.",
}
_LARGER = {
    "main": "`ulimit -s` before the start",
    "python": "threading.stack_size() before the thread is started",
    "openmp": "OMP_STACKSIZE",
}
_BY_CREATOR = "whoever creates the thread"


class _Cycles(msgspec.Struct, frozen=True):
    """The frames that repeat: native ones, and those of Python."""

    native: StackCycle | None
    python: Cycle[PythonFrame] | None


class StackOverflow(MemoryFaultRule[_Cycles]):
    """Fires when address and stack pointer lie at the end of the crashed thread's stack."""

    id = "stack-overflow"
    needs = ("crash",)

    def judge(self, view: ProcessView) -> Judgement[_Cycles] | None:
        """See MemoryFaultRule."""
        if not ran_over(view):
            return None
        confidence: Confidence = "certain" if is_proven(view) else "likely"
        return Judgement("stack-overflow", confidence, (view,), _Cycles(view.stack_cycle, _python_cycle(view)))

    def describe(self, job: JobView, judgement: Judgement[_Cycles]) -> Description:
        """See MemoryFaultRule."""
        view = judgement.views[0]
        native, python = judgement.found.native, judgement.found.python
        return Description(
            f"{introduction(judgement.views)} ran over the end of its stack"
            f"{_where(view, native, python)}"
            f"{_how(view, native, python)}{_let(view, native)}{_called(view, native, python)}.",
            [
                fault_evidence(view),
                _bounds(view),
                _native_cycle(native),
                _python_frames(python),
                _ends(view),
                python_evidence(view),
            ],
            _advice(view, native, python),
            [None if own_frames(view) else "the native stack"],
            behind=_behind(view, native, python),
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See MemoryFaultRule."""
        return not_found("no fault address lay at the end of its thread's stack together with the stack pointer")


def _behind(view: ProcessView, native: StackCycle | None, python: Cycle[PythonFrame] | None) -> Behind:
    """The line that adds a level."""
    nested = _nested(native, python)
    if nested is None and python is not None and _is_of_python(native, python):
        endless = _endless(view, python)
        return Behind.of([], endless if endless is not None else _descent(view, python))
    return Behind.of([], deepening_line(view, nested) if nested is not None else None)


_REGEX = "std::__detail::_Executor<"  # libstdc++'s matcher


def _python_cycle(view: ProcessView) -> Cycle[PythonFrame] | None:
    frames = view.python_stack or []
    return find_cycle(frames, [(frame.file, frame.function) for frame in frames])


def _runs_python(cycle: StackCycle | None) -> bool:
    frames = (cycle.frames if cycle else None) or []
    return any(_runs_python_frame(frame) for frame in frames)


def _runs_python_frame(frame: NativeFrame) -> bool:
    return (frame.function or "").startswith(_EVALUATORS)


def _is_of_python(cycle: StackCycle | None, python: Cycle[PythonFrame] | None) -> bool:
    """Whether Python code called itself: whatever native function met the end is as good as any other."""
    return python is not None and (cycle is None or _runs_python(cycle))


def _own(view: ProcessView, python: Cycle[PythonFrame]) -> PythonFrame:
    """The program's own line that calls itself; its calls may go through those of a library."""
    own = [frame for frame in python.frames if not is_library_file(frame.file)] or python.frames[:1]
    stack = view.python_stack or []
    alike = [frame for frame in stack if (frame.file, frame.function) == (own[0].file, own[0].function)]
    return max(alike, key=alike.count, default=own[0])


def _descent(view: ProcessView, python: Cycle[PythonFrame] | None) -> Descent | None:
    """None where the program's own line shows nothing that it goes down by."""
    if python is None:
        return None
    return descent(view.process.snapshot, program_frames(view), _own(view, python))


def _endless(view: ProcessView, python: Cycle[PythonFrame] | None) -> EndlessCall | None:
    """None where the call may end, or does not show that."""
    return endless_call(view.process.snapshot, program_frames(view), _own(view, python)) if python is not None else None


def _depth(view: ProcessView) -> int:
    return max(view.crash.native_total if view.crash else 0, len(own_frames(view)))


def _how(view: ProcessView, cycle: StackCycle | None, python: Cycle[PythonFrame] | None) -> str:
    depth = count_words(_depth(view), "frame")
    nested = _nested(cycle, python)
    if nested is not None:
        adds = adding_words(view, nested)
        return f": {nested.clause}{f' ({adds})' if adds is not None else ''}, {depth} of native code deep"
    if python is not None and _is_of_python(cycle, python):
        size = _stack_bytes(view)
        small = _is_small(size)
        down = _endless(view, python) or _descent(view, python)
        goes = down.clause if down is not None else ""
        count = levels((cycle.frames if cycle else None) or (), python.frames, cycle.repeats if cycle else None)
        deep = f"{count_words(count, 'level')} ({depth} of native code)" if count else f"{depth} of native code"
        return f": Python recursion through {place_words(_own(view, python))}{goes}, {deep} deep" + (
            f"; the stack of {size_words(size)} is small" if small and size is not None else ""
        )
    if cycle is not None:
        names = list(dict.fromkeys(frame_words(frame) for frame in cycle.frames or []))
        if any(_REGEX in (frame.function or "") for frame in cycle.frames or []):
            return f": recursion of std::regex over a long text, {depth} deep"
        round_ = circle(view, cycle)
        goes = round_.clause if round_ is not None else ""
        return f": recursion of {list_words(names)}, {_levels(cycle) or depth} deep{goes}"
    if not own_frames(view):
        return ""
    if _depth(view) >= DEEP_FRAMES:
        return f", {depth} deep"
    size, beyond = _stack_bytes(view), _beyond_bytes(view)
    local = large_local(view) if not _is_small(size) or _small_stack_advice(view) is None else None
    if local is not None:
        part = "of" if local.frame_bytes is not None else "on"
        return f": {local.summary}" + (f" {part} a stack of {size_words(size)}" if size is not None else "")
    only = f", only {depth} deep" if _is_whole(view) else ""
    if beyond > GUARD_BYTES:
        return f"{only}: a frame reaches {size_words(beyond)} below it"
    if size is not None and size < SMALL_STACK_BYTES:
        return f"{only}: the stack of {size_words(size)} is small"
    return f"{only}: a frame is very large" if only else ""


def _is_whole(view: ProcessView) -> bool:
    """Whether the frames were followed to the Python code that called them: MKL and OpenBLAS have no unwind tables."""
    frames = view.crash.native_stack if view.crash else []
    if any(frame.found == "scanned" for frame in frames):
        return False
    return not view.python_stack or any("python" in image_name(frame.image) for frame in frames)


def _stack_bytes(view: ProcessView) -> int | None:
    stack = stack_bounds(view)
    return stack[1] - stack[0] if stack else None


def _beyond_bytes(view: ProcessView) -> int:
    """How far the stack pointer is below the stack."""
    bounds = stack_bounds(view)
    return max(bounds[0] - view.crash.sp, 0) if view.crash and bounds else 0


def _bounds(view: ProcessView) -> Evidence | None:
    crash, place, bounds = view.crash, view.place, stack_bounds(view)
    if crash is None or bounds is None or place is None:
        return None
    low, high = bounds
    side = "below" if place.addr < low else "above"
    return Evidence(
        "stack-bounds",
        f"the address is {size_words(abs(low - place.addr))} {side} the lowest address of this thread's stack "
        f"({size_words(high - low)}), the stack pointer {size_words(abs(crash.sp - low))} "
        f"{'below' if crash.sp < low else 'above'} it",
        addr=hex_addr(low),
        nbytes=high - low,
        tid=crash.tid,
        offset_bytes=crash.sp - low,
    )


def _native_cycle(cycle: StackCycle | None) -> Evidence | None:
    if cycle is None:
        return None
    names = [frame_words(frame) for frame in cycle.frames or []]
    times = f" {cycle.repeats} times" if cycle.repeats else ""
    words = f"these native frames repeat{times}, innermost first: {' <- '.join(names)}"
    return Evidence("recursion", words, frames=names, count=cycle.repeats)


def _python_frames(cycle: Cycle[PythonFrame] | None) -> Evidence | None:
    if cycle is None:
        return None
    names = [place_words(item) for item in cycle.frames]
    words = f"these Python frames repeat, innermost first: {' <- '.join(names)}"
    return Evidence("recursion", words, frames=names, count=cycle.repeats, python=cycle.frames[0])


def _ends(view: ProcessView) -> Evidence | None:
    frames = own_frames(view)
    if len(frames) < 2:
        return None
    inner, outer = ([frame_words(frame) for frame in end] for end in (frames[:3], frames[-3:]))
    words = f"the innermost frames are {' <- '.join(inner)}; the outermost are {' <- '.join(outer)}"
    return Evidence("native-stack", words, frames=[*inner, *outer], count=_depth(view))


def _nested(cycle: StackCycle | None, python: Cycle[PythonFrame] | None) -> Nesting | None:
    """What walks through something nested: a function of a library, none of the program's own."""
    if python is not None and _is_of_python(cycle, python):
        own = any(not is_library_file(frame.file) for frame in python.frames)
        return None if own else of_python(python.frames)
    return of_native(cycle.frames) if cycle is not None and cycle.frames else None


def _small_stack_advice(view: ProcessView) -> str | None:
    """Where a thread's stack was made small, and a library's code needs more; with the only line that asks for it.

    Also where the program's own does, by a local array that a stack of the usual size has room for.
    """
    size, frames = _stack_bytes(view), own_frames(view)
    kind = view.thread.kind if view.thread else None
    if size is None or size >= USUAL_STACK_BYTES or kind != "python":
        return None
    asked = _asked(view)
    if len(asked) != 1 and not _is_small(size):
        return None
    if is_own_path(frames[0].image) and not _has_room_elsewhere(large_local(view)):
        return None
    more = f"{frame_words(frames[0])} and what called it need more than {size_words(size)}"
    if len(asked) != 1:
        return f"Give the thread a stack of several MiB (threading.stack_size() before it is started): {more}."
    return f"Ask threading.stack_size() for several MiB at {asked[0]}, or leave the default: {more}."


def _is_small(size: int | None) -> bool:
    return size is not None and size < SMALL_STACK_BYTES


def _asked(view: ProcessView) -> list[LineWords]:
    """The lines that ask for a size of threads' stacks."""
    lines = {
        (file, node.lineno)
        for file, tree in program_files(view.process.snapshot, program_frames(view)).items()
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and called_name(node) == "stack_size" and node.args
    }
    return [place_of(view, file, line) for file, line in sorted(lines)]


def _has_room_elsewhere(local: LargeLocal | None) -> bool:
    """In a stack of the usual size."""
    if local is None:
        return False
    taken = local.frame_bytes or local.nbytes
    return taken is None or taken < USUAL_STACK_BYTES // 2


def _levels(cycle: StackCycle) -> str:
    """How often it repeats: some frames are of what called it first."""
    return count_words(cycle.repeats, "level") if cycle.repeats else ""


def _flatten(view: ProcessView, cycle: StackCycle, function: str) -> str:
    """What to make of a recursion of native code, with what each level took."""
    size, repeats = _stack_bytes(view), cycle.repeats or 0
    first = f"End the recursion of {function}, or make it a loop that keeps what is left to do in an array on the heap"
    if size is None or not repeats or size // repeats < _LEAST_FRAME:
        return f"{first}."
    return (
        f"{first}: each level took {size_words(size // repeats)} of stack, so that {size_words(size)} held {repeats}."
    )


def _deeper(view: ProcessView) -> str:
    """`` A larger stack holds more in proportion: 8.0 MiB held 45540 frames (`ulimit -s` before the start). ``"""
    size, kind = _stack_bytes(view), view.thread.kind if view.thread else None
    held = f": {size_words(size)} held {count_words(_depth(view), 'frame')}" if size is not None else ""
    return f"A larger stack holds more in proportion{held} ({_LARGER.get(kind or '', _BY_CREATOR)})."


def _where(view: ProcessView, native: StackCycle | None, python: Cycle[PythonFrame] | None) -> str:
    """` in parse`; nothing where Python's code or a known walker repeats, and calls whatever met the end."""
    if _is_of_python(native, python):
        return ""
    repeat = {frame.function for frame in native.frames or ()} if native is not None else set()
    first = next(iter(own_frames(view)), None)
    leaf = first is not None and first.function not in repeat
    return "" if leaf and _nested(native, python) is not None else in_function(view)


def _raised_at(guard: str | None) -> str:
    return f": {guard} does" if guard is not None else ""


def _let(view: ProcessView, cycle: StackCycle | None) -> str:
    """The line that took Python's guard away."""
    guard = guard_words(view, cycle)
    return f", which {guard} allows" if guard is not None else ""


def _called(view: ProcessView, cycle: StackCycle | None, python: Cycle[PythonFrame] | None) -> str:
    """The call that led there, where no line of the program is among the frames that were kept."""
    nested = _nested(cycle, python)
    call = only_call(view, nested) if nested is not None else None
    return f"; the only call of it that was found in the program is {call}" if call is not None else ""


def _advice(view: ProcessView, cycle: StackCycle | None, python: Cycle[PythonFrame] | None) -> str:
    nested, guard = _nested(cycle, python), guard_words(view, cycle)
    back = f" Without {guard}, Python would raise RecursionError instead." if guard is not None else ""
    if nested is not None:
        return f"{nesting_advice(view, nested, _deeper(view))}{back}"
    if _is_of_python(cycle, python):
        stack = view.python_stack or []
        known = level_added(view.process.snapshot, stack) or endless_lookup_of(view.process.snapshot, stack)
        if known is not None:
            return f"{known}{back}"
        endless = _endless(view, python)
        if endless is not None:
            return f"{endless.advice}{back}"
        down = _descent(view, python)
        if down is not None:
            return f"{down.advice}{back} {_deeper(view)}"
    if python is not None and _is_of_python(cycle, python):
        size = _stack_bytes(view)
        raised = size is None or size >= SMALL_STACK_BYTES
        first = f"End the recursion at {place_words(_own(view, python))}" + (
            f", and do not raise sys.setrecursionlimit() so far{_raised_at(guard)}." if raised else "."
        )
    elif cycle is not None and cycle.frames:
        round_ = circle(view, cycle)
        if round_ is not None:
            return round_.advice
        image = image_name(cycle.frames[0].image)
        first = _flatten(view, cycle, f"{frame_words(cycle.frames[0])}{f' ({image})' if image else ''}")
        if not any(is_own_path(frame.image) or _runs_python_frame(frame) for frame in cycle.frames):
            first = (
                f"{frame_words(cycle.frames[0])} of {image or 'a library'} calls itself: look for something nested, or "
                f"that refers to itself, in what {line_words(view)} passes, and make it flat."
            )
        if any(_REGEX in (frame.function or "") for frame in cycle.frames):
            first = (
                "std::regex of libstdc++ recurs for each character that a repetition matches: give it shorter texts, "
                "such as one line at a time, or use another library (RE2, Boost.Regex, Python's re)."
            )
    elif _depth(view) >= DEEP_FRAMES or not own_frames(view):
        first = "Look for very deep recursion in the recorded stacks."
    else:
        small = _small_stack_advice(view)
        if small is not None:
            return small
        local = large_local(view)
        if local is not None:
            return local.advice(_LARGER.get((view.thread.kind if view.thread else None) or "", _BY_CREATOR))
        first = (
            "Look for large local arrays or alloca() in the innermost native function."
            if _is_whole(view)
            else "Look for large local arrays in the innermost native function, or for deep recursion on the way to it."
        )
    kind = view.thread.kind if view.thread else None
    default = "If the depth is meant, whoever creates the thread must give it a larger stack."
    if python is not None and _is_of_python(cycle, python):
        back = ""  # said before
    return f"{first}{back} {_MORE.get(kind or '', default)}"
