"""What a process waited for when a signal from outside ended it: from the stacks that were taken then."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.deaths.ending import asked_to_end
from pytracer.analyze.evidence.cuda.device_calls import device_call, driver_call
from pytracer.analyze.evidence.cuda.device_waits import stands_in_driver
from pytracer.analyze.evidence.native.native_stack import image_name
from pytracer.analyze.evidence.waits.executor_threads import ends_executor, unfinished_task
from pytracer.analyze.evidence.waits.forked_pool import forked_pool
from pytracer.analyze.evidence.waits.forked_team import stands_without_team
from pytracer.analyze.evidence.waits.gil_waits import GilWait, gil_wait
from pytracer.analyze.evidence.waits.interop_threads import lacks_interop_threads, waits_for_task
from pytracer.analyze.evidence.waits.network_waits import asks_child, socket_wait
from pytracer.analyze.evidence.waits.pipes import has_copied_frames_only, pipe_wait
from pytracer.analyze.evidence.waits.pool_joins import joins_pool
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait, WaitKind
from pytracer.analyze.naming import place_words
from pytracer.analyze.parts import innermost_of_program, python_frame
from pytracer.analyze.view import ProcessView, is_handler_frame
from pytracer.decode.types.snapshot import Crash
from pytracer.decode.types.snapshot import PythonFrame as SnapshotFrame
from pytracer.report.job import NativeFrame, PythonFrame

_LIBC = Pattern(r"(libc|libpthread)[.-]")
_OPENMP = Pattern(r"(libgomp|libiomp5|libomp)\b")
_CHILD = Pattern(r"/(multiprocess(?:ing)?/popen_\w+|subprocess)\.py$")
_WITH_CHILD = ("Popen.communicate", "Popen._communicate")  # reads what it prints, until it ends
_DEBUGGER = Pattern(r"/(pdb|ipdb/__main__|IPython/(terminal|core)/debugger|pudb/debugger)\.py$")
_INPUT = ("builtin_input", "builtin_input_impl", "PyOS_Readline")
_OPEN = Pattern(r"_*(open|openat)(64)?(_nocancel)?$")  # glibc
_FLOCK = ("fcntl_flock", "fcntl_flock_impl", "fcntl_lockf", "fcntl_lockf_impl")
_QUEUE = Pattern(r"/(multiprocess(?:ing)?/queues|queue)\.py$")
_QUEUE_OR_LOCK = Pattern(r"/(multiprocess(?:ing)?/\w+|queue|threading|selectors)\.py$")
# The loops of workers; multiprocessing.pool's, in a file of _QUEUE_OR_LOCK, is known by its function.
_IDLE = Pattern(r"/(concurrent/futures/process|loky/process_executor|torch/utils/data/_utils/worker)\.py$")
_THREADS_OF_PYTHON = Pattern(r"/(threading|concurrent/futures/thread)\.py$")
_NOTICES = Pattern(r"/(multiprocess(?:ing)?/synchronize|threading|concurrent/futures/thread)\.py$")
_SEMAPHORES = Pattern(r"/multiprocess(?:ing)?/synchronize\.py$")
_ELASTIC = "/torch/distributed/elastic/rendezvous/"
_JOINS = ("Queue.join", "JoinableQueue.join")
_THREAD_JOINS = ("Thread._wait_for_tstate_lock", "Thread.join")
_AT_EXIT = ("_shutdown", "_python_exit")  # CPython: the end of the program waits for threads that are no daemons
_EVENT_LOOP = Pattern(r"/asyncio/base_events\.py$")
_IN_PROCESS = Pattern(r"/queue\.py$")
_FEEDER = Pattern(r"/multiprocess(?:ing)?/queues\.py$")
_SENDS = Pattern(r"/multiprocess(?:ing)?/(queues|resource_sharer)\.py$")
_POOL = Pattern(r"/multiprocess(?:ing)?/pool\.py$")
_RESULTS = ("wait", "get", "next")  # of AsyncResult, MapResult, IMapIterator
# torch's own, around the build of an extension; the package filelock, around caches of models and compiled code.
_LOCK_FILE = Pattern(r"/(torch/utils/file_baton|filelock/\w+)\.py$")
# CPython: Lock and RLock of threading, not Condition; those of multiprocessing.
_LOCK = ("PyThread_acquire_lock_timed", "_multiprocessing_SemLock_acquire_impl")
_UTIL = Pattern(r"/multiprocess(?:ing)?/util\.py$")
_FEEDER_JOIN = "Queue._finalize_join"  # CPython: the end of a process waits until its queues are read
_SLEEP = ("time_sleep", "pysleep")  # CPython: time.sleep()
_TURNS = ("take_gil", "_Py_write", "_Py_write_impl")  # CPython
_NEAR, _OTHER_THREADS = 5, 3  # frames, threads


def wait_of(view: ProcessView) -> ProcessWait | None:
    """None where the stacks show work, or a wait that is normal in an idle process, such as for a connection."""
    kind = _kind(view)
    if kind == "executor":
        task = unfinished_task(end_of(view))
        return ProcessWait(kind, task.at) if task is not None else None
    if kind == "thread-at-exit":
        name, at = _unfinished_thread(view)
        return ProcessWait(kind, at, name)
    if kind in ("unread-queue", "full-queue") and has_copied_frames_only(main_stack(view)):
        return ProcessWait(kind, None)
    at = waiting_frame(view)
    if kind == "workers" and (at is None or is_library_file(at.file)):  # the end of the program
        return ProcessWait(kind, None)
    return ProcessWait(kind, at) if kind is not None else None


def waiting_frame(view: ProcessView) -> PythonFrame | None:
    """The line of the program at which its main thread was, when a signal from outside met another thread."""
    stack = _main_python(view)
    return view.python_frame if stack is None else innermost_of_program(stack)


def main_stack(view: ProcessView) -> Sequence[PythonFrame]:
    """The main thread's, whichever thread the signal met."""
    return _main_python(view) or view.python_stack or ()


