"""A limit that was reached, in words: what the headline says, and what to do."""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import capital, size_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.numbers import number_at
from pytracer.analyze.evidence.failing.stored.opened import keeper
from pytracer.analyze.evidence.limits.kept_files import KeptFiles, kept_files
from pytracer.analyze.evidence.limits.kept_mappings import kept_mappings
from pytracer.analyze.evidence.limits.kept_tensors import KeptTensor, copy_words, kept_tensors, kept_words
from pytracer.analyze.evidence.limits.logger_files import logger_files
from pytracer.analyze.evidence.limits.numbers import (
    ADDRESS_SPACE,
    DATA,
    FILE_SIZE,
    FILES,
    MAPPINGS,
    PIDS,
    STACK,
    USER_THREADS,
    Numbers,
    recorded_numbers,
)
from pytracer.analyze.evidence.limits.reached import (
    MACHINE,
    MAYBE,
    SPARE_MAPPINGS,
    Reached,
    has_spare_files,
    mostly_files,
    reached_limit,
)
from pytracer.analyze.evidence.limits.setters import RESOURCES, Setter, setter_of
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

_NAMES = {ADDRESS_SPACE: "address space", DATA: "data (private memory)"}
_OPTIONS = {ADDRESS_SPACE: "v", DATA: "d", FILES: "n", FILE_SIZE: "f", USER_THREADS: "u"}
_MOST_SHARE = 0.5  # of what is in use
_NEAR = 0.1
_CONTAINER = Pattern(r"^(?:list|dict|set|tuple|deque|defaultdict|OrderedDict) of (\d+)$")
_FLOAT64 = Pattern(r"data type (float64|int64|complex128)")
_HALF = {"float64": "float32", "int64": "int32", "complex128": "complex64"}
_SHARED = ("/torch_", "/dev/shm/")
_SMALL, _PLENTY = 1 << 20, 1 << 30  # bytes
_LONG = 10_000


class LimitReason(msgspec.Struct, frozen=True):
    """`subject`: for the headline; `advice`: what to do; `behind`: lines that keep what is short, or set the limit.

    `line`: the one that keeps files open.
    """

    subject: str
    advice: str
    behind: Behind | None = None
    line: PythonFrame | None = None


def limit_reason(
    snapshot: Snapshot,
    exception: ExceptionReport | None,
    stack: Sequence[PythonFrame],
    raised: ExceptionReport | None = None,
    around: Sequence[PythonFrame] = (),
) -> LimitReason | None:
    """Of an exception that a limit explains; None for all others.

    Args:
        snapshot: The process that raised it.
        exception: With the recorded numbers.
        stack: Where it was raised, innermost first.
        raised: The one that the limit is asked about, where that is another one: a first one that was being handled.
        around: Lines of the program, innermost first, of a stack that has none: of a thread of a library.
    """
    numbers = recorded_numbers(exception.variables) if exception is not None else None
    if exception is None or numbers is None:
        return None
    told = raised or exception
    at = failing_line(snapshot, told, stack)
    found = reached_limit(told, stack, numbers)
    own = [frame for frame in stack if not is_library_file(frame.file)] or [*around]
    here = own[0].file if own else None
    most = found if found is not None else mostly_files(told, numbers)
    if most is not None and most.name == FILES and numbers.files is not None and _is_file(numbers.files[1]):
        files = kept_files(snapshot, own)
        if files is not None:
            return _of_kept_files(most, numbers, setter_of(snapshot, own, FILES, most.limit, here), files)
    if found is None and most is not None and numbers.files is not None and numbers.files[1].startswith(_SHARED):
        found = most  # what was received of the last batch is closed again
    if found is None:
        return _of_mmap(told, numbers, at)
    setter = setter_of(snapshot, own, found.name, found.limit, here) if own else None
    if found.name == STACK and setter is not None and not _is_spawned(snapshot):
        return None  # it set that later than its threads' stacks have their size from
    line = f"line {own[0].line}" if own and own[0].line is not None else "the line that is named"
    advice = {
        FILES: _of_files, FILE_SIZE: _of_size, MAPPINGS: _of_mappings, MACHINE: _of_machine, PIDS: _of_threads,
        USER_THREADS: _of_threads, STACK: _of_stack,
    }.get(found.name, _of_threads if found.matter in ("thread", "process") else _of_memory)  # fmt: skip
    if found.name == MAPPINGS and found.matter == "memory":
        counts = found.used or 0, found.limit
        maps = kept_mappings(snapshot, at, stack, own, _held(told), counts)
        return LimitReason(f"{_subject(found, numbers, setter)}{maps.words}", maps.advice, Behind.of([], maps))
    kept = _kept_tensors(found, numbers, at)
    subject = f"{_subject(found, numbers, setter)}{kept_words(kept)}{_others_words(kept, numbers, told)}"
    return LimitReason(subject, advice(found, numbers, setter, told, line, at), Behind.of([], setter, kept))


