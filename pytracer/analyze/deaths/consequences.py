"""Deaths that are consequences of another one, by their own evidence, with the kind and the reason.

    reported   a launcher, a shell or mp.spawn passes the failure of a child on; a rank reports its DataLoader worker
    sent       the launcher ended a remaining process, by SIGTERM or, after its grace period, by SIGKILL
    network    an exception or a watchdog's abort reports a lost or silent peer, or a connection to a dead process broke
    teardown   a process ended because its parent did
    cleanup    it died while it was leaving a job in which another process had died before

A rank that never entered the collective in which all others waited is not a consequence of its peers' failures, though
it may end last: `came_first` finds it. torchrun blames the others then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from pytracer._library_files import of_multiprocessing
from pytracer._text import time_words
from pytracer.analyze.deaths.lost_connection import lost_connection, lost_process, lost_rpc
from pytracer.analyze.deaths.peer_errors import (
    CHILD_FAILED,
    WORKER_DIED,
    mentions,
    peer_gone,
    reports_a_child,
    waited_for_key,
)
from pytracer.analyze.deaths.raising_parents import ended_by, raised_beside_ending
from pytracer.analyze.deaths.tree import Tree
from pytracer.analyze.evidence.ends.sent_signals import deadly_signal, sent_signals
from pytracer.analyze.evidence.exceptions.reraised import broken_by_loading
from pytracer.analyze.naming import name_words, place_words
from pytracer.analyze.platform.signals import SIGKILL, SIGTERM
from pytracer.analyze.timeline.order import Absence
from pytracer.analyze.view import Death, ProcessView, WhyKind
from pytracer.decode.job.identity import runs_agent

PROMPT = ("fault", "abort")
# torchrun's agent, mp.spawn, Slurm's KillWait and Kubernetes wait 30 s between SIGTERM and SIGKILL.
_GRACE_NS = 25_000_000_000
_POOLS = (*of_multiprocessing("pool"), "/loky/process_executor.py", "/loky/backend/utils.py")
# A launcher examines all its children in one poll; a process that it ends takes longer than this to die.
_ONE_LOOK_NS = 1_000_000
_OF_ITS_OWN = ("exception", "exit")
_WENT_ON_NS = 1_000_000_000  # a parent that lost its child against its will ends sooner


class Following(msgspec.Struct, frozen=True):
    """Why a death is a consequence. `of`: the other process's index, where its end alone made this one raise."""

    kind: WhyKind
    why: str
    of: int | None = None


