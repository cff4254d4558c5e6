"""Who died, in which order, and which deaths are consequences of another one.

torchrun's own "root cause" is the order in which its poll noticed the ends. Here the order comes, strongest first,
from what a death says about itself (a lost connection, a signal from the agent), from the monotonic clock at the
crash or exception, and only then from when a parent noticed it. Where times overlap, nothing is decided.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytracer._words import time_words
from pytracer.analyze.clock import FOREIGN_ERROR_NS, RunClock
from pytracer.analyze.signals import SI_USER, SIGABRT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, signal_name
from pytracer.analyze.view import Death, ProcessView, death_signature, subject_words

# Written by gloo, NCCL, TCPStore and sockets when the other end is gone; seen with torch 2.13, see the tests.
_PEER_LOST = re.compile(
    r"connection (was )?(closed|reset|refused|aborted)|closed by (the )?peer|reset by peer|broken pipe"
    r"|socket (was )?closed|remote process exited|connection lost"
    r"|read error \[|write error \[|failed to (recv|send)|timed out|timeout",
    re.IGNORECASE,
)
# Exceptions by which a parent passes on the failure of a child.
_CHILD_FAILED = re.compile(
    r"ChildFailedError|ProcessExitedException|ProcessRaisedException|CalledProcessError|BrokenProcessPool"
)
_WORKER_DIED = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\)")
_INTERRUPTS = ("KeyboardInterrupt", "SignalException")
_PROMPT = ("fault", "abort")


def find_deaths(views: Sequence[ProcessView], clock: RunClock) -> tuple[Death, ...]:
    """Every death that matters, judged, the cause first and the rest in order of time.

    Left out are helpers that end as part of normal work: a subprocess with a nonzero status, or one stopped by a
    signal, whose parent went on to succeed.
    """
    deaths = [death for view in views if (death := _death(view, clock)) is not None]
    tree = _Tree(views)
    deaths = [death for death in deaths if _matters(death, deaths, tree)]
    followers = {death.view.index: why for death in deaths if (why := _follows(death, deaths, tree)) is not None}
    judged = [
        replace(death, primary=False, why=followers[death.view.index])
        for death in deaths
        if death.view.index in followers
    ]
    judged += _judge_order([death for death in deaths if death.view.index not in followers])
    rank_of = {True: 0, None: 1, False: 2}
    return tuple(sorted(judged, key=lambda death: (rank_of[death.primary], _late(death), death.view.index)))


def mentions_lost_peer(view: ProcessView) -> bool:
    """Whether the exception says that another process went away or did not answer."""
    exception = view.report.exception
    return exception is not None and bool(_PEER_LOST.search(exception.message or ""))


def is_interrupt(view: ProcessView) -> bool:
    """Whether somebody interrupted the process: SIGINT, KeyboardInterrupt, or a signal to torchrun's agent."""
    exception = view.report.exception
    type_name = (exception.type or "") if exception else ""
    return view.process.signal == SIGINT or type_name.rsplit(".", 1)[-1] in _INTERRUPTS


class _Tree:
    """Parents and children among the recorded processes."""

    def __init__(self, views: Sequence[ProcessView]) -> None:
        keys = {self._key(view, view.process.snapshot.pid): view for view in views}
        self.parent = {view.index: keys.get(self._key(view, view.process.snapshot.ppid)) for view in views}
        self.children: dict[int, list[ProcessView]] = {}
        for view in views:
            parent = self.parent[view.index]
            if parent is not None and parent.index != view.index:
                self.children.setdefault(parent.index, []).append(view)

    @staticmethod
    def _key(view: ProcessView, pid: int) -> tuple[str, str, int]:
        snapshot = view.process.snapshot
        return snapshot.host, snapshot.boot_id, pid

    def descendants(self, view: ProcessView) -> Iterator[ProcessView]:
        """All recorded processes below `view`."""
        todo, seen = [view.index], {view.index}
        while todo:
            for child in self.children.get(todo.pop(), ()):
                if child.index not in seen:
                    seen.add(child.index)
                    todo.append(child.index)
                    yield child


