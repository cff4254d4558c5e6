"""Who died, in which order, and which deaths are consequences of another one.

torchrun's own "root cause" is the order in which its poll noticed the ends. Here the order comes, strongest first,
from what a death says about itself (`consequences.py`), from who was missing where others waited and from the clocks of
the hosts (`order.py`), and only then from when a parent noticed it. Where times overlap, nothing is decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from pytracer._text import list_words, ranks_words, time_words
from pytracer.analyze.deaths.consequences import PROMPT, Followers, subject
from pytracer.analyze.deaths.ending import ending_in_mid_work, orderly_end
from pytracer.analyze.deaths.lost_connection import lost_connection
from pytracer.analyze.deaths.peer_errors import mentions_lost_peer, peer_gone, reports_a_child
from pytracer.analyze.deaths.time_limits import at_time_limit
from pytracer.analyze.deaths.tree import Tree
from pytracer.analyze.evidence.ends.library_exits import ends_unasked
from pytracer.analyze.evidence.ends.sent_signals import deadly_signal
from pytracer.analyze.platform.signals import SI_USER, SIGABRT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, signal_name
from pytracer.analyze.timeline.order import Absence, absences
from pytracer.analyze.view import Death, ProcessView, WhyKind, death_signature

__all__ = ["find_deaths", "is_interrupt", "mentions_lost_peer"]

_OF_JOBS = ("UncompletedJobError", "FailedJobError")  # submitit
_INTERRUPTS = ("KeyboardInterrupt", "SignalException")


def find_deaths(views: Sequence[ProcessView]) -> tuple[Death, ...]:
    """Every death that matters, judged, the cause first and the rest in order of time.

    Left out are helpers that end as part of normal work: a subprocess with a nonzero status, or one stopped by a
    signal, whose parent went on to succeed. A rank that ended well counts when others waited for it. Where nothing else
    died, so does a process that native code of the program ended in mid-work, by status 0.
    """
    deaths = [death for view in views if (death := _death(view)) is not None]
    if not deaths:
        return tuple(_as_death(view, "exit", "exit status 0") for view in views if ends_unasked(view))
    tree = Tree(views)
    deaths = _that_matter(deaths, tree)
    missing = absences((view.index, view.process) for view in views if view.process.role == "rank")
    deaths += _early_leavers(views, deaths, missing)
    followers = Followers(deaths, tree, missing)
    judged = [
        structs.replace(death, primary=False, kind=follows.kind, why=follows.why, of=follows.of)
        for death in deaths
        if (follows := followers.found.get(death.view.index)) is not None
    ]
    rest = [death for death in deaths if death.view.index not in followers.found]
    judged += _judge_order([_as_leaver(death, followers.came_first, views) for death in rest], followers.came_first)
    judged = [at_time_limit(death, tree) for death in judged]
    rank_of = {True: 0, None: 1, False: 2}
    return tuple(sorted(judged, key=lambda death: (rank_of[death.primary], death.last_ns, death.view.index)))


def ended_well(view: ProcessView) -> bool:
    """With status 0, or as its framework ends all its processes."""
    return view.process.status_kind == "exited" and (not view.process.exit_code or orderly_end(view) is not None)


def is_interrupt(view: ProcessView) -> bool:
    """Whether the user interrupted the process: SIGINT, KeyboardInterrupt, or a signal to torchrun's agent.

    Also by an exception that was raised while that one was on its way: a `with` meets a lock in a state of the moment.
    """
    exception = view.exception
    raised = [exception.type, *(item.type for item in (exception.context or [])[:1])] if exception else []
    names = [(name or "").rsplit(".", 1)[-1] for name in raised]
    return view.process.signal == SIGINT or any(name in _INTERRUPTS for name in names)


def _death(view: ProcessView) -> Death | None:
    process = view.process
    if process.status_kind == "running" or ended_well(view):
        return None
    return _as_death(view, *_nature(view))


def _as_death(view: ProcessView, nature: str, what: str) -> Death:
    process, snapshot = view.process, view.process.snapshot
    exact: int | None = None
    if view.raised:
        exact = process.exception_mono_ns
    elif view.crash is not None:
        exact = view.crash.mono_ns
    elif process.status_kind == "exited":
        exact = snapshot.exit_mono_ns
    else:
        exact = _killed_ns(view)
    early = exact if exact is not None else _earliest_ns(view)
    late = exact if exact is not None else process.ended_mono_ns
    left = snapshot.left_mono_ns
    return Death(
        view=view,
        nature=nature,
        what=what,
        early_ns=view.clock.relative(early),
        late_ns=view.clock.relative(late),
        boot=snapshot.boot_id,
        error_ns=view.clock.error_ns,
        lost_peer=mentions_lost_peer(view),
        cleanup=left is not None and left < early,
    )


def _earliest_ns(view: ProcessView) -> int:
    """Before which moment it was surely alive: its last record, and the note of the one that ended it."""
    snapshot = view.process.snapshot
    sent = [item.send.mono_ns for item in view.senders if item.sure]
    return max(snapshot.created_mono_ns, snapshot.last_mono_ns or 0, *sent[:1])


def _killed_ns(view: ProcessView) -> int | None:
    """When SIGKILL was sent by a third process, by its note: a parent that waits for something else learns it late."""
    snapshot = view.process.snapshot
    sent = [
        item.send.mono_ns
        for item in view.senders
        if item.sure and item.send.signal == SIGKILL and item.sender.snapshot.pid != snapshot.ppid
    ]
    return max(sent[0], snapshot.last_mono_ns or 0) if sent and view.process.signal == SIGKILL else None


def _nature(view: ProcessView) -> tuple[str, str]:
    process, crash = view.process, view.crash
    if is_interrupt(view):
        return "interrupt", "SIGINT" if process.signal == SIGINT else str(view.exception and view.exception.type)
    if view.raised:
        return "exception", (view.exception.type if view.exception else None) or "an exception"
    number = crash.signal if crash is not None else process.signal
    if process.status_kind == "signaled" or crash is not None:
        name = signal_name(number) if number is not None else "a signal"
        # A sender in another pid namespace is 0 in this one, and SI_USER still shows that the signal was sent.
        by_other = crash is not None and crash.sender_pid not in (None, 0, process.snapshot.pid)
        nameless = crash is not None and crash.code == SI_USER and not crash.sender_pid
        sent = crash is not None and crash.code <= 0 and (by_other or nameless)
        if sent or number in (SIGTERM, SIGKILL, SIGHUP, SIGQUIT):
            return "sent", name
        return ("abort" if number == SIGABRT else "fault"), name
    if process.status_kind == "vanished":
        return "vanished", "no recorded end"
    return "exit", f"exit status {process.exit_code}"


def _that_matter(deaths: list[Death], tree: Tree) -> list[Death]:
    """Without helpers, and without what only they started."""
    while True:
        kept = [death for death in deaths if _matters(death, deaths, tree)]
        if len(kept) == len(deaths):
            return kept
        deaths = kept


def _repeats_its_child(death: Death, deaths: Sequence[Death], tree: Tree) -> bool:
    """Whether a program without Python ended itself by the signal that its child died of: coreutils' timeout."""
    process, sent = death.view.process, deadly_signal(death.view)
    if sent is None or process.snapshot.versions.python is not None or death.nature not in PROMPT:
        return False
    if sent.sender_pid != process.snapshot.pid:
        return False
    children = {view.index for view in tree.children.get(death.view.index, ())}
    same = (other for other in deaths if other.view.index in children and other.view.process.signal == sent.signal)
    return any(not death.surely_before(other) for other in same)


