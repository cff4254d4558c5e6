"""Workers of torch.multiprocessing.spawn that the kernel interrupted when the thread that had spawned them ended.

torch/multiprocessing/spawn.py (2.0 to 2.13), _wrap: prctl(PR_SET_PDEATHSIG, SIGINT) in each worker, which swallows the
KeyboardInterrupt and ends with status 0. To Linux the parent of that setting is the thread that forked, not its process
(prctl(2)): the signal comes from the parent's pid, which goes on and has sent none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened, time_words
from pytracer.analyze.deaths.ending import asked_to_end
from pytracer.analyze.evidence.ends.sent_signals import Sent, sent_signals
from pytracer.analyze.evidence.slicing.callers import calls_named, calls_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import qualified_name, scope_of
from pytracer.analyze.evidence.waits.parent_threads import target_of, thread_starts
from pytracer.analyze.evidence.waits.waits import program_stack
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import LineWords, line_in, name_words, names_words
from pytracer.analyze.parts import innermost_of_program, python_frame
from pytracer.analyze.platform.signals import SIGINT
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence

_SPAWNS = ("spawn", "start_processes")
_THREADS = ("Thread", "Timer", "submit", "to_thread", "run_in_executor")
_SPAWN_FILE = Pattern(r"/torch/multiprocessing/spawn\.py$")
_SOON_NS = 5_000_000_000  # from the signal to the end
_LONGEST, _NAMED, _LEVELS = 50, 3, 3


class SpawnedInThread(msgspec.Struct, frozen=True):
    """`line` calls spawn() in `function`; `thread` gives that to a thread. `held`: what the program keeps of it."""

    line: LineWords
    function: str
    thread: LineWords
    text: str
    held: str | None


class LostSpawner(msgspec.Struct, frozen=True):
    """`workers`, each with its interrupt. `place`: in the source, where only one is possible."""

    workers: tuple[tuple[ProcessView, Sent], ...]
    place: SpawnedInThread | None

    @property
    def words(self) -> str:
        """After the wait: who ended, and why."""
        views = [view for view, _ in self.workers]
        names = names_words(views)
        last = max((item.ended_ns for item in views if item.ended_ns is not None), default=None)
        at = f" at {time_words(int(last))}" if last is not None else ""
        thread = f" ({self.place.thread}: `{self.place.text}`)" if self.place is not None else ""
        them = "them" if len(views) > 1 else "it"
        return (
            f"{names} had ended with status 0{at}, by the SIGINT that the kernel sends to a worker of "
            f"torch.multiprocessing.spawn when the thread that spawned {them}{thread} ends"
        )

    @property
    def advice(self) -> str:
        """Where to spawn, or how long the thread has to live."""
        at, until = "", ""
        if self.place is not None:
            held = f" (`{self.place.held}`)" if self.place.held is not None else ""
            at = f" ({self.place.line} in {self.place.function})"
            until = f" ({self.place.thread}) live as long as its workers: join the context{held} in it"
        return (
            f"torch.multiprocessing.spawn sets a parent-death signal in each worker, which Linux sends at the end of "
            f"the thread that spawned it, and swallows the KeyboardInterrupt. Call spawn(){at} in the main thread, or "
            f"let its thread{until or ' live as long as its workers'}. A timeout with a look at the workers "
            "(`processes` of what spawn() returned) does not wait for ever."
        )

    @property
    def evidence(self) -> list[Evidence]:
        """The interrupts, with where they met the workers."""
        return [self._received(view, sent) for view, sent in self.workers[:_NAMED]]

    def _received(self, view: ProcessView, sent: Sent) -> Evidence:
        end = asked_to_end(view.process)
        frame = innermost_of_program([python_frame(item) for item in end.python_stack]) if end is not None else None
        return Evidence(
            "signal",
            f"{name_words([view])} got SIGINT from its parent, process {sent.sender_pid}, which sent none and went on",
            pid=view.process.snapshot.pid,
            signal="SIGINT",
            python=frame,
        )


def lost_spawner(job: JobView, view: ProcessView) -> LostSpawner | None:
    """Of a process that waits, and whose workers got the signal while it went on."""
    found = [(item, sent) for item in children_of(job, view) if (sent := _interrupt(view, item)) is not None]
    return LostSpawner(tuple(found), _place(view)) if found else None


def _interrupt(parent: ProcessView, view: ProcessView) -> Sent | None:
    """The parent-death signal that ended a worker; one that the parent's own code had sent is another matter."""
    process, above = view.process, parent.process.snapshot
    end, ended = asked_to_end(process), process.ended_mono_ns
    if process.exit_code != 0 or ended is None or end is None:
        return None
    below = any(item.function == "_wrap" and _SPAWN_FILE.search(item.file) for item in end.python_stack)
    sent_itself = any(
        item.signal == SIGINT and (item.to_group or item.target == process.snapshot.pid) for item in above.sends
    )
    if not below or sent_itself:
        return None
    sent = [item for item in sent_signals(process.snapshot, SIGINT) if item.sender_pid == above.pid]
    return sent[-1] if sent and 0 <= ended - sent[-1].mono_ns <= _SOON_NS else None


def _place(view: ProcessView) -> SpawnedInThread | None:
    own = program_stack(view)
    files = program_files(view.process.snapshot, own)
    here = own[0].file if own else None
    found = [
        item
        for name in _SPAWNS
        for file, tree, call in calls_named(files, name)
        for item in _handed(files, file, tree, call, here)
    ]
    return found[0] if len(found) == 1 else None


def _handed(
    files: Mapping[str, ast.Module], file: str, tree: ast.Module, call: ast.Call, here: str | None
) -> Iterator[SpawnedInThread]:
    """Where the function that calls spawn(), or one that leads to it, is given to a thread, or is run() of one."""
    scope = scope_of(tree, call.lineno)
    waiting: Sequence[tuple[str, ast.AST]] = [(file, scope)]
    for _ in range(_LEVELS):
        above: list[tuple[str, ast.AST]] = []
        for home, function in waiting:
            if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            made = [*calls_of(files, home, function)]
            above += [(item.file, scope_of(item.tree, item.call.lineno)) for item in made if item.passed is None]
            threads = {(item.file, item.call) for item in made if called_name(item.call) in _THREADS}
            own = (item for item in thread_starts(files) if item.run_function(files) is function)
            for place, thread in {*threads, *((item.file, item.call) for item in own)}:
                given = line_in(place, thread.lineno, here), shortened(ast.unparse(thread), _LONGEST)
                line, name = line_in(file, call.lineno, here), qualified_name(tree, scope)
                yield SpawnedInThread(line, name, *given, target_of(tree, call))
        waiting = above