def _death(view: ProcessView, clock: RunClock) -> Death | None:
    process, snapshot = view.process, view.process.snapshot
    status = process.status_kind
    if status == "running" or (status == "exited" and not process.exit_code):
        return None
    nature, what = _nature(view)
    exact: int | None = None
    if view.raised:
        exact = process.exception_mono_ns
    elif view.crash is not None:
        exact = view.crash.mono_ns
    elif status == "exited":
        exact = snapshot.exit_mono_ns
    recorded = [event.mono_ns for event in snapshot.events[-1:]] + [fact.mono_ns for fact in snapshot.facts[-1:]]
    early = exact if exact is not None else max((snapshot.created_mono_ns, *recorded))
    late = exact if exact is not None else process.ended_mono_ns
    return Death(
        view=view,
        nature=nature,
        what=what,
        early_ns=clock.relative(snapshot, early),
        late_ns=clock.relative(snapshot, late),
        local=clock.is_local(snapshot),
        lost_peer=mentions_lost_peer(view),
    )


def _nature(view: ProcessView) -> tuple[str, str]:
    process, crash = view.process, view.crash
    if is_interrupt(view):
        return "interrupt", "SIGINT" if process.signal == SIGINT else str(
            view.report.exception and view.report.exception.type
        )
    if view.raised:
        return "exception", (view.report.exception.type if view.report.exception else None) or "an exception"
    number = crash.signal if crash is not None else process.signal
    if process.status_kind == "signaled" or crash is not None:
        name = signal_name(number) if number is not None else "a signal"
        # A sender in another pid namespace is 0 to this one, and SI_USER still says that somebody sent it.
        by_other = crash is not None and crash.sender_pid not in (None, 0, process.snapshot.pid)
        nameless = crash is not None and crash.code == SI_USER and not crash.sender_pid
        sent = crash is not None and crash.code <= 0 and (by_other or nameless)
        if sent or number in (SIGTERM, SIGKILL, SIGHUP, SIGQUIT):
            return "sent", name
        return ("abort" if number == SIGABRT else "fault"), name
    if process.status_kind == "vanished":
        return "vanished", "no recorded end"
    return "exit", f"exit status {process.exit_code}"


def _matters(death: Death, deaths: Sequence[Death], tree: _Tree) -> bool:
    """Whether this end is news: always for ranks, roots and crashes, else only if the parent failed as well."""
    if death.nature in _PROMPT or death.view.process.role in ("rank", "launcher"):
        return True
    parent = tree.parent[death.view.index]
    if parent is None:
        return death.nature != "vanished" or len(deaths) == 1
    if death.nature == "vanished":
        return False
    return any(other.view.index == parent.index for other in deaths)


def _follows(death: Death, deaths: Sequence[Death], tree: _Tree) -> str | None:
    """Why this death is the consequence of another one, by what it says about itself; None when it is not."""
    others = [other for other in deaths if other.view.index != death.view.index]
    below = {view.index for view in tree.descendants(death.view)}
    failed_below = [other for other in others if other.view.index in below]
    return (
        _passes_on(death, failed_below)
        or _lost_worker(death, others)
        or _ended_by_launcher(death, others, tree)
        or _lost_peer(death, others)
        or _ended_with_parent(death, others, tree)
    )


def _passes_on(death: Death, failed_below: Sequence[Death]) -> str | None:
    if not failed_below or death.nature in _PROMPT:
        return None
    exception = death.view.report.exception
    if death.nature == "interrupt" and death.view.process.role == "launcher":
        return None
    wrapper = death.nature == "exit" or (
        exception is not None and _CHILD_FAILED.search(exception.type or "") is not None
    )
    if death.view.process.role == "launcher" or wrapper:
        first = min(failed_below, key=_late)
        return f"reports the failure of {_subject(first)}"
    return None


def _lost_worker(death: Death, others: Sequence[Death]) -> str | None:
    exception = death.view.report.exception
    match = _WORKER_DIED.search(exception.message or "") if exception else None
    if match is None:
        return None
    pids = {int(pid) for pid in re.findall(r"\d+", match[1])}
    worker = next((other for other in others if other.view.process.snapshot.pid in pids), None)
    return f"reports the death of {_subject(worker)}" if worker else None


