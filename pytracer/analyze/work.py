"""What a process is to the framework that started it, and what it was doing: "Ray actor Trainer", a test, a cell.

From what the recording has anyway: Python stacks, what the program or a plugin noted, the name of the main thread, the
command line. Unknown is None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, Protocol

import msgspec
from msgspec import structs

from pytracer._library_files import of_multiprocessing
from pytracer.decode.types.journal import Doing
from pytracer.decode.types.records import Text
from pytracer.decode.types.snapshot import Crash, Snapshot

Found = Literal["Python stack", "recorded", "thread name", "command line"]
KINDS = ("test", "cell", "epoch")
_NAME_BYTES = 15  # of a thread, as the kernel keeps it


class Frame(Protocol):
    """A Python frame of a recording or of the report."""

    @property
    def function(self) -> str | None: ...  # noqa: D102

    @property
    def file(self) -> str | None: ...  # noqa: D102

    @property
    def line(self) -> int | None: ...  # noqa: D102


Frames = Sequence[Frame]


class Work(msgspec.Struct, frozen=True):
    """What a process is, and how that was found."""

    name: str
    found: Found


class Task(msgspec.Struct, frozen=True):
    """What a process was doing. `kind`: one of KINDS. `mono_ns`: since when; None when a stack shows it."""

    kind: str
    text: str
    mono_ns: int | None


# Where a framework's process runs through, innermost first where one calls the other: function, end of the file, name.
_PLACES = (
    ("_process_worker", "/concurrent/futures/process.py", "process pool worker"),
    ("worker", "/multiprocess/pool.py", "process pool worker"),
    ("_process_worker", "/loky/process_executor.py", "loky worker"),
    ("subprocess_started", "/uvicorn/_subprocess.py", "uvicorn worker"),
    ("init_process", "/gunicorn/workers/base.py", "gunicorn worker"),
    ("run_engine_core", "/vllm/v1/engine/core.py", "vLLM engine core"),
    ("worker_main", "/vllm/v1/executor/multiproc_executor.py", "vLLM worker"),
    ("run_scheduler_process", "/sglang/srt/managers/scheduler.py", "SGLang scheduler"),
    ("main", "/torch/_inductor/compile_worker/__main__.py", "torch compile worker"),
    ("submitit_main", "/submitit/core/submission.py", "submitit job"),
    ("<module>", "/ipykernel_launcher.py", "Jupyter kernel"),
)
# Titles that programs give themselves: the main thread has the first 15 bytes of them.
_TITLES = (
    ("VLLM::EngineCor", "vLLM engine core"),
    ("VLLM::Worker", "vLLM worker"),
    ("gunicorn: worke", "gunicorn worker"),
)
_ARGUMENTS = (
    ("/ray/_private/workers/default_worker.py", "Ray worker"),
    ("submitit.core._submit", "submitit job"),
    ("ipykernel_launcher", "Jupyter kernel"),
    ("torch/_inductor/compile_worker/__main__.py", "torch compile worker"),
)
_RAY_LOOP = ("main_loop", "/ray/_private/worker.py")
_RAY_METHOD = ("actor_method_executor", "/ray/_private/function_manager.py")
_PHASES = {f"pytest_runtest_{phase}": phase for phase in ("setup", "call", "teardown")}
_PROCESS = of_multiprocessing("process")


def work_of(snapshot: Snapshot, stack: Frames) -> Work | None:
    """What a process is; `stack`: its Python frames at the end, innermost first. The most specific source counts."""
    stacks = _stacks(snapshot.crash, stack)
    for find in (_of_ray, _of_xdist, _of_places):
        for frames in stacks:
            name = find(frames)
            if name is not None:
                return Work(_with_number(name, snapshot), "Python stack")
    title = _title(snapshot)
    if title is not None:
        return Work(title, "thread name")
    names = _noted_names(snapshot)
    if names:
        return Work(names[-1], "recorded")
    for argument in snapshot.argv[1:6]:
        for end, name in _ARGUMENTS:
            if argument.endswith(end):
                return Work(name, "command line")
    for frames in stacks:
        target = _target(frames)
        if target is not None:
            return Work(f"multiprocessing process running {target}", "Python stack")
    return None


def task_of(snapshot: Snapshot, stack: Frames) -> Task | None:
    """What a process was doing when it ended, as it noted; else the test that its stack runs through."""
    noted = [
        Task(fact.data.kind, fact.data.text, fact.mono_ns)
        for fact in snapshot.recorded(Doing)
        if fact.data.kind in KINDS and fact.mono_ns >= snapshot.created_mono_ns
    ]
    for event in snapshot.events:
        if event.kind == "MARK" and isinstance(event.data, Text):
            kind, colon, text = event.data.text.partition(": ")
            # Of both, the journal has the whole text.
            if colon and kind in KINDS and not any(item.text.startswith(text) for item in noted[-1:]):
                noted.append(Task(kind, text, event.mono_ns))
    stacks = _stacks(snapshot.crash, stack)
    if noted:
        last = max(noted, key=lambda item: item.mono_ns or 0)
        if last.kind == "cell" and last.text:
            return structs.replace(last, text=_cell(snapshot, last.text, stacks))
        phase = _phase(snapshot, last.mono_ns or 0, stacks) if last.kind == "test" else None
        return structs.replace(last, text=f"{last.text} ({phase})" if phase else last.text) if last.text else None
    for frames in stacks:
        test = _test(frames)
        if test is not None:
            return Task("test", test, None)
    return None


def _cell(snapshot: Snapshot, number: str, stacks: Sequence[Frames]) -> str:
    """`3, line 2: loss = step(x); in cell 1, line 7: ...`: where the cell was, and the cell of the innermost frame."""
    cells = {f.data.file: f.data for f in snapshot.recorded(Doing) if f.data.kind == "cell" and f.data.file}
    frames = next((found for found in stacks if any(frame.file in cells for frame in found)), ())
    inside = [(cells[frame.file], frame.line) for frame in frames if frame.file in cells]
    running = next((place for place in reversed(inside) if place[0].text == number), None)
    if running is None:
        last = next((cell for cell in cells.values() if cell.text == number), None)
        return f"{number}: {_source_line(last, None)}" if last is not None else number
    words = f"{number}, line {running[1]}: {_source_line(*running)}"
    if inside[0] != running:
        words += f"; in cell {inside[0][0].text}, line {inside[0][1]}: {_source_line(*inside[0])}"
    return words


def _source_line(cell: Doing, line: int | None) -> str:
    """A line of a cell; the first one with something in it when it is not known which."""
    lines = (cell.source or "").splitlines()
    if line is not None:
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return next((text.strip() for text in lines if text.strip()), "")


def _phase(snapshot: Snapshot, since_ns: int, stacks: Sequence[Frames]) -> str | None:
    """The phase of a test: the record may have been overwritten, and a thread's stack may not have it."""
    marks = [e.data.text for e in snapshot.events if e.mono_ns >= since_ns and isinstance(e.data, Text)]
    noted = [text.removeprefix("phase: ") for text in marks if text.startswith("phase: ")]
    running = [_PHASES[f.function] for frames in stacks for f in frames if f.function in _PHASES]
    return next(iter([*noted[-1:], *running]), None)