class Followers:
    """Classifies the deaths of one job by their own evidence.

    `found` holds the consequences, `came_first` the ranks that others waited for in vain, by index.
    """

    def __init__(self, deaths: Sequence[Death], tree: Tree, absences: Sequence[Absence]) -> None:
        self._tree = tree
        self._by_index = {death.view.index: death for death in deaths}
        # Who may be the reason of something else, the earliest first; whatever follows is taken out, step by step.
        self._deaths = sorted(deaths, key=lambda death: (death.last_ns, death.view.index))
        # Whom others may have lost: of thousands of ranks most only report that, and few are asked about.
        peers = (death for death in self._deaths if death.view.process.role == "rank" and not death.lost_peer)
        self._peers = [death for death in peers if death.nature != "interrupt"]
        self._raising: dict[int, bool] = {}  # by index
        self.found: dict[int, Following] = {}
        self.came_first: dict[int, Absence] = {}
        self._judge(self._passes_on)
        self._judge(self._of_raising_parent)
        self._judge(self._lost_worker)
        self._judge(self._lost_connection)
        self.came_first = {index: absence for absence in absences for index in self._left_first(absence)}
        self._judge(self._of_broken_pool)
        for step in (self._dismissed, self._cleanup, self._ended_by_launcher, self._lost_peer, self._ended_with_parent):
            self._judge(step)

    def _judge(self, step: Callable[[Death], Following | None]) -> None:
        """All deaths by one question; those that it explains are out of it for the next one."""
        found = {}
        for death in self._deaths:
            index = death.view.index
            if index in self.found or index in self.came_first:
                continue
            following = step(death)
            if following is not None:
                found[index] = following
        self.found.update(found)

    def _others(self, death: Death) -> Iterator[Death]:
        """The deaths that are not consequences so far, the earliest first."""
        for other in self._deaths:
            if other.view.index != death.view.index and other.view.index not in self.found:
                yield other

    def _passes_on(self, death: Death) -> Following | None:
        role, exception = death.view.process.role, death.view.exception
        wrapper = death.nature == "exit" or (exception is not None and mentions(CHILD_FAILED, exception.type or ""))
        if broken_by_loading(exception):
            return None
        if death.nature in PROMPT or not (role == "launcher" or wrapper):
            return None
        if death.nature == "interrupt" and role == "launcher":
            return None
        below = [self._by_index.get(view.index) for view in self._tree.descendants(death.view)]
        failed = min((item for item in below if item is not None), key=lambda item: item.last_ns, default=None)
        if failed is not None and death.nature == "exception" and death.surely_before(failed):
            return None  # it raised while all of them lived, and ended them on its way out: Ray's driver
        if self._raised_itself(death):
            return None
        return Following(WhyKind.REPORTED, f"reports the failure of {subject(failed)}") if failed is not None else None

    def _raised_itself(self, death: Death) -> bool:
        """Cached: each child of thousands asks it of one parent."""
        index = death.view.index
        if index not in self._raising:
            self._raising[index] = self._is_raised_itself(death)
        return self._raising[index]

    def _is_raised_itself(self, death: Death) -> bool:
        if reports_a_child(death.view):
            return False
        below = [self._by_index.get(view.index) for view in self._tree.descendants(death.view)]
        children = self._tree.children.get(death.view.index, [])
        return raised_beside_ending(death, children, [item for item in below if item is not None])

    def _of_raising_parent(self, death: Death) -> Following | None:
        """A process that its parent ended while it raised an exception that is not about it."""
        parent = self._tree.parent[death.view.index]
        cause = self._by_index.get(parent.index) if parent is not None else None
        if parent is None or cause is None or parent.index in self.found or ended_by(parent, death) is None:
            return None
        if not self._raised_itself(cause):
            return None
        return Following(
            WhyKind.SENT, f"ended by its parent, process {parent.process.snapshot.pid}, which raised {cause.what}"
        )

    def _of_broken_pool(self, death: Death) -> Following | None:
        """A worker that a pool ended as it could not load what one had sent, before the program got its error."""
        parent, number = self._tree.parent[death.view.index], death.view.process.signal
        if death.nature != "sent" or parent is None or number is None or not broken_by_loading(parent.exception):
            return None
        if not self._sent_by(parent, death, number):
            return None
        return Following(WhyKind.SENT, f"ended by its parent, process {parent.process.snapshot.pid}, with its pool")

    def _lost_worker(self, death: Death) -> Following | None:
        exception = death.view.exception
        match = WORKER_DIED.search(exception.message or "") if exception else None
        if match is None:
            return None
        pids = {int(pid) for pid in re.findall(r"\d+", match[1])}
        worker = next((o for o in self._deaths if o.view.process.snapshot.pid in pids and o.boot == death.boot), None)
        if worker is None:
            return None
        return Following(WhyKind.REPORTED, f"reports the death of {subject(worker)}", worker.view.index)

    def _lost_connection(self, death: Death) -> Following | None:
        of_rpc = lost_rpc(death.view)
        if death.nature != "exception" or not (of_rpc or lost_connection(death.view)):
            return None
        parent = self._tree.parent[death.view.index]
        if of_rpc:  # those that were started beside it, but not who says the same
            relatives = [*self._tree.children.get(parent.index, ())] if parent is not None else []
            relatives = [view for view in relatives if view.index != death.view.index and not lost_rpc(view)]
        else:
            relatives = [*self._tree.descendants(death.view), *([parent] if parent is not None else [])]
        other = lost_process(self._others(death), death, relatives)
        if other is None:
            return None
        return Following(WhyKind.NETWORK, f"lost the connection to {subject(other)}", other.view.index)

    def _left_first(self, absence: Absence) -> list[int]:
        """Ranks that never entered, if nothing else explains why the waiting ranks ended."""
        complaints = [d for i in absence.waiting if (d := self._by_index.get(i)) is not None and d.lost_peer]
        dead = [d for i in absence.absent if (d := self._by_index.get(i)) is not None and not d.lost_peer]
        if not complaints:
            return []
        return [death.view.index for death in dead if not any(self._explains(o, death) for o in self._others(death))]

    @staticmethod
    def _explains(other: Death, death: Death) -> bool:
        """Whether another death, by itself and not later, may be why all processes ended."""
        symptom = other.lost_peer or other.nature in ("left", "vanished") or other.view.process.role == "launcher"
        signal = other.view.process.signal if other.nature == "sent" else None
        return not symptom and signal != SIGTERM and other.maybe_before(death)

    def _cleanup(self, death: Death) -> Following | None:
        if not death.cleanup:
            return None
        left = death.view.process.snapshot.left_mono_ns
        cause = next((o for o in self._others(death) if not o.cleanup and o.surely_before(death)), None)
        if cause is None or left is None:
            return None
        return Following(WhyKind.CLEANUP, f"had begun to leave the job, after the death of {subject(cause)}")

    def _ended_by_launcher(self, death: Death) -> Following | None:
        """SIGTERM, then SIGKILL, is how torchrun's agent ends the remaining workers."""
        parent = self._tree.parent[death.view.index]
        if death.nature != "sent" or parent is None or not self._may_have_sent(parent, death):
            return None
        number = death.view.process.signal
        causes = [o for o in self._others(death) if o.view.process.role != "launcher" and o.maybe_before(death)]
        proven = self._sent_by(parent, death, number or SIGTERM) or self._sent_by(parent, death, SIGTERM)
        noted = number == SIGKILL and self._sent_by(parent, death, SIGKILL)
        if number == SIGKILL and not noted:
            causes = [o for o in causes if death.last_ns - o.last_ns >= _GRACE_NS and death.last_ns < float("inf")]
        else:
            causes = [o for o in causes if o.nature != "sent" or o.view.process.signal == SIGKILL]
        causes = [o for o in causes if o.surely_before(death) or not self._sent_by_same(parent, o)]
        causes = [o for o in causes if o.surely_before(death) or not self._is_below(o, death)]
        if not causes or self._was_seen_first(parent, death, causes):
            return None
        by_agent = parent.process.role == "launcher" and runs_agent(parent.process.snapshot.argv)
        who = "torchrun's agent" if by_agent else f"its parent, process {parent.process.snapshot.pid},"
        first = causes[0]
        sure = any(item.sure for item in death.view.senders)
        if sure and first.view.index == parent.index and death.first_ns < first.first_ns:
            return Following(WhyKind.SENT, f"ended by {who} before that one died")
        if number == SIGKILL and not noted:
            after = time_words(int(death.last_ns - first.last_ns))
            why = f"probably killed by {who} {after} after {subject(first)} died: it waits 30 s after SIGTERM"
            return Following(WhyKind.SENT, why + (", which it had sent" if proven else ""))
        return Following(WhyKind.SENT, f"{'' if proven else 'probably '}ended by {who} after {subject(first)} died")

    def _dismissed(self, death: Death) -> Following | None:
        """A child that its parent ended by itself, `worker.terminate()`, and went on: what comes later has a cause.

        Or a process below that child, where it ended all of them. Not where it raised, or ended with a status of its
        own, nor where one between them did: it may have lost what was ended.
        """
        number = death.view.process.signal
        if death.nature != "sent" or death.view.process.role == "rank" or number is None:
            return None
        sender = self._sender_above(death, number)
        if sender is None or self._had_started_ranks(sender, death):
            return None
        end = self._by_index.get(sender.index)
        if self._is_reported_by(sender) and (sender.process.role != "launcher" or end is None or end.nature != "sent"):
            return None  # a launcher is said to report its ranks, also where it was ended as they were
        if end is not None and (end.nature in _OF_ITS_OWN or end.first_ns < death.last_ns + _WENT_ON_NS):
            return None
        later = [other for other in self._others(death) if other.first_ns > death.last_ns]
        if all(self._sent_by(sender, other, other.view.process.signal or 0) for other in later):
            return None
        frame = next((item.frame for item in death.view.senders if item.frame is not None), None)
        at = f" at {place_words(frame)}" if frame is not None else ""
        by = "its parent" if sender is self._tree.parent[death.view.index] else "a process above it"
        return Following(WhyKind.SENT, f"ended by {by}, {name_words([sender])}{at}, which went on")

    def _sender_above(self, death: Death, number: int) -> ProcessView | None:
        """The process above it that sent the signal, to all between them as well."""
        for item in self._tree.ancestors(death.view):
            if self._sent_by(item, death, number):
                return item
            between = self._by_index.get(item.index)
            if between is None or between.nature != "sent":
                return None
        return None

    def _had_started_ranks(self, sender: ProcessView, death: Death) -> bool:
        """Whether it is a launcher, and not one that ended a helper of its own before its ranks began."""
        if sender.process.role != "launcher":
            return False
        ranks = [item for item in self._tree.descendants(sender) if item.process.role == "rank"]
        began = [item.clock.relative(item.process.snapshot.created_mono_ns) or 0 for item in ranks]
        return not began or min(began) < death.last_ns

    def _is_reported_by(self, parent: ProcessView) -> bool:
        """Whether the parent's end is already told by that of a child."""
        following = self.found.get(parent.index)
        return following is not None and following.kind is WhyKind.REPORTED

    @staticmethod
    def _sent_by(parent: ProcessView, death: Death, number: int) -> bool:
        """Whether the process recorded its parent as the sender of that signal, or its parent noted it."""
        pid = parent.process.snapshot.pid
        noted = any(item.send.signal == number and item.sender.snapshot.pid == pid for item in death.view.senders)
        return noted or any(sent.sender_pid == pid for sent in sent_signals(death.view.process.snapshot, number))

    def _sent_by_same(self, parent: ProcessView, other: Death) -> bool:
        """Whether that process ended the other one as well: of two that it ended, neither is why it ended the other."""
        number = other.view.process.signal
        return other.nature == "sent" and number is not None and self._sent_by(parent, other, number)

    def _is_below(self, other: Death, death: Death) -> bool:
        """Whether the process of a death is above that of the other, which no third process learns of before it."""
        return any(view is death.view for view in self._tree.ancestors(other.view))

    @staticmethod
    def _may_have_sent(parent: ProcessView, death: Death) -> bool:
        """Not when another sender is on record."""
        sent = deadly_signal(death.view)
        return sent is None or not sent.sender_pid or sent.sender_pid == parent.process.snapshot.pid

    @staticmethod
    def _was_seen_first(parent: ProcessView, death: Death, causes: Sequence[Death]) -> bool:
        """Whether the launcher noticed this end no later than those that only report a lost peer.

        Then it had no reason yet to send a signal, and this end may be the lost peer.
        """
        if not all(cause.lost_peer for cause in causes):
            return False
        seen = {wait.pid: wait.mono_ns for wait in parent.process.snapshot.waits}
        own = seen.get(death.view.process.snapshot.pid)
        if own is None:
            return False
        here = [o for o in causes if o.boot == death.boot]
        noticed = [seen[pid] for o in here if (pid := o.view.process.snapshot.pid) in seen]
        return len(here) == len(causes) == len(noticed) and own <= min(noticed) + _ONE_LOOK_NS

    def _lost_peer(self, death: Death) -> Following | None:
        asked = waited_for_key(death.view)
        if not death.lost_peer and not asked:
            return None
        missing = next((self._by_index[i] for i, a in self.came_first.items() if death.view.index in a.waiting), None)
        if missing is None:
            others = (o for o in self._peers if o.view.index != death.view.index)
            reasons = (o for o in others if o.view.index not in self.found)
            earlier = (o for o in reasons if (o.surely_before(death) if asked else _may_be_why(o, death)))
            missing = next(earlier, None)
        if missing is None:
            return None
        if death.nature == "abort":
            return Following(WhyKind.NETWORK, f"its watchdog gave up waiting for {subject(missing)}")
        outlived = missing.view.index in self.came_first and death.surely_before(missing)
        outlived = outlived and death.view.process.world_size != 2  # another one closed it
        if outlived or not peer_gone(death.view):
            return Following(WhyKind.NETWORK, f"waited in vain for {subject(missing)}")
        return Following(WhyKind.NETWORK, f"lost the connection to {subject(missing)}")

    def _ended_with_parent(self, death: Death) -> Following | None:
        parent = self._tree.parent[death.view.index]
        if death.nature not in ("sent", "exit", "exception") or death.view.process.role == "rank" or parent is None:
            return None
        cause = self._by_index.get(parent.index)
        if _ended_with_pool(parent, death) and not self._is_reported_by(parent):
            raised = cause is not None and cause.nature == "exception"
            return Following(
                WhyKind.TEARDOWN,
                f"its pool was ended by its parent, {name_words([parent])}{', which raised' if raised else ''}",
            )
        if cause is None or cause.nature not in (*PROMPT, "sent") or cause.last_ns > death.last_ns:
            return None
        return Following(WhyKind.TEARDOWN, f"ended after its parent, {subject(cause)}")


