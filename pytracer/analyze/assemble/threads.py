"""All threads of a process: who each is, where it was in Python and in native code."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import function_words, hex_addr
from pytracer.analyze.parts import native_frame, python_frame
from pytracer.analyze.platform.system_calls import system_call_name
from pytracer.decode.types.snapshot import Crash, NativeFrame, PythonFrame, Snapshot, ThreadStack
from pytracer.report import job as r

_KINDS_BY_NAME = (
    ("pt_autograd", "autograd"),
    ("pt_gloo", "gloo"),
    ("gloo", "gloo"),
    ("pt_nccl_watchdg", "nccl-watchdog"),
    ("omp", "openmp"),
)
# Functions that only threads of that kind run: Engine::thread_main is not among them, backward() on a Python thread
# runs it as well (torch 2.13, torch/csrc/autograd/engine.cpp, execute_with_graph_task).
_KINDS_BY_FUNCTION = (
    ("torch::autograd::Engine::thread_init", "autograd"),
    ("torch::autograd::python::PythonEngine::thread_init", "autograd"),
    ("torch::autograd::Engine::reentrant_thread_init", "autograd"),
    ("gomp_thread_start", "openmp"),
    ("gomp_thread_pool", "openmp"),
    ("__kmp_launch_worker", "openmp"),
    ("__kmp_launch_thread", "openmp"),
    ("c10d::ProcessGroupGloo::runLoop", "gloo"),
    ("gloo::transport::tcp::Loop::run", "gloo"),
    ("gloo::transport::uv::", "gloo"),
    ("c10d::ProcessGroupNCCL::ncclCommWatchdog", "nccl-watchdog"),
    ("c10d::ProcessGroupNCCL::Watchdog::run", "nccl-watchdog"),
)
_KINDS_WITHOUT_PYTHON = (
    ("torch::autograd::Engine::thread_main", "autograd"),
    ("gloo::", "gloo"),
    ("pythread_wrapper", "python"),  # which ran Python before the interpreter began to shut down
)
_OPENMP_IMAGES = ("libgomp", "libiomp5", "libomp")
_C_LIBRARY = ("libc.", "libc-", "libpthread", "ld-linux")
_FOUND = {"helper": "helper (ptrace)", "signal": "signal"}
_REGION_BODY = ("._omp_fn.", ".omp_outlined")
PythonStacks = dict[int, tuple[PythonFrame, ...]]


class Threads:
    """The threads of one process at its crash, or when it was examined; without a `crash` those that recorded.

    `end` has the stacks of a process that was asked to end, or ended itself; nothing crashed.
    """

    def __init__(self, snapshot: Snapshot, crash: Crash | None, end: Crash | None = None) -> None:
        self._pid, self._arch, self._recorded, self._crash = snapshot.pid, snapshot.arch, snapshot.threads, crash
        self._end = end

    def crashed(self) -> r.Thread | None:
        """Who crashed."""
        crash = self._crash
        if crash is None:
            return None
        has_python = crash.python_matched or bool(crash.python_stack)
        kind = thread_kind(self._pid, crash.tid, crash.thread_name, has_python, crash.native_stack)
        if kind == "python" and crash.node is not None and not _began_in_python(crash):
            kind = "autograd"  # also when its native stack is lost: it runs a node, and no Python code started it
        return r.Thread(tid=crash.tid, name=crash.thread_name, kind=kind)

    def reports(self) -> list[r.ThreadReport]:
        """The crashed thread, the main one, then the others by id; last those known by their Python state only."""
        crash, thread = self._crash, self.crashed()
        if crash is None or thread is None:
            return self._at_the_end()
        own = {item.pthread for item in self._recorded if item.tid == crash.tid and not item.ended}
        own |= {pthread for pthread, frames in crash.python_threads if frames and frames is crash.python_stack}
        python = {pthread: frames for pthread, frames in crash.python_threads if pthread not in own}
        stacks = sorted(crash.threads, key=lambda item: (item.tid != self._pid, item.tid))
        reports = [_crashed(crash, thread), *(self._other(item, python) for item in stacks)]
        seen = {item.tid for item in reports if item.tid is not None}
        for info in self._recorded:
            if not info.ended and info.tid not in seen and info.pthread in python:
                frames = [python_frame(frame) for frame in python.pop(info.pthread)]
                kind = thread_kind(self._pid, info.tid, info.name, True)
                reports.append(
                    r.ThreadReport(tid=info.tid, name=info.name, kind=kind, crashed=False, python_stack=frames)
                )
                seen.add(info.tid)
        for frames_left in python.values():
            stack = [python_frame(frame) for frame in frames_left]
            reports.append(r.ThreadReport(kind="python", crashed=False, python_stack=stack))
        if len(crash.threads) < crash.threads_total or not crash.threads:  # else all that lived are listed
            reports += self._unseen(seen)
        return [reports[0], *sorted(reports[1:], key=lambda item: item.kind != "main")]

    def _at_the_end(self) -> list[r.ThreadReport]:
        """Those with Python stacks, the main one first; then those that recorded."""
        end = self._end
        reports = [self._ended(end, pthread, stack) for pthread, stack in end.python_threads] if end is not None else []
        seen = {item.tid for item in reports if item.tid is not None}
        return [*sorted(reports, key=lambda item: item.kind != "main"), *self._unseen(seen)]

    def _ended(self, end: Crash, pthread: int, stack: Sequence[PythonFrame]) -> r.ThreadReport:
        met = stack is end.python_stack  # the thread that the signal interrupted
        info = next((item for item in self._recorded if item.pthread == pthread and not item.ended), None)
        tid = info.tid if info is not None else end.tid if met else None
        name = info.name if info is not None else end.thread_name if met else None
        return r.ThreadReport(
            tid=tid,
            name=name,
            kind=thread_kind(self._pid, tid, name or "", True) if tid is not None else "python",
            crashed=False,
            python_stack=[python_frame(frame) for frame in stack],
            native_stack=[native_frame(frame) for frame in end.native_stack] if met else None,
        )

    def region_opener(self) -> tuple[r.Thread, list[r.PythonFrame]] | None:
        """The thread that opened the parallel region an OpenMP worker crashed in, and its Python stack.

        It runs the same body, or waits below the function that the body belongs to; or it is the only one in a region.
        """
        crash, crashed = self._crash, self.crashed()
        if crash is None or crashed is None or crashed.kind != "openmp":
            return None
        body = next((frame.function or "" for frame in crash.native_stack if _is_body(frame)), "")
        inside = [item for item in crash.threads if _is_in_region(item)]
        found = [item for item in inside if body and _belongs_to(item, body)]
        if not found and all(item.state == "done" for item in crash.threads):
            found = inside
        if len(found) != 1:
            return None
        opener = found[0]
        frames = next((frames for pthread, frames in crash.python_threads if pthread == opener.pthread), ())
        kind = thread_kind(self._pid, opener.tid, opener.name, bool(frames), opener.native_stack)
        return r.Thread(tid=opener.tid, name=opener.name, kind=kind), [python_frame(frame) for frame in frames]

    def _other(self, thread: ThreadStack, python: PythonStacks) -> r.ThreadReport:
        """A thread whose native stack was asked for; its Python stack is taken out of `python`."""
        frames = python.pop(thread.pthread, None) if thread.pthread is not None else None
        return r.ThreadReport(
            tid=thread.tid,
            name=thread.name,
            kind=thread_kind(self._pid, thread.tid, thread.name, frames is not None, thread.native_stack),
            crashed=False,
            python_stack=[python_frame(frame) for frame in frames] if frames is not None else None,
            native_stack=[native_frame(frame) for frame in thread.native_stack],
            state=thread.state,
            frames_left_out=thread.gap,
            frames_after_gap=thread.tail,
            system_call=system_call_name(thread.syscall, self._arch) if thread.syscall is not None else None,
        )

    def _unseen(self, seen: set[int]) -> list[r.ThreadReport]:
        """Threads that are known by their records only."""
        reports = []
        for info in self._recorded:
            if not info.ended and info.tid not in seen:
                kind = thread_kind(self._pid, info.tid, info.name, False)
                reports.append(r.ThreadReport(tid=info.tid, name=info.name, kind=kind, crashed=False))
        return reports


def _is_in_region(thread: ThreadStack) -> bool:
    """Whether it called an OpenMP library, of which it is no worker itself."""
    inside = any(_image(frame).startswith(_OPENMP_IMAGES) for frame in thread.native_stack)
    return inside and not _outermost_image(thread.native_stack).startswith(_OPENMP_IMAGES)


def _is_body(frame: NativeFrame) -> bool:
    return any(mark in (frame.function or "") for mark in _REGION_BODY)


def _belongs_to(thread: ThreadStack, body: str) -> bool:
    """Whether it runs the body of the region, or waits in the library below the function that the body is part of."""
    frames = thread.native_stack
    last = max((n for n, frame in enumerate(frames) if _image(frame).startswith(_OPENMP_IMAGES)), default=-1)
    caller = frames[last + 1].function if last + 1 < len(frames) else None
    return any(frame.function == body for frame in frames) or (
        caller is not None and f"{function_words(caller)}(" in body
    )


def _began_in_python(crash: Crash) -> bool:
    """Whether the thread's outermost Python frame is where the threading module starts one."""
    outermost = crash.python_stack[-1] if crash.python_stack else None
    return outermost is not None and outermost.function in ("Thread._bootstrap", "_bootstrap")


