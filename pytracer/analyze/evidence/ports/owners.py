"""Who has a port: the process itself, its parent, another one of the job, or one that is not recorded."""

from __future__ import annotations

import msgspec

from pytracer._started_package import program_name
from pytracer._text import time_words
from pytracer.analyze.evidence.ports.taken import Holder
from pytracer.analyze.kin import is_parent, on_one_machine
from pytracer.analyze.naming import name_words
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.job.identity import runs_agent

_NS = 1_000_000_000


class Owner(msgspec.Struct, frozen=True):
    """`view`: None of a process that is not recorded. `before`: it is older than each process of the job.

    `of_job`: it is recorded, or a recorded process is its parent, or it is the failing process's.
    """

    holder: Holder
    name: str
    view: ProcessView | None
    of_job: bool
    before: bool = False
    same_program: bool = False

    @property
    def itself(self) -> bool:
        """Whether it is the process that was refused the port."""
        return self.name == _ITSELF

    @property
    def is_agent(self) -> bool:
        """Whether it is torchrun, which serves the store of the ranks that it starts."""
        return self.view is not None and runs_agent(self.view.process.snapshot.argv)


_ITSELF = "this process itself"


def owner_of(job: JobView, view: ProcessView, holder: Holder) -> Owner:
    """Of a port that `view` was refused."""
    snapshot = view.process.snapshot
    found = next((item for item in job.views if _is(item, view, holder)), None)
    same = holder.program is not None and holder.program == program_name(snapshot.argv)
    if found is not None and found.index == view.index:
        return Owner(holder, _ITSELF, found, of_job=True)
    if found is not None:
        named = _named(found)
        words = f"its parent, {named} of this job," if is_parent(found, view) else f"{named} of this job"
        return Owner(holder, words, found, of_job=True, same_program=same)
    name = f"process {holder.pid}{f' ({holder.program})' if holder.program else ''}"
    if holder.pid == snapshot.ppid:
        return Owner(holder, f"its parent, {name},", None, of_job=True)
    parent = next((item for item in job.views if _is_child(item, view, holder)), None)
    if parent is not None:
        whose = "this process" if parent.index == view.index else name_words([parent])
        return Owner(holder, f"{name}, a child of {whose},", None, of_job=True)
    began = [item.process.snapshot.start_ticks for item in job.views if on_one_machine(item, view)]
    before = bool(began) and 0 < holder.start_ticks < min(filter(None, began), default=0)
    return Owner(holder, name, None, of_job=False, before=before, same_program=same)


def _named(view: ProcessView) -> str:
    """`rank 1 (pid 4711)`, `process 4711 (train.py)`."""
    name, pid = name_words([view]), view.process.snapshot.pid
    if view.process.role == "launcher":
        return f"process {pid} ({program_name(view.process.snapshot.argv)})"
    return name if str(pid) in name else f"{name} (pid {pid})"


def _is(item: ProcessView, view: ProcessView, holder: Holder) -> bool:
    """A number may have been reused: the start of the process decides."""
    snapshot = item.process.snapshot
    return snapshot.pid == holder.pid and on_one_machine(item, view) and snapshot.start_ticks in (0, holder.start_ticks)


def _is_child(item: ProcessView, view: ProcessView, holder: Holder) -> bool:
    snapshot = item.process.snapshot
    return snapshot.pid == holder.parent and on_one_machine(item, view) and snapshot.start_ticks <= holder.start_ticks


def age_words(holder: Holder) -> str:
    """How long it had run."""
    return f"{holder.seconds} s" if holder.seconds < 100 else time_words(holder.seconds * _NS)