def _ended_with_pool(parent: ProcessView, death: Death) -> bool:
    """Whether a pool ended its process: `with Pool() as pool:` and joblib do so before an exception is seen."""
    own = [item for item in death.view.senders if item.sender.snapshot.pid == parent.process.snapshot.pid]
    files = (frame.file or "" for item in own for frame in item.send.stack)
    return death.nature == "sent" and any(file.endswith(_POOLS) for file in files)


def _may_be_why(reason: Death, death: Death) -> bool:
    return reason.maybe_before(death) or _failed_together(reason, death)


def _failed_together(reason: Death, death: Death) -> bool:
    """Whether the same collective failed in both, which makes their times meaningless.

    A backend detects a failure and closes its connections on its own thread; the thread that raises is woken later, on
    a busy machine after those of the peers (gloo in torch 2.13: "Bad address" 0.4 ms after "closed by peer").
    """
    own, other = _failed_collective(reason), _failed_collective(death)
    return own is not None and own == other


def _failed_collective(death: Death) -> tuple[object, ...] | None:
    process = death.view.process
    last = next((item for item in reversed(process.snapshot.collectives) if not item.point_to_point), None)
    if last is None or last.state != "failed" or last.group is None or death.nature != "exception":
        return None
    return process.attempt, last.group, last.sequence_nr, last.op


def subject(death: Death) -> str:
    """`rank 1`, for the middle of a sentence."""
    return name_words([death.view])