def meanwhile(view: ProcessView) -> PythonFrame | None:
    """The main thread's line of the program when another thread ended the process by _exit()."""
    snapshot = view.process.snapshot
    if snapshot.ending is None or snapshot.ending.tid == snapshot.pid:
        return None
    threads = snapshot.ending.python_threads
    frames = next((frames for pthread, frames in threads if pthread == snapshot.main_pthread), ())
    return innermost_of_program([python_frame(frame) for frame in frames])


def program_stack(view: ProcessView) -> list[PythonFrame]:
    """The main thread's lines of the program, innermost first, without those of libraries in between."""
    return [frame for frame in main_stack(view) if not is_library_file(frame.file)]


def at_program_end(stack: Sequence[PythonFrame]) -> bool:
    """Whether the end of the program runs what multiprocessing does there; a child of it has frames of its start."""
    return bool(stack) and _last_word(stack[-1]) == "_exit_function" and _UTIL.search(stack[-1].file or "") is not None


def called_by_program(view: ProcessView) -> str | None:
    """The function of a library that the main thread's innermost line of the program called: `Event.wait`."""
    stack = main_stack(view)
    at = next((place for place, frame in enumerate(stack) if not is_library_file(frame.file)), 0)
    return stack[at - 1].function if at else None


class OtherThread(msgspec.Struct, frozen=True):
    """A thread's line of the program, and the function of a library that this line called."""

    name: str | None
    at: PythonFrame
    within: str | None

    @property
    def words(self) -> str:
        """`the thread actor was at train.py:17 in fill, in Queue.put`."""
        within = f", in {self.within}" if self.within is not None else ""
        return f"{f'the thread {self.name}' if self.name else 'another thread'} was at {place_words(self.at)}{within}"


def other_threads(view: ProcessView) -> list[OtherThread]:
    """The program's other threads at that moment: one of them may hold what is waited for."""
    end, snapshot = end_of(view), view.process.snapshot
    own = waiting_frame(view)
    process = next((item.name for item in snapshot.threads if item.tid == snapshot.pid), None)
    names = {item.pthread: item.name for item in snapshot.threads if item.name != process}  # one without a name has its
    found = []
    for pthread, frames in end.python_threads if end is not None else ():
        at = next((number for number, item in enumerate(frames) if not is_library_file(item.file)), None)
        if at is not None and python_frame(frames[at]) != own:
            within = frames[at - 1].function if at else None
            found.append(OtherThread(names.get(pthread), python_frame(frames[at]), within))
    return found[:_OTHER_THREADS]


def _main_python(view: ProcessView) -> list[PythonFrame] | None:
    """The main thread's stack where another one took the signal: any thread may. None where it is the main thread's."""
    snapshot, end = view.process.snapshot, end_of(view)
    if end is None or view.is_fault or view.raised or end.tid == snapshot.pid:
        return None
    main = snapshot.main_pthread
    frames = next((frames for pthread, frames in end.python_threads if pthread == main), None)
    return [python_frame(frame) for frame in frames] if frames else None


def _taken_native(view: ProcessView) -> Sequence[NativeFrame]:
    """As _main_python: where its stack was taken."""
    end, pid = end_of(view), view.process.snapshot.pid
    own = next((item.native_stack for item in (end.threads if end is not None else ()) if item.tid == pid), ())
    return [NativeFrame(function=frame.function, image=frame.image) for frame in own]


def main_native(view: ProcessView) -> Sequence[NativeFrame]:
    """Of the main thread."""
    return before_signal(view) if _main_python(view) is None else _taken_native(view)