def _is_file(what: str) -> bool:
    return what.startswith("/") and not what.startswith((*_SHARED, "/dev/"))


def _of_kept_files(found: Reached, numbers: Numbers, setter: Setter | None, files: KeptFiles) -> LimitReason:
    """Where a single line of the program keeps them open."""
    count, what = numbers.files or (0, "")
    set_by = f", {setter.place}" if setter is not None else ""
    how = f"Raise the limit at {setter.place}" if setter is not None else capital(_raise(found, numbers, setter))
    return LimitReason(
        f"{count} of the {found.limit} file descriptors that it may have (RLIMIT_NOFILE{set_by}) are for "
        f"{'files like ' if '#' in what else ''}{os.path.basename(what)}; {files.words}",
        f"{files.advice} {how} only if so many are meant to be open at once.",
        Behind.of([], setter),
        files.at,
    )


def _kept_tensors(found: Reached, numbers: Numbers, at: FailingLine | None) -> list[KeptTensor]:
    """What the program keeps of tensors that it receives, where these hold its file descriptors."""
    shared = found.name == FILES and numbers.files is not None and numbers.files[1].startswith(_SHARED)
    return kept_tensors(at.slice) if shared and at is not None else []


def _others_words(kept: Sequence[KeptTensor], numbers: Numbers, told: ExceptionReport) -> str:
    """Where the containers are recorded, and hold far fewer than there are descriptors."""
    count = numbers.files[0] if numbers.files is not None else 0
    sizes = {item.name: int(size[1]) for item in told.variables or ()
             if item.value and (size := _CONTAINER.match(item.value)) is not None}  # fmt: skip
    lengths = [sizes.get(item.container) for item in kept]
    known = [item for item in lengths if item is not None]
    plain = len(known) == len(kept) > 0 and all(item.copied is not None for item in kept)
    if not plain or sum(known) >= count * _MOST_SHARE:
        return ""
    return f", which is {sum(known)} so far: the others may be kept elsewhere"


def _is_spawned(snapshot: Snapshot) -> bool:
    """Whether multiprocessing has started it as a program of its own."""
    return any("multiprocessing" in word and "spawn_main" in word for word in snapshot.argv)