def _stacks(crash: Crash | None, stack: Frames) -> list[Frames]:
    others = [frames for _, frames in crash.python_threads] if crash is not None else []
    return [stack, *others]


def _is(frame: Frame, function: str, file: str | tuple[str, ...]) -> bool:
    return (frame.function or "").rpartition(".")[2] == function and (frame.file or "").endswith(file)


def _inside(frames: Frames, function: str, file: str | tuple[str, ...]) -> Frames | None:
    """The frames that a function called, innermost first; None if it does not run."""
    at = next((number for number, frame in enumerate(frames) if _is(frame, function, file)), None)
    return None if at is None else frames[:at]


def _outermost(frames: Frames, skipped: Callable[[str], bool]) -> str | None:
    """The qualified name of the first function that runs in no skipped file."""
    found = (frame.function for frame in reversed(frames) if frame.function and not skipped(frame.file or ""))
    return next(found, None)


def _of_ray(frames: Frames) -> str | None:
    inside = _inside(frames, *_RAY_LOOP)
    if inside is None:
        return None
    method = _inside(inside, *_RAY_METHOD)
    name = _outermost(inside if method is None else method, lambda file: "/ray/" in file)
    if method is None:
        return f"Ray task {name}" if name else None
    owner = name.rpartition(".")[0] if name else ""  # without qualified names, before CPython 3.11, it is not known
    return f"Ray actor {owner}" if owner else "Ray actor"