def end_of(view: ProcessView) -> Crash | None:
    """The record with the stacks of the end: of the crash, else of the signal that asked the process to end."""
    return view.crash if view.crash is not None else asked_to_end(view.process)


def called_of_driver(view: ProcessView) -> str | None:
    """`cuStreamCreateWithPriority`, in which its main thread was."""
    return driver_call(main_native(view))


def gil_of(view: ProcessView) -> GilWait | None:
    """The GIL that its main thread may have held while it waited in native code."""
    return gil_wait(view, end_of(view), main_native(view))


def was_asleep(view: ProcessView) -> bool:
    """Whether the end found it in time.sleep()."""
    return any(frame.function in _SLEEP for frame in main_native(view)[:_NEAR])


def takes_turn(view: ProcessView) -> bool:
    """Whether it was about to go on: it prints, or waits for its turn among the threads of Python."""
    return not was_asleep(view) and any(frame.function in _TURNS for frame in before_signal(view)[:_NEAR])


def _kind(view: ProcessView) -> WaitKind | None:
    main = _main_python(view)
    stack, native = (view.python_stack or []) if main is None else main, main_native(view)
    outside = next((frame for frame in native if not _LIBC.match(image_name(frame.image))), None)
    if outside is not None and _OPENMP.match(image_name(outside.image)):
        end = end_of(view)
        stands = end is not None and was_forked(view) and stands_without_team(view, end.mono_ns)
        return "forked-openmp" if stands else None
    if not stack:
        return None
    if waits_for_task(native) and was_forked(view) and lacks_interop_threads(end_of(view)):
        return "forked-tasks"
    if _lacks_threads(view) and forked_pool(view, end_of(view), stack, native) is not None:
        return "forked-native"
    inner, near = stack[0], stack[:_NEAR]
    if any(_last_word(frame) == "next_rendezvous" and _ELASTIC in (frame.file or "") for frame in stack):
        return "nodes"
    if any(_DEBUGGER.search(frame.file or "") for frame in stack):
        return "debugger"
    if _CHILD.search(inner.file or "") or any(frame.function in _WITH_CHILD for frame in near):
        return "child"
    called = _system_call(native)
    if called is not None:
        return called
    asked = socket_wait(native, stack)
    if asked is not None:
        return asked
    if device_call(native) is not None:
        return "device"
    if driver_call(native) is not None and stands_in_driver(view, end_of(view)):
        return "driver"
    if gil_of(view) is not None:
        return "gil"
    if _LOCK_FILE.search(inner.file or "") and _last_word(inner) in ("wait", "acquire"):
        return "lock-file"
    piped = pipe_wait(stack)
    if piped is not None:
        return piped
    if any(_QUEUE.search(frame.file or "") and _is(frame, _FEEDER_JOIN) for frame in near):
        return "unread-queue"
    if joins_pool(stack, end_of(view)):
        return "workers"
    if any(_THREADS_OF_PYTHON.search(frame.file or "") and frame.function in _AT_EXIT for frame in near):
        return "thread-at-exit"
    if ends_executor(stack, end_of(view)) and unfinished_task(end_of(view)) is not None:
        return "executor"
    if _THREADS_OF_PYTHON.search(inner.file or "") and _is(inner, *_THREAD_JOINS):
        return "thread"
    if _enters(inner) and _waits_for_copied_lock(view, native):  # put() of a queue takes its mutex so
        return "forked-lock"
    if any(_QUEUE.search(frame.file or "") and _last_word(frame) == "get" for frame in near):
        in_process = any(_IN_PROCESS.search(frame.file or "") for frame in near)
        return "forked-notice" if in_process and _lacks_threads(view) else _unless_idle(stack)
    if any(_QUEUE.search(frame.file or "") and _last_word(frame) == "put" for frame in near):
        return "full-queue"
    if any(_POOL.search(frame.file or "") and _last_word(frame) in _RESULTS for frame in near):
        return "pool"
    if _last_word(inner) == "select" and any(_EVENT_LOOP.search(frame.file or "") for frame in stack[1:2]):
        return "event-loop"
    noticed = _is(inner, "Condition.wait") and _NOTICES.search(inner.file or "")
    if noticed and _THREADS_OF_PYTHON.search(inner.file or "") and _lacks_threads(view):
        return "forked-notice"
    if any(_is(frame, *_JOINS) and _QUEUE.search(frame.file or "") for frame in near):
        return "undone"
    if any(frame.function == "Barrier.wait" and _NOTICES.search(frame.file or "") for frame in near):
        return "barrier"
    if noticed:
        return "notice"
    between = _enters(inner) and _SEMAPHORES.search(inner.file or "") is not None  # which does nothing else
    inner = next((frame for frame in stack[:_NEAR] if not _enters(frame)), inner)  # `with lock:`
    if _waits_for_copied_lock(view, native):
        return "forked-lock"
    locked = between or any(frame.function in _LOCK for frame in native[:_NEAR])
    if locked and not is_library_file(inner.file):
        return "lock"
    return "answer" if asks_child(view, native, stack) else None