def _subject(found: Reached, numbers: Numbers, setter: Setter | None) -> str:
    set_by = f", {setter.place}" if setter is not None else ""
    if found.name == FILES:
        most = f", {_kind(numbers)}" if _kind(numbers) else ""
        if found.used is not None and has_spare_files(found.used, found.limit):
            return (
                f"{found.used} of the {found.limit} file descriptors that it may have are in use "
                f"(RLIMIT_NOFILE{set_by}){most}: too few were left for what it was receiving"
            )
        return f"all {found.limit} file descriptors that it may have are in use (RLIMIT_NOFILE{set_by}){most}"
    if found.name == FILE_SIZE:
        return f"files of this process are limited to {size_words(found.limit)} (RLIMIT_FSIZE{set_by})"
    if found.name == MAPPINGS:
        full = found.used is None or found.used >= found.limit - SPARE_MAPPINGS
        return (
            f"it has {found.used} mappings of memory, as many as vm.max_map_count ({found.limit}) allows; it is not "
            "memory that is short"
            if full
            else f"it has {found.used} of the {found.limit} mappings of memory that vm.max_map_count allows; it is not "
            "memory that is short"
        )
    if found.name == PIDS:
        return f"{found.used} of the {found.limit} processes and threads that its cgroup allows (pids.max) are in use"
    if found.name == USER_THREADS:
        return (
            f"it has {found.used} threads itself, and {found.limit} threads are all that its user may have "
            f"(RLIMIT_NPROC{set_by})"
        )
    if found.name == STACK:
        return (
            f"each new thread is to have a stack of {size_words(found.limit)} (RLIMIT_STACK{set_by}), more than the "
            f"whole machine has, {size_words(found.machine or 0)}"
        )
    if found.name == MACHINE:
        return f"that is more than the whole machine has, {size_words(found.limit)}"
    where = f"{_NAMES.get(found.name, found.name)} of the process is limited to {size_words(found.limit)}"
    room = f", {size_words(min(found.used or 0, found.limit))} of which were in use"
    threads = _threads_words(numbers) if found.matter == "thread" else ""
    return f"the {where} ({RESOURCES[found.name]}{set_by}){room}{threads}"


def _kind(numbers: Numbers) -> str:
    """`192 of them for files like /data/tile_#.raw`."""
    if numbers.files is None or numbers.files[0] < _MOST_SHARE * (numbers.used(FILES) or 0):
        return ""
    count, what = numbers.files
    if what.startswith(_SHARED):
        return f"{count} of them for tensors in shared memory"
    if what.startswith("/"):
        return f"{count} of them for {'files like ' if '#' in what else ''}{what}"
    return f"{count} of them are {_DESCRIPTORS.get(what, what)}"


_DESCRIPTORS = {"socket": "sockets", "pipe": "ends of pipes", "anon_inode:[eventpoll]": "event loops (epoll)"}


def _threads_words(numbers: Numbers) -> str:
    if numbers.threads is None or numbers.threads[0] < _MOST_SHARE * (numbers.used("threads") or 0):
        return ""
    count, name = numbers.threads
    return f"; {count} of its {numbers.used('threads')} threads are `{name}`"


def _raise(found: Reached, numbers: Numbers, setter: Setter | None) -> str:
    """How to raise it."""
    if setter is not None:
        return f"raise that limit at {setter.place} (`{setter.text}`)"
    option = _OPTIONS.get(found.name)
    hard = numbers.hard(found.name)
    if hard is not None and hard > found.limit:
        amount = size_words(hard) if found.name in (ADDRESS_SPACE, DATA, FILE_SIZE) else str(hard)
        return f"raise that limit before the start (`ulimit -S{option}`; without root up to {amount} here)"
    where = f"`ulimit -{option}` in its shell, the batch system's or service's limit"
    return f"raise that limit where the job is started ({where})"


def _of_files(
    found: Reached, numbers: Numbers, setter: Setter | None, told: ExceptionReport, line: str, at: FailingLine | None
) -> str:
    count, what = numbers.files or (0, "")
    kept = _kept(told, count, at) if count > (found.used or 0) * _NEAR else ""  # else no kind is what fills them
    how = capital(_raise(found, numbers, setter))
    tensors = _kept_tensors(found, numbers, at)
    if tensors:
        return f"{copy_words(tensors)} {how} only as a stopgap."
    if what.startswith(_SHARED):
        return (
            "Each tensor that another process sent, or that was moved to shared memory, holds a descriptor for as "
            "long as it lives: keep no received tensors (clone() or .item() what is kept), or call "
            "torch.multiprocessing.set_sharing_strategy('file_system') at the start of all processes. "
            f"{kept}{how} only as a stopgap."
        )
    if what == "anon_inode:[eventpoll]" or (what == "socket" and "asyncio" in _library(told)):
        return (
            f"{kept}Each event loop holds an epoll descriptor and two sockets: close() each when it is done, or "
            f"use one loop for all (asyncio.run() closes its own). {how} only as a stopgap."
        )
    if what == "socket":
        return f"{kept}Close each connection after its use, or keep a bounded pool of them. {how} if so many are meant."
    if what == "pipe":
        return (
            f"{kept}Pipes belong to child processes, queues and pools: join() and close() those that are done, make "
            f"them once instead of in a loop. {how} if so many are meant."
        )
    handlers = logger_files(at) if at is not None else None
    if handlers is not None:
        return f"{handlers} {how} only if so many are meant to be open at once."
    return (
        f"{kept}Open each file by `with` where it is read, or keep a bounded number and close the oldest. {how} only "
        "if so many are meant to be open at once."
    )