def _matters(death: Death, deaths: Sequence[Death], tree: Tree) -> bool:
    """Whether this end is news: always for ranks, roots and crashes, else only if the parent failed as well."""
    parent = tree.parent[death.view.index]
    role = death.view.process.role
    if _repeats_its_child(death, deaths, tree):
        return False
    if death.view.killed_for is not None and role not in ("rank", "launcher"):
        return all(other.view.killed_for is not None for other in deaths)  # it was left after the others had ended
    if death.nature in PROMPT or role == "rank" or (role == "launcher" and not _was_dismissed(death, parent)):
        return True
    if parent is None:
        return death.nature != "vanished" or len(deaths) == 1
    if death.nature == "vanished":
        return False
    failed = next((other for other in deaths if other.view.index == parent.index), None)
    if failed is None:
        return _was_submitted(death, deaths, tree)
    return not _was_only_a_helper(death, failed) and not _was_cleaned_up(death, failed)


def _was_dismissed(death: Death, parent: ProcessView | None) -> bool:
    """Whether a parent that ended well had asked it to end: Jupyter its kernel. Ranks below it speak for themselves."""
    if parent is None or not ended_well(parent) or death.nature != "sent" or death.view.process.signal == SIGKILL:
        return False
    crash, pid = death.view.crash, parent.process.snapshot.pid
    noted = any(item.sender.snapshot.pid == pid for item in death.view.senders)
    return noted or (crash is not None and crash.sender_pid == pid)