def _waits_for_copied_lock(view: ProcessView, native: Sequence[NativeFrame]) -> bool:
    """Whether a forked child waits for a lock of its own memory, and no other thread there could release it."""
    named = [frame.function for frame in native[:_NEAR]]  # _LOCK[1] is of several processes: a fork changes nothing
    return _LOCK[0] in named and _LOCK[1] not in named and was_forked(view) and _lacks_threads(view)


def _enters(frame: PythonFrame) -> bool:
    """Whether it is the `with` of a lock or a Condition, in the library."""
    return _last_word(frame) == "__enter__" and _NOTICES.search(frame.file or "") is not None


def _system_call(native: Sequence[NativeFrame]) -> WaitKind | None:
    """A call that returns at once where all is well; by the innermost frames."""
    names = [frame.function or "" for frame in native[: _NEAR + 3]]
    if any(name in _FLOCK for name in names):
        return "flock"
    if any(name in _INPUT for name in names):
        return "input"
    first = next((frame for frame in native if frame.function is not None), None)
    is_open = first is not None and _OPEN.fullmatch(first.function or "") and _LIBC.match(image_name(first.image))
    return "open" if is_open else None


def is_between_processes(view: ProcessView) -> bool:
    """Whether the queue that it waits for is one of multiprocessing's."""
    stack = _main_python(view) or view.python_stack or []
    return any(_FEEDER.search(frame.file or "") for frame in stack[:_NEAR])


def _unless_idle(stack: Sequence[PythonFrame]) -> WaitKind | None:
    return None if _is_idle(stack) else "queue"


def _lacks_threads(view: ProcessView) -> bool:
    """Whether nobody in a forked child can end its wait: other threads only send what is in queues, and descriptors."""
    end = end_of(view)
    if end is None or not was_forked(view):
        return False
    own = [frames for _, frames in end.python_threads if not any(_SENDS.search(frame.file) for frame in frames)]
    return len(own) <= 1


def _is_idle(stack: Sequence[PythonFrame]) -> bool:
    """Whether a worker waits for its next task: what asked the queue is the loop of a pool or a DataLoader."""
    if any(_POOL.search(frame.file or "") and _last_word(frame) == "worker" for frame in stack[:_NEAR]):
        return True
    asked = next((frame for frame in stack if not _QUEUE_OR_LOCK.search(frame.file or "")), None)
    return asked is not None and _IDLE.search(asked.file or "") is not None


def kept_by_thread(view: ProcessView) -> ProcessWait | None:
    """The thread that a process waited for when its main thread had ended, perhaps by an exception."""
    ending = asked_to_end(view.process)
    main = ending.python_stack[:_NEAR] if ending is not None else ()
    if not any(_THREADS_OF_PYTHON.search(frame.file) and frame.function in _AT_EXIT for frame in main):
        return None
    name, at = _unfinished_thread(view)
    return ProcessWait("thread-at-exit", at, name)


def _is(frame: PythonFrame, *names: str) -> bool:
    """By a qualified name; CPython 3.10 has bare ones."""
    function = frame.function or ""
    return function in names or function in [name.rpartition(".")[2] for name in names]


def _last_word(frame: SnapshotFrame | PythonFrame) -> str:
    return (frame.function or "").rpartition(".")[2]


def _unfinished_thread(view: ProcessView) -> tuple[str | None, PythonFrame | None]:
    """The one thread with a line of the program's own: its name, as far as it is known, and that line."""
    ending = asked_to_end(view.process)
    names = {item.pthread: item.name for item in view.process.snapshot.threads}
    found = [
        (names.get(pthread), python_frame(own))
        for pthread, frames in (ending.python_threads if ending is not None else ())
        if (own := next((item for item in frames if not is_library_file(item.file)), None)) is not None
    ]
    return found[0] if len(found) == 1 else (None, None)


def before_signal(view: ProcessView) -> Sequence[NativeFrame]:
    """What the thread did when the signal came. In a DataLoader worker torch's handler sends it to itself once more."""
    native = view.native_stack or []
    handler = max((at for at, frame in enumerate(native) if is_handler_frame(frame)), default=-1)
    rest = native[handler + 1 :]
    return rest[1:] if handler >= 0 and rest and rest[0].function is None else rest  # where the kernel returns to


def was_forked(view: ProcessView) -> bool:
    """Whether it is a copy of its parent, without an exec() since: it has entries that are older than itself."""
    snapshot = view.process.snapshot
    return any(fact.mono_ns < snapshot.created_mono_ns for fact in snapshot.facts)
