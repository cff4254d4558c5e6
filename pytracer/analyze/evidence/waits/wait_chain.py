"""Who waits for whom inside of one host: a process, the child that it waits for, the child of that one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened, uncapital
from pytracer.analyze.deaths.ending import asked_to_end
from pytracer.analyze.evidence.cuda.device_waits import DeviceWait, device_wait
from pytracer.analyze.evidence.waits.asked_names import MissingName, missing_name
from pytracer.analyze.evidence.waits.busy import polled_by, polled_test
from pytracer.analyze.evidence.waits.ended_fillers import beside_words, ended_filler
from pytracer.analyze.evidence.waits.ended_threads import lost_results
from pytracer.analyze.evidence.waits.forked_pool import is_at_work
from pytracer.analyze.evidence.waits.full_output import full_output, full_output_advice
from pytracer.analyze.evidence.waits.joined_children import joined_child, joins_spawned
from pytracer.analyze.evidence.waits.pipes import asks_manager
from pytracer.analyze.evidence.waits.wait_advice import ADVICE, wait_advice
from pytracer.analyze.evidence.waits.wait_kinds import OF_DEVICE, WAITED, ProcessWait
from pytracer.analyze.evidence.waits.waits import (
    end_of,
    main_stack,
    other_threads,
    program_stack,
    wait_of,
    waiting_frame,
    was_asleep,
)
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import name_words, place_words
from pytracer.analyze.view import JobView, ProcessView

# Nothing else is waited for there.
_LAST = (
    "forked-openmp",
    "forked-lock",
    "forked-notice",
    "forked-tasks",
    "forked-native",
    "lock",
    "lock-file",
    "unread-queue",
    "full-pipe",
    "gil",
)
_OF_READERS = ("full-queue", "unread-queue")
_OF_FILES = ("flock", "lock-file")
_OF_CHILDREN = ("child", "queue", "message", "full-pipe", "pool", "workers", "notice")
_QUEUE = Pattern(r"/multiprocess(?:ing)?/(connection|queues|synchronize)\.py$")
_POOL = Pattern(r"/multiprocess(?:ing)?/pool\.py$")
_COMMAND = 60
_CHILDREN = 2
_OF_OTHERS = (
    "lock",
    "thread",
    "queue",
    "full-queue",
    "message",
    "full-pipe",
    "notice",
)  # another thread may have to answer


class Blocked(msgspec.Struct, frozen=True):
    """A process that waits, and the end of the chain that begins with it."""

    chain: tuple[tuple[ProcessView, ProcessWait], ...]
    children: tuple[ProcessView, ...] = ()
    """Of the last one, that ran when it ended."""

    device: DeviceWait | None = None
    """What the last one waited for on its device, if nothing moved there."""
    others: tuple[ProcessView, ...] = ()
    """The other ranks of the job."""

    @property
    def unread(self) -> bool:
        """Whether it waits for the end of a child that waits until its queue is read."""
        kinds = [wait.kind for _, wait in self.chain[-2:]]
        return kinds == ["child", "unread-queue"]

    @property
    def words(self) -> str:
        """What comes after "rank 1"."""
        (_, first), (last, wait) = self.chain[0], self.chain[-1]
        own = f"{WAITED[first.kind]}{at_words(first)}"
        if self.device is not None and len(self.chain) == 1:
            return f"{own}{self.device.words}"
        if self.unread:
            return f"{own}, which cannot end before its queue is read"
        if len(self.chain) > 1:
            return f"{own}, and {name_words([last])} {WAITED[wait.kind]}{at_words(wait)}"
        filler = ended_filler(last, wait)
        return f"{own}; {filler.words}{beside_words(self.others, filler)}" if filler is not None else own

    @property
    def advice(self) -> str:
        """By what the last one waits for; with the lines of its other threads, one of which may have to answer."""
        view, wait = self.chain[-1]
        if self.unread:
            return ADVICE["unread-queue"]
        if self.device is not None:
            return self.device.advice
        if wait.kind == "full-output" and len(self.chain) > 1:
            return full_output_advice(self.chain[-2][0])
        if wait.kind in _OF_FILES and self.children:
            return _held_by_children(self.children)
        return wait_advice(view, wait) + meanwhile_words(view, wait)


def _held_by_children(children: Sequence[ProcessView]) -> str:
    """A lock of a file goes to a child by fork(), or the child takes it itself: it is the first to look at."""
    shown = " and ".join(
        f"process {item.process.snapshot.pid} (`{shortened(' '.join(item.process.snapshot.argv), _COMMAND)}`)"
        for item in children[:2]
    )
    its = "its own child" if len(children) == 1 else "its own children"
    return (
        f"See first whether {its} had the lock: {shown} still ran. Let it release the lock, or end, before this line. "
        "Else look for the process that holds it (`lslocks`): one that waits for this rank itself never releases it."
    )


def blocked(job: JobView, view: ProcessView) -> Blocked | None:
    """None where its stacks show no wait."""
    chain = tuple(wait_chain(job, view))
    if not chain:
        return None
    others = tuple(item for item in job.views if item.process.rank is not None and item.index != view.index)
    return Blocked(chain, tuple(_ran_then(job, chain[-1][0])), wait_for_device(job, *chain[-1]), others)


def wait_for_device(job: JobView, view: ProcessView, wait: ProcessWait) -> DeviceWait | None:
    """What a process waited for on its device; None where it waits for other ranks, or something moved."""
    end, rank = end_of(view), view.process.rank
    if wait.kind not in OF_DEVICE or end is None or (rank is not None and job.waiting.of(rank)):
        return None
    return device_wait(view, end)


def _ran_then(job: JobView, view: ProcessView) -> Iterator[ProcessView]:
    """Its recorded children that had not ended when it was asked to."""
    end = asked_to_end(view.process)
    if end is None:
        return
    for item in children_of(job, view):
        ended = item.process.ended_mono_ns
        if ended is None or ended >= end.mono_ns:
            yield item


def at_words(wait: ProcessWait) -> str:
    """Its line, where that is the program's or nothing else is known."""
    if wait.kind == "nodes":  # the line of the command torchrun
        return ""
    known = wait.at is not None and not is_library_file(wait.at.file) and wait.at.file != "<string>"
    return f" at {place_words(wait.at)}" if wait.at is not None and (known or wait.kind != "unread-queue") else ""