def _was_submitted(death: Death, deaths: Sequence[Death], tree: Tree) -> bool:
    """Whether a process above reports it: submitit's local controller, between them, ends with status 0 in any case."""
    above, dead = tree.parent[death.view.index], {other.view.index: other for other in deaths}
    while above is not None and above.index not in dead:
        above = tree.parent[above.index]
    exception = dead[above.index].view.exception if above is not None else None
    return exception is not None and (exception.type or "").rpartition(".")[2] in _OF_JOBS


def _was_cleaned_up(death: Death, parent: Death) -> bool:
    """Whether the parent ended it after it had raised the exception that ended itself: Ray's driver, its services."""
    raised = parent.view.process.exception_mono_ns if parent.nature == "exception" else None
    if raised is None or death.nature not in ("sent", "exit"):
        return False
    pid = death.view.process.snapshot.pid
    return any(send.target == pid and send.mono_ns >= raised for send in parent.view.process.snapshot.sends)


def _was_only_a_helper(death: Death, parent: Death) -> bool:
    """Whether the parent reaped a child with a bad status, went on, and ended in a way of its own.

    A parent that ends with a status itself may pass the child's on; one that raises may report it by name, and what the
    child raised may be why. A fault is of its own.
    """
    raised = death.nature == "exception" and parent.nature in PROMPT
    if (
        not (death.nature == "exit" or raised)
        or parent.nature in ("exit", "left")
        or ending_in_mid_work(death.view.process.snapshot.ending)
    ):
        return False
    snapshot, own = parent.view.process.snapshot, death.view.process.snapshot
    reaped = any(wait.pid == own.pid and wait.mono_ns >= own.created_mono_ns for wait in snapshot.waits)
    is_worker = death.view.process.role == "dataloader-worker"
    missed = is_worker and lost_connection(parent.view)  # for a tensor that it had sent
    return reaped and not (missed or reports_a_child(parent.view))


def _early_leavers(views: Sequence[ProcessView], deaths: Sequence[Death], missing: Sequence[Absence]) -> list[Death]:
    """Ranks that ended with status 0 while others waited for them in a collective, and died of that."""
    complaining = {death.view.index for death in deaths if death.lost_peer}
    found = {i for absence in missing if complaining.intersection(absence.waiting) for i in absence.absent}
    by_index = {view.index: view for view in views}
    gone = (by_index[i] for i in sorted(found))
    return [_as_death(view, "left", f"exit status {view.process.exit_code}") for view in gone if ended_well(view)]


def _as_leaver(death: Death, came_first: dict[int, Absence], views: Sequence[ProcessView]) -> Death:
    """A death by its effect on others, where its own end is less informative: a signal after all was over."""
    absence = came_first.get(death.view.index)
    if absence is None or death.nature not in ("sent", "left"):
        return death
    by_index = {view.index: view for view in views}
    if death.nature == "sent" and any(peer_gone(by_index[i]) for i in absence.waiting) and not _had_left(death):
        return death  # only its end can have closed the connections: the signal was first
    return structs.replace(death, nature="left", why=_absence_words(absence, views))


def _had_left(death: Death) -> bool:
    return death.view.process.snapshot.left_mono_ns is not None


def _absence_words(absence: Absence, views: Sequence[ProcessView]) -> str:
    by_index = {view.index: view for view in views}
    ranks = sorted(rank for i in absence.waiting if (rank := by_index[i].process.rank) is not None)
    return (
        f"never entered {absence.op} {absence.sequence_nr} of group {absence.group}, in which "
        f"{ranks_words(ranks)} waited"
    )


