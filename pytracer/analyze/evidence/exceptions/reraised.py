"""An exception of another process or thread that was raised again: a text with it holds the first one's traceback."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import uncapital
from pytracer.analyze.evidence.exceptions.telling import has_facts, telling_words
from pytracer.report.job import ExceptionReport, HandledExceptionReport, PythonFrame

# torch._utils.ExceptionWrapper and torch.multiprocessing.spawn, and what Python prints of a traceback.
_WHERE = Pattern(r"^Caught \w+ (in [^\n]{1,120}?)\.\n|^\s*-- (Process \d+) terminated with the following error:")
_HEAD = "Traceback (most recent call last):\n"
_FRAME = Pattern(r'^ *File "([^"\n]{1,1000})", line (\d{1,9}), in (\S{1,200})$', re.MULTILINE)
_RAISED = Pattern(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")
# Ray 2.x: RayTaskError, also inside the text of ray.train.WorkerGroupError. It has coloured the name since 2.0.
_COLOUR = Pattern(r"\x1b\[[\d;]*m")
_RAY = Pattern(r"^(ray::[^\n]{1,200}?\(\)) \(pid=(\d{1,9}), ", re.MULTILINE)


# Any other text with a traceback; torch.distributed.checkpoint's CheckpointException has one of each rank that failed.
_WITHIN = Pattern(r"^Traceback \(most recent call last\):(?: \(RANK (\d{1,9})\))?[ ]*$", re.MULTILINE)
_NEXT = Pattern(r"^(?:Traceback \(most recent call last\)|The above exception was|During handling of the above)")

# ray.train.WorkerGroupError (2.60, train/v2/_internal/execution/worker_group/poll.py), of each rank, or of all alike.
_RAY_TRAIN = Pattern(r"^\[Rank ([\d,]{1,200}) Error Snippet\]:\n", re.MULTILINE)


# What a library looks up and catches: no reason of its later errors.
_BUILT_IN = Pattern(
    r"^(?:KeyError|IndexError|AttributeError|ImportError|ModuleNotFoundError|StopIteration|TypeError|NameError)$"
)
# What loading raises of a worker that died while it sent.
_CUT_SHORT = ("EOFError", "OSError", "ConnectionResetError", "BrokenPipeError", "UnpicklingError")
_WRAPPER = "/pytracer/record/torch/dataloader_workers.py"  # the recorder's own, around a function of the program
_TEXTS = "_RemoteTraceback"  # concurrent.futures: holds the text of a traceback, which `remote_traceback` has
OF_POOL = "in a process of the pool"


class Reraised(msgspec.Struct, frozen=True):
    """The first exception: `where` is "in DataLoader worker process 1", `frame` its innermost line of the program.

    `pid`, `rank`: of the process that raised it, where the text has one of them. `innermost`: a library's, or `frame`.
    """

    type: str
    message: str
    where: str
    frame: PythonFrame | None
    pid: int | None = None
    rank: int | None = None
    innermost: PythonFrame | None = None

    @property
    def words(self) -> str:
        """`KeyError: 'cat'`."""
        words = telling_words(self.message)
        return f"{self.type}: {words}" if words else self.type


def reraised(exception: ExceptionReport | None) -> Reraised | None:
    """None where the exception is the first one, or its text was cut before the traceback ended."""
    if exception is None:
        return None
    if broken_by_loading(exception):
        return None  # of a thread of its own
    if exception.remote_traceback:
        return _first(exception.remote_traceback.strip().strip('"'), OF_POOL)
    text = exception.message or ""
    if (exception.type or "").startswith("ray."):
        return _by_ray(_COLOUR.sub("", text))
    told = _WHERE.search(text)
    if told is None:
        inner = _within(exception)
        own = inner is not None and inner.frame is not None and not is_library_file(inner.frame.file)
        own = (
            own and inner is not None and inner.where.startswith("in rank")
        )  # else the program may print what it caught
        return inner if own else None
    if _HEAD not in text:
        return None
    return _first(text.rpartition(_HEAD)[2], told[1] or f"in {uncapital(told[2])}")


def broken_by_loading(exception: ExceptionReport | None) -> bool:
    """Whether a pool was called broken as what a worker had sent could not be loaded, and not as one had died.

    CPython 3.9 to 3.14, concurrent/futures/process.py, terminate_broken(): only that has the text of a cause. It ends
    the pool's workers itself then.
    """
    kind = (exception.type or "").rpartition(".")[2] if exception is not None else ""
    if exception is None or kind != "BrokenProcessPool" or not exception.remote_traceback:
        return False
    error = loading_error(exception)
    return error is not None and error.type.rpartition(".")[2] not in _CUT_SHORT


def loading_error(exception: ExceptionReport) -> Reraised | None:
    """Of a pool that was called broken by that: the error of the thread that loads what workers send."""
    return _first((exception.remote_traceback or "").strip().strip("'\""), "in the pool's thread")


def reason_within(exception: ExceptionReport) -> ExceptionReport:
    """With the type and message of the exception whose traceback its text holds, if that ran no line of the program.

    Of several ranks' the first, as torch orders them; of a chain the last, which Python would have raised.
    """
    told = _within(exception)
    if told is None or told.frame is None or not is_library_file(told.frame.file):
        return exception
    return msgspec.structs.replace(exception, type=told.type, message=told.message)


def library_reason(exception: ExceptionReport) -> HandledExceptionReport | None:
    """The error that a library had caught when it raised one whose text has no fact; none by which it finds its way."""
    stack = exception.python_stack or []
    if has_facts(exception.message) or not stack or not is_library_file(stack[0].file):
        return None
    for item in exception.context or ():
        if any(not is_library_file(frame.file) for frame in item.python_stack or ()):
            return None
        if (item.type or "").endswith(_TEXTS):
            continue
        if has_facts(item.message) and _BUILT_IN.search(item.type or "") is None:
            return item
    return None


def _within(exception: ExceptionReport) -> Reraised | None:
    text = exception.message or ""
    heads = [*_WITHIN.finditer(text)]
    if not heads:
        return None
    rank = heads[0][1]
    own = heads if rank is None else [*itertools.takewhile(lambda head: head[1] in (rank, None), heads)]
    begin = own[-1].end()
    after = next((head.start() for head in heads if head.start() > begin), len(text))
    return _first(text[begin:after], f"in rank {rank}" if rank is not None else "before")


def _message(lines: Sequence[str]) -> str:
    """Behind the type, to the end of the text or the next traceback."""
    rest = itertools.takewhile(lambda line: not _NEXT.match(line), lines[1:])
    return "\n".join([lines[0].partition(": ")[2], *rest]).strip()


def _by_ray(text: str) -> Reraised | None:
    """Of several tasks that failed, the one whose text comes last: an error that another one passes on comes first."""
    snippets = _RAY_TRAIN.split(text)[1:]
    if snippets:  # of several, only torch's text tells which is a consequence
        if len(snippets) > 2 or not snippets[0].isdecimal():
            return None
        return _first(snippets[1], "in Ray Train's loop", rank=int(snippets[0]))
    task = next(reversed(list(_RAY.finditer(text))), None)
    return _first(text[task.end() :], f"in {task[1]}", int(task[2])) if task is not None else None


def _first(traceback: str, where: str, pid: int | None = None, rank: int | None = None) -> Reraised | None:
    frames = list(_FRAME.finditer(traceback))
    lines = traceback[frames[-1].end() :].splitlines() if frames else []
    at = next((n for n, line in enumerate(lines) if not line.startswith(" ") and _RAISED.match(line)), None)
    last = _RAISED.match(lines[at]) if at is not None else None
    if last is None:
        return None
    frames = [item for item in frames if not item[1].endswith(_WRAPPER)] or frames
    own = [item for item in frames if not (is_library_file(item[1]) or item[1].startswith("<"))] or frames
    frame, innermost = (
        PythonFrame(function=item[3], file=item[1], line=int(item[2])) for item in (own[-1], frames[-1])
    )
    return Reraised(last[1], _message(lines[at:]), where, frame, pid, rank, innermost)