def meanwhile_words(view: ProcessView, wait: ProcessWait) -> str:
    """Where the other threads were: one may hold the lock, or be the one that should answer."""
    others = other_threads(view) if wait.kind in _OF_OTHERS else []
    if not others:
        return ""
    words = " and ".join(item.words for item in others)
    holds = f": see whether {'it holds' if len(others) == 1 else 'one of them holds'} the lock while it waits there"
    return f" Meanwhile {words}{holds if wait.kind == 'lock' else ''}."


def children_at_work(job: JobView, view: ProcessView) -> list[ProcessView]:
    """Its children that ran when it ended, and did not wait: one of them may be the one that should answer."""
    return [item for item in running_children(job, view) if works(item)]


def running_children(job: JobView, view: ProcessView) -> list[ProcessView]:
    """Its children with a stack of Python that ran when it ended."""
    return [item for item in _ran_then(job, view) if item.python_frame is not None]


def awaits_task(view: ProcessView) -> bool:
    """Whether it waits for the next task of a multiprocessing pool: its loop has asked the queue, and nothing else."""
    stack = main_stack(view)
    asked = next((frame for frame in stack if not _QUEUE.search(frame.file or "")), None)
    if asked is None or asked is stack[0]:
        return False
    return (asked.function or "").rpartition(".")[2] == "worker" and _POOL.search(asked.file or "") is not None


def works(view: ProcessView) -> bool:
    """Whether it waits for nothing but its device, and not for its next task."""
    wait = wait_of(view)
    return (wait is None and not awaits_task(view)) or (wait is not None and wait.kind in OF_DEVICE)


def work_words(children: Sequence[ProcessView]) -> str:
    """`its child, process 8 (train.py), was at train.py:20 in work`; of several, the first two."""
    shown = [item for item in children if item.python_frame is not None and not is_library_file(item.python_frame.file)]
    if not shown:
        return ""
    asked = _asked_name(shown)
    why = f"; {uncapital(asked.sentence)}" if asked is not None else ""
    places = {item.python_frame for item in shown}
    at = shown[0].python_frame
    if at is not None and len(shown) > 1 and len(places) == 1 and all(polled_by(item) is not None for item in shown):
        names = name_words(shown[:_CHILDREN]) + (" and others" if len(shown) > _CHILDREN else "")
        return f"its children, {names}, were at {place_words(at)}{_polled_words(shown[0])}{why}"
    words = [
        f"its child, {name_words([item])}, was at {place_words(item.python_frame)}{_polled_words(item)}"
        for item in shown[:_CHILDREN]
        if item.python_frame is not None
    ]
    return " and ".join(words) + why


