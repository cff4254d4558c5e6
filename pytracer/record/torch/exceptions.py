"""Uncaught Python exceptions: those that reach sys.excepthook, and those that multiprocessing catches before."""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING

from pytracer._library_files import counted_as_program
from pytracer._started_package import is_file_of_user, started_package
from pytracer.blackbox.numbers import ON_FETCH, ON_PRINT, ON_PUT, ON_TASK, Entry
from pytracer.record.bootstrap.dynamo import unseen
from pytracer.record.bootstrap.import_hook import when_imported
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core
from pytracer.record.torch.descriptors import may_lack_room, room_for_files

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

MESSAGE_CHARACTERS = 4000
_END_CHARACTERS = 1400
_KEYS_CHARACTERS = 1200  # of the keys that load_state_dict() misses, and again of those that it does not expect
FRAMES = 64
OUTERMOST = 24  # of a deeper stack
CONTEXTS = 4
_LONGEST_CHAIN = 1000

_LATER = ("frame_variables", "near_names", "gradient_state", "changed_parameter", "refused_item", "refused_text",
          "batch_indices", "opened_file", "limits", "taken_port", "child_statuses", "subnormals", "unfit_state",
          "earlier_warnings", "called_command")  # fmt: skip
_MOST_OF_POOLS = 4  # exceptions of one process
_MOST_OF_THREADS = 8  # that call sys.excepthook themselves and go on, such as multiprocessing.resource_sharer's
_HANDED_OVER = (
    ("multiprocessing.pool", "ExceptionWithTraceback"),
    ("concurrent.futures.process", "_ExceptionWithTraceback"),
)

_patches = Patches()
_installed: Callable[..., object] | None = None
_previous: Callable[..., object] | None = None


def install(box: Core) -> None:
    """Chains sys.excepthook and wraps multiprocessing's entry; calls the previous ones unchanged."""
    global _installed, _previous
    if _installed is not None:
        return
    previous = _previous = sys.excepthook
    of_threads = 0

    @functools.wraps(previous)
    def excepthook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        nonlocal of_threads
        is_main = threading.get_ident() == threading.main_thread().ident
        of_threads += not is_main  # several at once may count as one: a few more are written then
        if is_main or of_threads <= _MOST_OF_THREADS:
            write(box, value, trace)
        previous(kind, value, trace)
        _tell_of_other_death(box, value)

    _installed = sys.excepthook = excepthook
    if may_lack_room():
        _import_now()
    when_imported("multiprocessing.process", lambda: _wrap_processes(box, excepthook))
    for module, name in _HANDED_OVER:
        when_imported(module, functools.partial(_wrap_pool, box, excepthook, module, name))


def _import_now() -> None:
    """What `write` imports when it is needed: importing takes a file descriptor."""
    with contextlib.suppress(Exception):
        for name in _LATER:
            importlib.import_module(f"pytracer.record.torch.{name}")


def _tell_of_other_death(box: Core, error: BaseException) -> None:
    try:
        from pytracer.record import relayed  # not before: few programs end so

        relayed.tell(box, error)
    except Exception:
        box.lib.pytracer_count_hook_error()