def _ended_by_launcher(death: Death, others: Sequence[Death], tree: _Tree) -> str | None:
    """SIGTERM, then SIGKILL, is how torchrun's agent ends the remaining workers."""
    if death.nature != "sent":
        return None
    number = death.view.process.signal
    parent = tree.parent[death.view.index]
    by_launcher = parent is not None and parent.process.role == "launcher"
    earlier = [other for other in others if other.view.process.role != "launcher" and _early(other) <= _late(death)]
    causes = [
        other
        for other in earlier
        if other.nature != "sent" or (number == SIGTERM and other.view.process.signal == SIGKILL)
    ]
    if parent is None or not causes:
        return None
    first = min(causes, key=_late)
    who = "torchrun's agent" if by_launcher else f"its parent, process {parent.process.snapshot.pid},"
    return f"probably ended by {who} after {_subject(first)} died"


def _lost_peer(death: Death, others: Sequence[Death]) -> str | None:
    if not death.lost_peer:
        return None
    causes = [
        other
        for other in others
        if not other.lost_peer
        and other.view.process.role == "rank"
        and other.nature not in ("sent", "interrupt")
        and _early(other) <= _late(death)
    ]
    killed = [
        other
        for other in others
        if other.nature == "sent" and other.view.process.role == "rank" and _early(other) <= _late(death)
        and other.view.process.signal == SIGKILL
    ]  # fmt: skip
    if not (causes or killed):
        return None
    return f"lost the connection to {_subject(min(causes or killed, key=_late))}"


def _ended_with_parent(death: Death, others: Sequence[Death], tree: _Tree) -> str | None:
    parent = tree.parent[death.view.index]
    if death.nature not in ("sent", "exit", "exception") or death.view.process.role == "rank" or parent is None:
        return None
    cause = next((other for other in others if other.view.index == parent.index), None)
    if cause is None or cause.nature not in (*_PROMPT, "sent") or _late(cause) > _late(death):
        return None
    return f"ended after its parent, {_subject(cause)}"


def _judge_order(deaths: list[Death]) -> list[Death]:
    """Decide among deaths that are nobody's plain consequence, by time."""
    if not deaths:
        return []
    deaths = sorted(deaths, key=_late)
    first = deaths[0]
    alike = [death for death in deaths if death_signature(death.view) == death_signature(first.view)]
    rest = [death for death in deaths if death not in alike]
    overlapping = [death for death in rest if _early(death) <= _late(first)]
    # A process does not answer the loss of a peer with a fault of its own: against a bare end it is the cause.
    faults = [death for death in (*alike, *overlapping) if death.nature in _PROMPT]
    if overlapping and len(faults) == 1:
        first, alike = faults[0], faults
        rest = [death for death in deaths if death is not first]
        overlapping = []
        rest_primary: bool | None = None
    else:
        rest_primary = False
    if overlapping:
        return [
            replace(death, primary=None, why="died at about the same time as others")
            if death in alike or death in overlapping
            else _later(death, first, False)
            for death in deaths
        ]
    same = "the same fault, independently" if len(alike) > 1 else None
    judged = [replace(death, primary=True, why="first" if death is first else same) for death in alike]
    return judged + [_later(death, first, None if death.nature in _PROMPT else rest_primary) for death in rest]


def _later(death: Death, first: Death, primary: bool | None) -> Death:
    after = f"{time_words(_late(death) - _late(first))} after {_subject(first)}" if _late(death) < _UNKNOWN else "later"
    note = "" if primary is False else "; it may be a consequence"
    return replace(death, primary=primary, why=f"died {after}{note}")


_UNKNOWN = 1 << 62


def _late(death: Death) -> int:
    if death.late_ns is None:
        return _UNKNOWN
    return death.late_ns + (0 if death.local else FOREIGN_ERROR_NS)


def _early(death: Death) -> int:
    if death.early_ns is None:
        return 0
    return death.early_ns - (0 if death.local else FOREIGN_ERROR_NS)


def _subject(death: Death) -> str:
    words = subject_words([death.view])
    return words[0].lower() + words[1:] if words.startswith(("Rank", "Process", "Launcher")) else words