def threads_found(crash: Crash) -> str | None:
    """How the stacks of the other threads were taken."""
    return _FOUND.get(crash.threads_how or "")


def thread_kind(pid: int, tid: int, name: str, has_python: bool, frames: Sequence[NativeFrame] = ()) -> str:
    """Main thread, worker of a library, or thread of the program: by id, name, and what it began with."""
    if tid == pid:
        return "main"
    by_name = next((kind for prefix, kind in _KINDS_BY_NAME if name.startswith(prefix)), None)
    if by_name is not None:
        return by_name
    functions = [frame.function or "" for frame in frames]
    by_function = _first_kind(_KINDS_BY_FUNCTION, functions)
    if by_function is not None:
        return by_function
    if _outermost_image(frames).startswith(_OPENMP_IMAGES):
        return "openmp"
    if has_python:
        return "python"
    if any(_image(frame).startswith(_OPENMP_IMAGES) for frame in frames):
        return "openmp"
    return _first_kind(_KINDS_WITHOUT_PYTHON, functions) or "native"


def _first_kind(kinds: Sequence[tuple[str, str]], functions: Sequence[str]) -> str | None:
    return next((kind for prefix, kind in kinds if any(name.startswith(prefix) for name in functions)), None)


def _outermost_image(frames: Sequence[NativeFrame]) -> str:
    """The library that the thread's first function belongs to, below the C library's own."""
    images = (_image(frame) for frame in reversed(frames))
    return next((image for image in images if image and not image.startswith(_C_LIBRARY)), "")


def _image(frame: NativeFrame) -> str:
    return (frame.image or "").rsplit("/", 1)[-1]


def _crashed(crash: Crash, thread: r.Thread) -> r.ThreadReport:
    return r.ThreadReport(
        tid=crash.tid,
        name=thread.name,
        kind=thread.kind,
        crashed=True,
        python_stack=[python_frame(frame) for frame in crash.python_stack],
        native_stack=[native_frame(frame) for frame in crash.native_stack],
        frames_left_out=crash.native_gap,
        frames_after_gap=crash.native_tail,
        stack=r.StackBounds(low=hex_addr(crash.stack[0]), high=hex_addr(crash.stack[1])) if crash.stack else None,
    )