def _of_xdist(frames: Frames) -> str | None:
    return "pytest-xdist worker" if any((frame.file or "").endswith("/xdist/remote.py") for frame in frames) else None


def _of_places(frames: Frames) -> str | None:
    found = [place for frame in frames if (place := _place(frame.function or "", frame.file or "")) is not None]
    return _PLACES[min(found)][2] if found else None


@lru_cache(maxsize=4096)
def _place(function: str, file: str) -> int | None:
    """Which of _PLACES a frame is. Cached: the stacks of thousands of ranks have the same frames."""
    name = function.rpartition(".")[2]
    return next((at for at, place in enumerate(_PLACES) if name == place[0] and file.endswith(place[1])), None)


def _with_number(name: str, snapshot: Snapshot) -> str:
    """`pytest-xdist worker gw1`: the plugin notes it."""
    return next((text for text in _noted_names(snapshot) if text.startswith(f"{name} ")), name)


def _noted_names(snapshot: Snapshot) -> list[str]:
    """Its own: the journal of a forked process begins with its parent's."""
    facts = snapshot.recorded(Doing)
    return [f.data.text for f in facts if f.data.kind == "name" and f.mono_ns >= snapshot.created_mono_ns]


def _title(snapshot: Snapshot) -> str | None:
    crash = snapshot.crash
    names = {thread.name for thread in snapshot.threads if thread.tid == snapshot.pid}
    if crash is not None and crash.tid == snapshot.pid:
        names.add(crash.thread_name)
    for name in sorted(names):
        for title, words in _TITLES:
            if name.startswith(title):
                return words
        if name.startswith("ray::") and name != "ray::IDLE":
            return _ray_title(name)
    return None


def _ray_title(name: str) -> str:
    """`ray::Trainer.step` is an actor; `ray::train` a task, or an actor that is idle. The kernel cuts the name off."""
    owner, dot, _ = name.removeprefix("ray::").partition(".")
    if dot:
        return f"Ray actor {owner}"
    return f"Ray worker {owner}..." if len(name.encode()) >= _NAME_BYTES else f"Ray worker {owner}"


def _target(frames: Frames) -> str | None:
    inside = _inside(frames, "run", _PROCESS)
    return _outermost(inside, lambda file: "/pytracer/record/" in file) if inside else None


def _test(frames: Frames) -> str | None:
    """`test_step in test_train.py (call)`: what runs between pytest's hook for the phase and the program."""
    phase = next((_PHASES[f.function] for f in reversed(frames) if f.function in _PHASES), None)
    if phase is None:
        return None
    inside = next(
        (frames[:at] for at, f in enumerate(frames) if f.function in _PHASES and "/_pytest/" in (f.file or "")), ()
    )
    own = [f for f in inside if not re.search(r"/(_pytest|pluggy|pytest_\w+)/", f.file or "") and f.function]
    if not own:
        return None
    return f"{own[-1].function} in {(own[-1].file or '?').rpartition('/')[2]} ({phase})"