def _judge_order(deaths: Sequence[Death], came_first: dict[int, Absence]) -> list[Death]:
    """Decide among deaths that are not a plain consequence of another: by absence, then by time."""
    if not deaths:
        return []
    deaths = sorted(deaths, key=lambda death: (death.view.index not in came_first, death.last_ns, death.view.index))
    leavers = [death for death in deaths if death.view.index in came_first]
    earliest = leavers or _earliest(deaths)
    first = earliest[0]
    signature = death_signature(first.view)
    alike = [death for death in deaths if death_signature(death.view) == signature]
    if first.nature == "exception" and first.lost_peer:
        alike = [first]  # ranks that lose each other raise alike, and not by themselves
    undecided = _without(earliest, alike)
    rest_primary: bool | None = False
    # A process does not answer the loss of a peer with a fault of its own: against a bare end it is the cause.
    faults = [death for death in (*alike, *undecided) if death.nature in PROMPT and not death.lost_peer]
    bare = [item for item in _without(undecided, faults) if item.nature != "exception" or item.lost_peer]
    if undecided and len(faults) == 1 and len(bare) + (faults[0] in undecided) == len(undecided):
        first, alike, undecided, rest_primary = faults[0], faults, [], None
    if undecided:
        overlap = _Overlap([*alike, *undecided])
        return [overlap.judged(item) if item in overlap else _later(item, first, False) for item in deaths]
    judged = [_primary(death, first) for death in alike]
    rest = _without(deaths, alike)
    return judged + [_later(death, first, None if death.nature in PROMPT else rest_primary) for death in rest]


def _primary(death: Death, first: Death) -> Death:
    if death is not first:
        what = "exception" if death.nature == "exception" else "fault"
        return structs.replace(death, primary=True, kind=WhyKind.ALIKE, why=f"the same {what}, independently")
    if death.why:
        return structs.replace(death, primary=True, kind=WhyKind.ABSENT, why=f"first: it {death.why}")
    return structs.replace(death, primary=True, kind=WhyKind.FIRST, why="first")


def _without(deaths: Sequence[Death], others: Sequence[Death]) -> list[Death]:
    gone = {death.view.index for death in others}
    return [death for death in deaths if death.view.index not in gone]


def _earliest(deaths: Sequence[Death]) -> list[Death]:
    """Those that none of the others was surely before; all, where their times contradict each other."""
    ends = _Lowest((death.boot, death.last_ns + death.error_ns) for death in deaths)
    own = {death.boot: death.last_ns for death in reversed(deaths)}  # sorted by it: the lowest of each boot stays
    found = [
        death
        for death in deaths
        if own[death.boot] >= death.first_ns and ends.of_others(death.boot) + death.error_ns >= death.first_ns
    ]
    return found or list(deaths)


class _Lowest:
    """The lowest number of all boots but one: of a job with a thousand deaths, not every pair is compared."""

    def __init__(self, numbers: Iterable[tuple[str, float]]) -> None:
        lowest: dict[str, float] = {}
        for boot, number in numbers:
            lowest[boot] = min(number, lowest.get(boot, number))
        self._two = sorted(lowest.items(), key=lambda item: item[1])[:2]

    def of_others(self, boot: str) -> float:
        return next((number for other, number in self._two if other != boot), float("inf"))


class _Overlap:
    """A set of deaths among which the evidence does not decide."""

    def __init__(self, deaths: Sequence[Death]) -> None:
        self._deaths = sorted(deaths, key=lambda death: (death.last_ns, death.view.index))
        self._indices = {death.view.index for death in deaths}
        self._errors = _Lowest((death.boot, -death.error_ns) for death in deaths)

    def __contains__(self, death: Death) -> bool:
        return death.view.index in self._indices

    def judged(self, death: Death) -> Death:
        """One of them, with the others' names."""
        worst = self._errors.of_others(death.boot)
        doubt = death.error_ns - int(worst) if worst != float("inf") else 0
        clocks = f"; the clocks of their hosts are compared to within {time_words(doubt)}" if doubt else ""
        shown = [subject(other) for other in self._deaths[:5] if other.view.index != death.view.index]
        names = list_words([*shown[:4], *[""] * (len(self._deaths) - 1 - len(shown[:4]))])
        why = f"died at about the same time as others ({names}){clocks}"
        return structs.replace(death, primary=None, kind=WhyKind.UNDECIDED, why=why)


def _later(death: Death, first: Death, primary: bool | None) -> Death:
    seen = death.late_ns is not None and first.late_ns is not None
    gap = (death.late_ns or 0) - (first.late_ns or 0)
    after = f"{time_words(gap)} after {subject(first)}" if seen and gap >= 0 else f"after {subject(first)}"
    note = "" if primary is False else "; it may be a consequence"
    kind = WhyKind.TEARDOWN if primary is False else WhyKind.UNDECIDED
    return structs.replace(death, primary=primary, kind=kind, why=f"died {after}{note}")
