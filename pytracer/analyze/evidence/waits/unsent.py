"""What a process had put into a multiprocessing queue, and the queue's own thread could not send: it was dropped."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import capital, list_words
from pytracer.analyze.evidence.failing.stored.looked_up_names import looked_up_words
from pytracer.analyze.evidence.limits.words import LimitReason, limit_reason
from pytracer.analyze.evidence.phrases import error_words
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.waits.unsent_batch import batch_advice, loaded_words
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waited_object import waited_object
from pytracer.analyze.evidence.waits.waits import main_stack
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import name_words
from pytracer.analyze.parts import exception_report
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.blackbox.schema import ON_PUT
from pytracer.decode.types.journal import UncaughtException
from pytracer.report.job import Evidence, ExceptionReport

_GRAPH = "serialize non-leaf tensor"  # torch 2.13, multiprocessing/reductions.py
_MORE = ", since autograd"
_LONG_PATH = "AF_UNIX path too long"
_FILES = Pattern(r"Too many open files|received 0 items of ancdata")
_PICKLE = Pattern(r"pickl|local object", re.IGNORECASE)  # CPython 3.13: Can't get local object
_OF_LOADER = "[1]"  # a worker of torch's DataLoader puts (number, batch)
_BATCH = "batch"
_KEY = Pattern(r"\['(\w+)'\]$")
_LISTED = 3


class Unsent(msgspec.Struct, frozen=True):
    """`item`: the part that no queue sends, `['x']`, and what it is."""

    view: ProcessView
    report: ExceptionReport
    item: tuple[str, str] | None
    own: bool
    at_ns: int
    limit: LimitReason | None = None
    """Of that process, which was reached."""
    count: int = 1
    """How many such errors that process recorded."""

    @property
    def of_loader(self) -> bool:
        """Whether it was a batch of torch's DataLoader."""
        return self.view.process.role == "dataloader-worker" and not self.own

    @property
    def words(self) -> str:
        """`DataLoader worker 0 (pid 8) could not send what it had put into a queue: RuntimeError: ...`."""
        who = "it" if self.own else name_words([self.view])
        part = f" ({self.item[0]} is {self.item[1]})" if self.item is not None and self.item[0] != "it" else ""
        error = error_words(self.report).partition(_MORE)[0]
        why = ", since TMPDIR is too long for a socket" if _LONG_PATH in error else ""
        if self.limit is not None:
            error, why = f"{self.report.type} (Too many open files)", f": {self.limit.subject}"
        if self.of_loader:
            loaded = loaded_words(self.view, self.at_ns) if self.count == 1 else ""  # else it is not known of which
            return f"{who} could not send a batch, which was dropped: {error}{why}{part}{loaded}"
        return f"{who} could not send what it had put into a queue: {error}{why}{part}"

    @property
    def evidence(self) -> Evidence:
        """The exception of the queue's thread."""
        return Evidence(
            "thread-exception",
            f"the thread of a queue of {name_words([self.view])} dropped what it could not send: "
            f"{error_words(self.report)}",
            pid=self.view.process.snapshot.pid,
            rank=self.view.process.rank,
            exception=self.report.type,
            text=self.report.message,
        )


def unsent_of(job: JobView, view: ProcessView) -> Unsent | None:
    """The last such error, of a child before its own before anybody's."""
    children = [item.index for item in children_of(job, view)]
    found: list[tuple[int, int, Unsent]] = []
    for item in job.views:
        snapshot = item.process.snapshot
        place = 0 if item.index in children else 1 if item.index == view.index else 2
        for fact in snapshot.recorded(UncaughtException):
            if fact.data.on_its_way == ON_PUT and fact.mono_ns >= snapshot.created_mono_ns:
                seen = fact.data.variables[-1] if fact.data.variables else None
                part = (
                    (seen.name, seen.value)
                    if seen is not None and (seen.name[:1] == "[" or seen.name == "it")
                    else None
                )
                one = Unsent(
                    item, exception_report(fact.data), _own_part(item, part), item.index == view.index, fact.mono_ns
                )
                found.append((place, -fact.mono_ns, one))
    if not found:
        return None
    last = min(found, key=lambda entry: entry[:2])[2]
    around = [frame for frame in main_stack(view) or view.exception_stack if not is_library_file(frame.file)]
    limit = (
        limit_reason(last.view.process.snapshot, last.report, last.report.python_stack or [], around=around)
        if _FILES.search(last.report.message or "")
        else None
    )
    return structs.replace(last, limit=limit, count=sum(one.view.index == last.view.index for *_, one in found))