def polled_advice(children: Sequence[ProcessView]) -> str | None:
    """Of children that all sleep in one loop and look again: who should end it."""
    polled = {item for child in children if (item := polled_by(child)) is not None}
    if len(polled) != 1 or any(polled_by(child) is None for child in children):
        return None
    asked = _asked_name(children)
    return asked.advice if asked is not None else next(iter(polled)).advice


def _asked_name(children: Sequence[ProcessView]) -> MissingName | None:
    """The file that the first one looks for."""
    child = children[0] if children else None
    polled = polled_by(child) if child is not None else None
    test = polled_test(child, polled) if child is not None and polled is not None else None
    return missing_name(child.process.snapshot, program_stack(child), test) if child is not None and test else None


def _polled_words(view: ProcessView) -> str:
    """The loop in which it sleeps and looks again."""
    polled = polled_by(view)
    return f", {polled.words}" if polled is not None else ""


def wait_chain(job: JobView, view: ProcessView) -> Iterator[tuple[ProcessView, ProcessWait]]:
    """A waiting process, then the child that it waits for, if that one waits, and so on.

    One that looks at its children again and again, asleep in between, waits for them, too (joblib); so does one that
    asks the queue of a manager, where a child stands for good (datasets), or joins all processes of mp.spawn(), of
    which one waits for a reader. A pool whose thread
    takes no results any more has nothing to wait for: its workers are idle, or wait until their results are taken.
    """
    seen: set[int] = set()
    current: ProcessView | None = view
    if wait_of(view) is None and was_asleep(view):
        current = _waiting_child(job, view)
    elif wait_of(view) is None and joins_spawned(main_stack(view)):
        child = _waiting_child(job, view)
        stands = wait_of(child) if child is not None else None
        if stands is not None and stands.kind in _OF_READERS:
            yield view, ProcessWait("child", waiting_frame(view))
            current = child
    elif wait_of(view) is None and asks_manager(main_stack(view)):
        child = _waiting_child(job, view)
        stands = wait_of(child) if child is not None else None
        current = child if stands is not None and stands.kind in _LAST else None
    while current is not None and current.index not in seen:
        seen.add(current.index)
        wait = wait_of(current)
        if wait is None or (wait.kind == "forked-native" and is_at_work(current)):
            return
        yield current, wait
        on = wait.kind in _OF_CHILDREN and not lost_results(current, wait)
        printing = _printing_child(job, current) if wait.kind in ("message", "child") else None
        if printing is not None:
            yield printing
            return
        current = _waiting_child(job, current, wait) if on else None


def _printing_child(job: JobView, view: ProcessView) -> tuple[ProcessView, ProcessWait] | None:
    """Its only child, where that waits until its output is read."""
    children = running_children(job, view)
    wait = full_output(view, children[0]) if len(children) == 1 else None
    return (children[0], wait) if wait is not None else None


def _waiting_child(job: JobView, view: ProcessView, wait: ProcessWait | None = None) -> ProcessView | None:
    """A child that waits as well; what waits for OpenMP, a lock or a reader before what waits for a process.

    For a child without stacks, a child of that one: submitit's local controller starts the job. A child that waits for
    a message is idle, unless its parent waits for its answer or its end. Where the parent is known to wait for the
    end of one child, no other counts.
    """
    joined = joined_child(view, children_of(job, view)) if wait is not None and wait.kind == "child" else None
    if joined is not None and joined.python_stack:
        return joined if wait_of(joined) is not None else None
    asks = wait is not None and wait.kind in ("message", "full-pipe", "child")
    if asks and wait is not None and wait.kind != "child" and children_at_work(job, view):
        asks = False
    found: list[tuple[bool, int, ProcessView]] = []
    level, seen = [view], {view.index}
    while level and not found:
        children = [item for parent in level for item in children_of(job, parent) if item.index not in seen]
        waits = [(own, item) for item in children if (own := wait_of(item)) is not None]
        found = [
            (own.kind not in _LAST, item.index, item)
            for own, item in waits
            if own.kind != "accept" and (asks or own.kind != "message")
        ]
        seen |= {item.index for item in children}
        level = [item for item in children if not item.python_stack and not item.native_stack]
    return min(found, key=lambda entry: entry[:2])[2] if found else None


def waiters_there(job: JobView, wait: ProcessWait) -> int:
    """How many processes of the job waited so at that line."""
    others = [wait_of(item) for item in job.views]
    return sum(item is not None and item.kind == wait.kind and item.at == wait.at for item in others)
