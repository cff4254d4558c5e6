"""Children that the end of a program waits for: it has done all its work, and multiprocessing joins them.

CPython, multiprocessing/util.py, `_exit_function`: at the end of the interpreter daemons are terminated, and all other
children joined. Threads that are no daemons have ended by then, so hardly anybody is left to tell a child to end.
"""

from __future__ import annotations

import msgspec

from pytracer.analyze.deaths.ending import asked_to_end
from pytracer.analyze.evidence.ends.signal_senders import from_time_limit
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.waits.loop_ends import LoopEnd, loop_end
from pytracer.analyze.evidence.waits.pipes import forked_at
from pytracer.analyze.evidence.waits.stood_loop import StoodLoop, stood_loop
from pytracer.analyze.evidence.waits.wait_chain import at_words
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait, WaitKind
from pytracer.analyze.evidence.waits.wait_words import wait_words
from pytracer.analyze.evidence.waits.waited_object import waited_object
from pytracer.analyze.evidence.waits.waits import at_program_end, main_stack, other_threads, program_stack, wait_of
from pytracer.analyze.kin import children_of, parent_of
from pytracer.analyze.naming import line_in, name_words, names_words, place_words
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import PythonFrame

_IDLE: tuple[WaitKind, ...] = ("message", "queue", "notice", "barrier", "accept", "network", "event-loop", "input")
_TOGETHER_NS = 1_000_000_000
_FEW, _NAMED = 2, 4
_NAME = "multiprocessing process "


class LeftChildren(msgspec.Struct, frozen=True):
    """`parent` has come to its end. `children`: those that ran then, with the `wait` of the first one that idles.

    `at`: where the first one was. `works`: that none idles. `started`: the line that starts them, by copied frames.
    """

    parent: ProcessView
    wait: ProcessWait
    """Of the parent."""
    children: tuple[ProcessView, ...]
    idle: tuple[tuple[ProcessView, ProcessWait], ...]
    at: PythonFrame | None
    loop: StoodLoop | None
    ends: LoopEnd | None
    started: PythonFrame | None

    @property
    def sure(self) -> bool:
        """Whether nobody is left who could tell them to end, as far as is known."""
        return len(self.idle) == len(self.children) and not other_threads(self.parent)

    @property
    def words(self) -> str:
        """After the process: what it waits for at its end, what its children do, and what would end them."""
        many = len(self.children) > 1
        which = "which are no daemons" if many else "which is no daemon"
        only = waited_object(*self.idle[0]) if self.idle and self.ends is None else None
        ends = f"; {only.only_words}" if only is not None and only.only_words is not None else ""
        ends = f"; {'their' if many else 'its'} loop {self.ends.words}" if self.ends is not None else ends
        return f"had come to its end, where multiprocessing joins {self._names}, {which}: {self._do}{ends}"

    @property
    def advice(self) -> str:
        """Let them end, or do not wait for them."""
        at = f" ({line_in(self.started.file, self.started.line, self._here)})" if self.started is not None else ""
        daemon = f"start them{at} with daemon=True: the end of the program terminates daemons, and joins all others"
        if self.idle:
            first = self.ends.advice if self.ends is not None else (
                "Let each of them end before the program does: send it what ends its loop, then join() it"
            )  # fmt: skip
            return f"{first}; or {daemon}."
        if self.loop is not None and self.loop.reason is not None:
            return f"{self.loop.advice} To end without it, {daemon}."
        place = f" at {place_words(self.at)}" if self.at is not None else ""
        return f"If it only takes long, raise the time limit; else see what should end its work{place}, or {daemon}."

    @property
    def _names(self) -> str:
        if len(self.children) <= _FEW:
            return names_words(self.children)
        names = [name_words([item]).removeprefix(_NAME).partition(" (pid")[0] for item in self.children[:_NAMED]]
        more = ", ..." if len(self.children) > _NAMED else ""
        return f"{len(self.children)} child processes ({', '.join(names)}{more})"

    @property
    def _here(self) -> str | None:
        return self.at.file if self.at is not None else None

    @property
    def _do(self) -> str:
        one = len(self.children) == 1
        if self.idle:
            who = "it" if one else "all" if len(self.idle) == len(self.children) else f"{len(self.idle)} of them"
            return f"{who} {wait_words(*self.idle[0])}{at_words(self.idle[0][1])}"
        who = "it" if one else name_words(self.children[:1])
        if self.loop is not None and self.loop.reason is not None:
            return f"{who} {self.loop.words}"
        return f"{who} was at {place_words(self.at)}" if self.at is not None else f"{who} still ran"


def left_children(job: JobView, ended: ProcessView) -> LeftChildren | None:
    """Of a process that has come to its end, or of its child: a time limit may end the child first."""
    parent = ended if at_program_end(main_stack(ended)) else parent_of(job, ended)
    end = asked_to_end(parent.process) if parent is not None else None
    if parent is None or end is None or parent.raised or not at_program_end(main_stack(parent)):
        return None
    wait = wait_of(parent)
    if wait is None or wait.kind != "child" or not from_time_limit(job, parent):
        return None
    children = [
        item
        for item in children_of(job, parent)
        if main_stack(item) and ((gone := item.process.ended_mono_ns) is None or gone >= end.mono_ns - _TOGETHER_NS)
    ]
    waits = [(item, own) for item in children if (own := wait_of(item)) is not None]
    if not children or any(own.kind not in _IDLE for _, own in waits):
        return None  # it waits for something else than its end
    first = waits[0][0] if waits else children[0]
    lines, started = program_stack(first), forked_at(main_stack(first))
    at = lines[0] if lines else None
    files = program_files(first.process.snapshot, lines)
    ends = loop_end(files, at.file, at.line) if waits and at is not None and at.file and at.line else None
    loop = stood_loop(first) if not waits else None
    return LeftChildren(
        parent,
        wait,
        tuple(children),
        tuple(waits),
        at,
        loop,
        ends,
        started[0] if started is not None else None,
    )