def _own_part(view: ProcessView, part: tuple[str, str] | None) -> tuple[str, str] | None:
    if part is None or part[0] == "it":
        return part
    if view.process.role == "dataloader-worker" and part[0].startswith(_OF_LOADER):
        return f"{_BATCH}{part[0][len(_OF_LOADER) :]}", part[1]
    return f"its part {part[0]}", part[1]


def unsent_advice(view: ProcessView, wait: ProcessWait, unsent: Unsent) -> str:
    """By what could not be sent, and why. `view`: the process that waits."""
    message = unsent.report.message or ""
    named = unsent.item is not None and unsent.item[0] != "it"
    part = _part_words(unsent.item[0]) if unsent.item is not None and named else "What is put there"
    made = _made(view, wait, unsent)
    if _GRAPH in message:
        return (
            f"{part} has a graph, which cannot go to another process{made}: detach() it before it is put, compute it "
            "below torch.no_grad(), or move that computation to the process that trains."
        )
    if _LONG_PATH in message:
        line = _sets_temporary(view, wait)
        at = f", which line {line} sets" if line is not None else ""
        return (
            f"multiprocessing makes its sockets in the temporary folder (TMPDIR{at}), and the path of a socket has at "
            "most 107 characters: set TMPDIR to a short path, such as /tmp, before the first queue is made."
        )
    if unsent.limit is not None:
        return unsent.limit.advice
    if _FILES.search(message):
        return (
            "Each tensor in a queue takes a file descriptor: raise `ulimit -n`, or call "
            "torch.multiprocessing.set_sharing_strategy('file_system') in all processes; and keep no received tensors "
            "(clone() them)."
        )
    looked_up = _looked_up(view, wait, message)
    if looked_up is not None:
        return f"{capital(looked_up)}."
    if _PICKLE.search(message):
        of_batch = batch_advice(view, wait, unsent.view, message) if unsent.of_loader else None
        if of_batch is not None and not made:
            return of_batch
        is_part = f"{part} is {unsent.item[1]}{made}: " if unsent.item is not None and made else ""
        return (
            f"{is_part}{'p' if is_part else 'P'}ut plain data{_put(view, wait)} (numbers, texts, arrays, tensors "
            "without a graph; functions of a module, no lambda or local one), or drop that part. pickle.dumps() of it, "
            "before put(), raises where it can be seen."
        )
    return f"Repair that first{_put(view, wait)}: the object was dropped, and nobody is told of it."


def _looked_up(view: ProcessView, wait: ProcessWait, message: str) -> str | None:
    tree = syntax_tree(view.process.snapshot, wait.at)
    files = [(None, tree)] if tree is not None else []
    return looked_up_words(message, files, lambda _, line: f"line {line}")


def _part_words(name: str) -> str:
    return f"`{name}`" if name.startswith(_BATCH) else capital(name)


def _made(view: ProcessView, wait: ProcessWait, unsent: Unsent) -> str:
    """Where the program makes the part: `; 'x' is set at line 17 (`self.types(...)`)`."""
    key = _KEY.search(unsent.item[0]) if unsent.item is not None else None
    tree = syntax_tree(view.process.snapshot, wait.at)
    lines = sorted(set(_lines_of_key(tree, key[1]))) if key is not None and tree is not None else []
    if not lines or len(lines) > _LISTED:
        return ""
    shown = list_words([str(line) for line in lines])
    return f" (`{key[1] if key else ''}` is set at line{'s' if len(lines) > 1 else ''} {shown})"


def _lines_of_key(tree: ast.Module, key: str) -> Iterator[int]:
    for item in nodes_of(tree):
        if isinstance(item, ast.Dict):
            for name, value in zip(item.keys, item.values, strict=True):
                if isinstance(name, ast.Constant) and name.value == key:
                    yield value.lineno
        elif isinstance(item, ast.Assign):
            for target in item.targets:
                part = target.slice if isinstance(target, ast.Subscript) else None
                if isinstance(part, ast.Constant) and part.value == key:
                    yield item.lineno


def _put(view: ProcessView, wait: ProcessWait) -> str:
    thing = waited_object(view, wait)
    if thing is None or len(thing.providers) != 1:
        return ""
    return f" at {thing.providers[0].place} (`{thing.providers[0].call}`)"


def _sets_temporary(view: ProcessView, wait: ProcessWait) -> int | None:
    tree = syntax_tree(view.process.snapshot, wait.at)
    for item in nodes_of(tree) if tree is not None else ():
        if isinstance(item, ast.Assign):
            for target in item.targets:
                part = target.slice if isinstance(target, ast.Subscript) else None
                if isinstance(part, ast.Constant) and part.value == "TMPDIR" and last_name(target) == "environ":
                    return item.lineno
    return None