def _wrap_processes(box: Core, hook: Callable[..., object]) -> None:
    if _installed is not hook:  # disabled meanwhile
        return
    from multiprocessing.process import BaseProcess, current_process

    name = current_process().name
    if name != "MainProcess":  # started by spawn, and torch is imported by what it runs
        _write_name(box, name)
    recorded = 0

    def recording(run: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(run)
        def run_and_record(self: BaseProcess, /, *args: object, **keywords: object) -> object:
            nonlocal recorded
            if current_process() is not self:  # the program calls it itself, in another process
                return run(self, *args, **keywords)
            _write_name(box, self.name)
            _note_printed(box)
            try:
                return run(self, *args, **keywords)
            except Exception as error:  # multiprocessing prints it and exits with 1; excepthook is not called
                if recorded != id(error):  # a run() that calls that of its base
                    recorded = id(error)
                    write(box, error, error.__traceback__)
                raise

        return run_and_record

    def wrap_own(kind: type[BaseProcess]) -> None:
        run = kind.__dict__.get("run")
        if isinstance(run, FunctionType) and _installed is hook:
            _patches.replace(kind, "run", recording(run))

    def init_subclass(kind: type[BaseProcess], /, **keywords: object) -> None:
        super(BaseProcess, kind).__init_subclass__(**keywords)
        wrap_own(kind)

    waiting: list[type[BaseProcess]] = [BaseProcess]
    for kind in waiting:  # those that were made before
        wrap_own(kind)
        waiting += kind.__subclasses__()
    _patches.replace(BaseProcess, "__init_subclass__", classmethod(init_subclass))


def _wrap_pool(box: Core, hook: Callable[..., object], module: str, name: str) -> None:
    """A pool's process sends an exception to the one that asked as a text: without the variables of the line."""
    kind = getattr(sys.modules.get(module), name, None)
    made = getattr(kind, "__init__", None)
    if _installed is not hook or kind is None or made is None:
        return
    count = 0

    @functools.wraps(made)
    def record_and_make(self: object, error: BaseException, trace: object) -> None:
        nonlocal count
        if count < _MOST_OF_POOLS and box.recording and isinstance(trace, TracebackType):
            count += 1
            write(box, error, trace, on_its_way=ON_FETCH)
        made(self, error, trace)

    _patches.replace(kind, "__init__", record_and_make)


def _write_name(box: Core, name: str) -> None:
    """The program may have chosen it: `Process(name=...)`."""
    if box.recording:
        box.journal(Entry.DOING, {"kind": "name", "text": f"multiprocessing process {name}"[:MESSAGE_CHARACTERS]})


def _note_printed(box: Core) -> None:
    """Of a worker, which may catch and print why it ends."""
    try:
        from pytracer.record.torch import printed  # not before: only workers need it

        printed.install(box)
    except Exception:
        box.lib.pytracer_count_hook_error()


def uninstall() -> None:
    """Restores what is still ours."""
    global _installed, _previous
    if _installed is not None and sys.excepthook is _installed and _previous is not None:
        sys.excepthook = _previous
    _installed = _previous = None
    _patches.put_back()
    printed = sys.modules.get("pytracer.record.torch.printed")
    if printed is not None:
        printed.uninstall()


@unseen
def write(
    box: Core,
    error: BaseException,
    trace: TracebackType | None,
    *,
    on_its_way: str | None = None,
    seen: Sequence[dict[str, str]] = (),
) -> None:
    """Writes an EXCEPTION entry. Never raises: the current exception matters more.

    `on_its_way`: the function that runs before the exception reached the top; it may still be caught. `seen`: as
    variables, besides those of its frames.
    """
    recorded = id(error)
    try:
        with room_for_files(error), _program_is_known(trace):
            _write(box, error, trace, on_its_way, seen)
        # Those may reach the top later, or their address be another one's.
        if on_its_way not in (ON_PUT, ON_TASK, ON_PRINT):
            box.lib.pytracer_exception_recorded(
                recorded
            )  # on its way to the default hook the core would record it, too
    except Exception:
        box.lib.pytracer_count_hook_error()


@contextlib.contextmanager
def _program_is_known(trace: TracebackType | None) -> Iterator[None]:
    """Where no file of the user's was run, the package that the process was started from is the program."""
    files = []
    while trace is not None:
        files.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    name = None if any(map(is_file_of_user, files)) else started_package(sys.orig_argv)
    with counted_as_program([name] if name else ()):
        yield


def _write(
    box: Core,
    error: BaseException,
    trace: TracebackType | None,
    on_its_way: str | None,
    seen: Sequence[dict[str, str]],
) -> None:
    error, trace, around = _first_of_group(error, trace)
    box.journal(
        Entry.EXCEPTION,
        {
            "type": _name(type(error)),
            "message": _begin_and_end(_message(error)),
            "thread": threading.current_thread().name,
            "python_stack": [*_stack(trace), *around][:FRAMES],
            **_outermost(trace, around),
            "context": _chain(error),
            "variables": [
                *_variables(trace),
                *_gradients(error, trace),
                *_of_input(error, trace),
                *seen,
                *_kept_tensors(error, trace),
            ],
            **_near_names(error, trace),
            **_warnings(),
            **_remote_traceback(error),
            **({"on_its_way": on_its_way} if on_its_way else {}),
            **_device_events(box),
        },
    )


def _device_events(box: Core) -> dict[str, int]:
    """What the devices' allocators free from here on, they free because the process ends."""
    events = 0 if hasattr(sys, "ps1") else box.lib.pytracer_device_events()
    return {"device_events": events} if events else {}


def _first_of_group(
    error: BaseException, trace: TracebackType | None
) -> tuple[BaseException, TracebackType | None, list[dict[str, object]]]:
    """Of an exception group, as asyncio.TaskGroup raises, its first exception, and the frames that the group adds."""
    group, around = getattr(builtins, "BaseExceptionGroup", None), list[dict[str, object]]()
    while group is not None and isinstance(error, group):
        inner = group.exceptions.__get__(error)  # not an attribute that a subclass may have
        if not inner or len(around) >= FRAMES:
            break
        around = [*_stack(trace), *around]
        error, trace = inner[0], inner[0].__traceback__
    return error, trace, around


def _variables(trace: TracebackType | None) -> list[dict[str, str]]:
    try:
        from pytracer.record.torch.frame_variables import variables_of

        return variables_of(trace)
    except Exception:  # an object that is not what its type says
        return []


def _gradients(error: BaseException, trace: TracebackType | None) -> list[dict[str, str]]:
    try:
        from pytracer.record.torch.changed_parameter import changed_parameter
        from pytracer.record.torch.gradient_state import gradient_state
        from pytracer.record.torch.refused_item import refused_item
        from pytracer.record.torch.unfit_state import unfit_state

        found = [*gradient_state(error, trace), *changed_parameter(error, trace), *refused_item(error)]
        return [*found, *unfit_state(error, trace)]
    except Exception:  # torch itself may have failed to import
        return []


def _of_input(error: BaseException, trace: TracebackType | None) -> list[dict[str, str]]:
    """The samples of the batch, the file, limits, who has the port, what becomes of statuses, the thread's mode."""
    try:
        from pytracer.record.torch.batch_indices import batch_indices
        from pytracer.record.torch.called_command import called_command
        from pytracer.record.torch.child_statuses import child_statuses
        from pytracer.record.torch.limits import limits_at
        from pytracer.record.torch.opened_file import opened_file
        from pytracer.record.torch.refused_text import refused_text
        from pytracer.record.torch.subnormals import subnormals_at
        from pytracer.record.torch.taken_port import taken_port

        files = [*batch_indices(trace), *opened_file(error, trace), *limits_at(error), *taken_port(error, trace)]
        return [*files, *refused_text(error, trace), *child_statuses(), *subnormals_at(), *called_command(error)]
    except Exception:
        return []


def _kept_tensors(error: BaseException, trace: TracebackType | None) -> list[dict[str, str]]:
    try:
        from pytracer.record.torch.kept_tensors import kept_tensors

        return kept_tensors(error, trace)
    except Exception:  # a container that another thread changes
        return []


def _near_names(error: BaseException, trace: TracebackType | None) -> dict[str, object]:
    """And which expression of its line failed."""
    try:
        from pytracer.record.torch.frame_variables import failing_columns, outer_variables
        from pytracer.record.torch.near_names import near_names

        found = {"columns": failing_columns(trace), "near": near_names(error, trace), "outer": outer_variables(trace)}
    except Exception:
        return {}
    return {name: value for name, value in found.items() if value}


def _warnings() -> dict[str, object]:
    try:
        from pytracer.record.torch.earlier_warnings import earlier_warnings

        found = earlier_warnings()
    except Exception:  # a module that is none
        return {}
    return {"warnings": found} if found else {}


def _chain(error: BaseException) -> list[dict[str, object]]:
    """With the variables of the first one that ran a line of the program: it is often the reason of the others."""
    contexts = _contexts(error)
    found = [_handled(item) for item in contexts]
    try:
        from pytracer.record.torch.frame_variables import of_program, variables_of
        from pytracer.record.torch.opened_file import opened_file

        for item, words in zip(contexts[::-1], found[::-1], strict=True):
            if of_program(item.__traceback__) is not None:
                words["variables"] = [*variables_of(item.__traceback__), *opened_file(item, item.__traceback__)]
                words.update(_near_names(item, item.__traceback__))
                break
    except Exception:  # an object that is not what its type says
        return found
    return found


def _contexts(error: BaseException) -> list[BaseException]:
    """What was being handled when it was raised, and so on, as Python prints it. Newest first.

    Where a handler tried again without end, each try struck the limit on its way back, too: not those.
    """
    found: list[BaseException] = []
    at, endless = _before(error), isinstance(error, RecursionError)
    for _ in range(_LONGEST_CHAIN):
        if at is None or len(found) >= CONTEXTS:
            break
        if not (endless and isinstance(at, RecursionError)):
            found.append(at)
        at = _before(at)
    return found


def _before(error: BaseException) -> BaseException | None:
    if error.__cause__ is not None or error.__suppress_context__:
        return error.__cause__
    return error.__context__


def _handled(error: BaseException) -> dict[str, object]:
    message = _begin_and_end(_message(error))
    return {"type": _name(type(error)), "message": message, "python_stack": _stack(error.__traceback__)}


def _name(kind: type[BaseException]) -> str:
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception class with a broken __str__
        return "(its message could not be made)"


def _begin_and_end(message: str) -> str:
    """Of a long message also its last lines: those of torch.compile name the program's line there."""
    if len(message) <= MESSAGE_CHARACTERS:
        return message
    if "key(s) in state_dict: " in message:
        message = "\n".join(
            _first_keys(line) if "key(s) in state_dict: " in line else line for line in message.split("\n")
        )
    if len(message) <= MESSAGE_CHARACTERS:
        return message
    left = "\n[...]\n"
    return f"{message[: MESSAGE_CHARACTERS - len(left) - _END_CHARACTERS]}{left}{message[-_END_CHARACTERS:]}"


def _first_keys(line: str) -> str:
    """Of hundreds of keys the first, and how many more there are: the other line of keys tells as much."""
    cut = line.rfind('", ', 0, _KEYS_CHARACTERS)
    more = line.count('", ', cut + 1)
    return line if len(line) <= _KEYS_CHARACTERS or cut < 0 else f'{line[:cut]}", and {more + 1} more.'


def _remote_traceback(error: BaseException) -> dict[str, str]:
    """What a pool's process wrote of the exception that its parent raises again: the text of its cause.

    RemoteTraceback of multiprocessing.pool, _RemoteTraceback of concurrent.futures and of joblib's loky.
    """
    cause = error.__cause__
    if cause is None or type(cause).__name__.lstrip("_") != "RemoteTraceback":
        return {}
    return {"remote_traceback": _message(cause)[-MESSAGE_CHARACTERS:]}


def _outermost(trace: TracebackType | None, around: Sequence[dict[str, object]]) -> dict[str, object]:
    """Of a stack that is deeper than what is written of it: its other end, where what repeats was begun."""
    frames = [*_frames(trace), *around]
    if len(frames) <= FRAMES:
        return {}
    return {"outermost": frames[FRAMES:][-OUTERMOST:], "frame_count": len(frames)}


def _stack(trace: TracebackType | None) -> list[dict[str, object]]:
    return _frames(trace)[:FRAMES]


def _frames(trace: TracebackType | None) -> list[dict[str, object]]:
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        frames.append({"function": name, "file": code.co_filename, "line": trace.tb_lineno})
        trace = trace.tb_next
    return frames[::-1]