def _library(told: ExceptionReport) -> str:
    return " ".join(frame.file or "" for frame in told.python_stack or ())


def _kept(told: ExceptionReport, count: int, at: FailingLine | None) -> str:
    """The one variable whose length is about that of the commonest descriptors; or into which the line opens them."""
    found = {
        (item.name, item.value)
        for item in _held(told)
        if item.name and item.value and (size := _CONTAINER.match(item.value)) is not None
        if count and any(abs(int(size[1]) - most) <= max(2, _NEAR * most) for most in (count, count // 2))
    }
    if len(found) == 1:
        name, value = found.pop()
        return f"`{name}` ({value}) most likely keeps them open. "
    into = keeper(at) if at is not None else None
    return f"Line {at.line} keeps each in `{source(into)}`. " if into is not None and at is not None else ""


def _of_size(
    found: Reached, numbers: Numbers, setter: Setter | None, told: ExceptionReport, line: str, at: FailingLine | None
) -> str:
    room = "Where the disk has room (`df -h`)" if found.matter == MAYBE else "The disk is not full"
    return (
        f"{room}: {_raise(found, numbers, setter)}, or write several smaller files at {line}. What was "
        "written until then is cut off: delete it."
    )


def _of_mappings(
    found: Reached, numbers: Numbers, setter: Setter | None, told: ExceptionReport, line: str, at: FailingLine | None
) -> str:
    if found.matter == "thread":
        return (
            f"Each thread takes two mappings: let threads end, or use a pool of few; or raise the limit (sysctl -w "
            f"vm.max_map_count=...).{_piled(numbers, line)}"
        )
    return (
        f"Each mmap is a mapping of its own. Make few large ones at {line} (one for all items of a kind, and its "
        f"slices or views), or raise the limit (as root: sysctl -w vm.max_map_count={4 * found.limit})."
    )


def _of_mmap(told: ExceptionReport, numbers: Numbers, at: FailingLine | None) -> LimitReason | None:
    """By elimination, where what had been mapped was released before it could be counted."""
    call = at.only(ast.Call) if at is not None and at.own else None
    left, limit = numbers.values.get("machine memory left"), numbers.limit(MAPPINGS)
    if call is None or called_name(call) != "mmap" or not (told.message or "").startswith("[Errno 12]"):
        return None
    if left is None or limit is None or left < _PLENTY or numbers.limit(ADDRESS_SPACE) or numbers.limit(DATA):
        return None
    asked = number_at(at, call.args[1]) if at is not None and len(call.args) > 1 else None
    if not isinstance(asked, int) or asked >= _PLENTY:
        return None
    return LimitReason(
        f"most likely it had as many mappings of memory as vm.max_map_count ({limit}) allows: memory was not short "
        f"({size_words(left)} were available)",
        _of_mappings(Reached(MAPPINGS, limit, None, "memory"), numbers, None, told, f"line {call.lineno}", at),
    )


def _of_machine(
    found: Reached, numbers: Numbers, setter: Setter | None, told: ExceptionReport, line: str, at: FailingLine | None
) -> str:
    return (
        f"No limit is at fault, but the size that {line} asks for: {size_words(found.asked or 0)} at once, on a "
        f"machine with {size_words(found.limit)}. Look at the shape that it makes (a broadcast or outer product of two "
        "large arrays, a wrong size), and compute it in blocks."
    )


def _of_threads(
    found: Reached, numbers: Numbers, setter: Setter | None, told: ExceptionReport, line: str, at: FailingLine | None
) -> str:
    piled = _piled(numbers, line) if found.matter == "thread" else ""
    if found.name == PIDS:
        how = (
            "Raise the limit of the container (docker --pids-limit, Kubernetes podPidsLimit, systemd TasksMax), or "
            "start fewer: DataLoader workers, and threads of each (OMP_NUM_THREADS, torch.set_num_threads())."
        )
        return f"{piled}{how}".lstrip()
    how = capital(_raise(found, numbers, setter))
    if found.name == ADDRESS_SPACE:
        return (
            f"{piled}Each thread reserves its stack ({size_words(found.asked or 0)}) of the address space, and most "
            "also 64 MiB or more for what they allocate (MALLOC_ARENA_MAX=2 keeps these few). "
            f"{how}, or make the stacks smaller (threading.stack_size(), `ulimit -s`)."
        )
    return f"{piled}{how}, or start fewer threads and processes (OMP_NUM_THREADS, DataLoader workers)."


def _of_stack(
    found: Reached, numbers: Numbers, setter: Setter | None, told: ExceptionReport, line: str, at: FailingLine | None
) -> str:
    where = f" at {setter.place}" if setter is not None else " (resource.setrlimit(RLIMIT_STACK), `ulimit -s`)"
    return (
        f"Set a smaller one{where}, or set it back before processes are started: it is inherited, and a program takes "
        "it at its start as the size of the stacks of all its threads (spawned DataLoader workers, too). For deep "
        "recursion make one thread after threading.stack_size(1 << 30), and set that back to 0."
    )


def _piled(numbers: Numbers, line: str) -> str:
    """Threads of one kind that never ended."""
    if not _threads_words(numbers) or numbers.threads is None:
        return ""
    return (
        f"{numbers.threads[0]} threads of one kind (`{numbers.threads[1]}`) are alive at once, and {line} starts one "
        "more: let them end and join() them, or use one worker with a queue (ThreadPoolExecutor(max_workers=...)). "
    )


def _of_memory(
    found: Reached, numbers: Numbers, setter: Setter | None, told: ExceptionReport, line: str, at: FailingLine | None
) -> str:
    left, total = numbers.values.get("machine memory left"), numbers.values.get("machine memory")
    free = (
        f"the machine had {size_words(left)} of {size_words(total)} left"
        if left is not None and total is not None and left > (found.asked or _SMALL)
        else ""
    )
    asked = f"{size_words(found.asked)} more did not fit into that limit" if found.asked is not None else ""
    how = _raise(found, numbers, setter)
    met = capital("; ".join(filter(None, (asked, free))))
    raised = f"{met}: {how}" if met else capital(how)
    wide = _FLOAT64.search(told.message or "")
    less = f"; {_HALF[wide[1]]} in place of {wide[1]} would need half at {line}" if wide is not None else ""
    resident = numbers.used("memory")
    reserved = (
        f" Only {size_words(resident)} of it were in RAM: what is reserved counts as well (stacks of threads, mapped "
        "files, libraries)."
        if found.name == ADDRESS_SPACE and resident is not None and found.used and resident < found.used * _MOST_SHARE
        else ""
    )
    inherited = " Processes inherit it from who started them." if setter is None else ""
    return f"{raised}, or need less{less}.{inherited}{_grown(told)}{reserved}"


def _grown(told: ExceptionReport) -> str:
    """The longest container of the frames, where it is long."""
    found = [
        (int(size[1]), item.name, item.value)
        for item in _held(told)
        if item.name and item.value and (size := _CONTAINER.match(item.value)) is not None
    ]
    most = max(found, default=None)
    return f" Look at `{most[1]}` first ({most[2]})." if most is not None and most[0] >= _LONG else ""


def _held(told: ExceptionReport) -> list[VariableReport]:
    """The variables of all frames."""
    return [*(told.variables or ()), *(item for outer in told.outer or () for item in outer.variables or ())]
