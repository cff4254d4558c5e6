"""What forums advise for crashes of distributed jobs, and what the recording says about each piece of advice.

None of them is a rule: each names a measure, not a cause. A measure is refuted only by facts of this recording.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from pytracer._text import count_words
from pytracer.analyze.evidence.known_crashes import known_crash
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.journal import Buckets, select
from pytracer.report.job import Checked

_LIFETIME_RULES = (
    *("use-after-free", "collective-buffer-freed", "storage-swapped", "stale-grad", "unmapped-storage"),
    *("freed-meanwhile", "cuda-graph-input-freed", "guard-damage", "unmapped-memory"),
)
_COLLECTIVE_RULES = (
    *("collective-mismatch", "group-mismatch", "collective-missing-rank", "conditional-collective", "uneven-inputs"),
    *("collective-wait", "split-sizes", "point-to-point-unmatched", "unused-parameters", "rendezvous-mismatch"),
)
_COMPILED_IMAGE = "torchinductor_"
_COMPILER_FILES = ("/torch/_dynamo/", "/torch/_inductor/", "/torch/_functorch/", "torchinductor_", "<eval_with_key>")
_UNEXPLAINED = ("wild-pointer", "heap-corruption", "unknown")
_FROM_OUTSIDE = ("external-kill", "oom-kill", "resource-limit", "shm-exhausted", "disk-full")


class Suspect(msgspec.Struct, frozen=True):
    """One piece of advice, and the fact that speaks against it or leaves it open."""

    id: str
    says: str
    result: Literal["refuted", "cannot-decide"]
    why: str


def popular_suspects(
    job: JobView, view: ProcessView, verdict_class: str, fired: Sequence[str], checked: Sequence[Checked]
) -> Iterator[Suspect]:
    """All of them, for the first death of a job of several ranks, or of a DDP module; nothing for other jobs.

    `fired`: the rules with a finding, `checked`: the others.
    """
    ranks = [item for item in job.views if item.process.role == "rank"]
    if len(ranks) < 2 and not any(_has_ddp(item) for item in job.views):
        return
    undecided = {item.id or "" for item in checked if item.result == "cannot-decide"}
    yield _clone(view, verdict_class, fired, undecided)
    yield _barrier(job, fired, undecided)
    yield _compiled(view)
    yield _version(view, verdict_class)


def _has_ddp(view: ProcessView) -> bool:
    return next(iter(select(view.process.snapshot.facts, Buckets)), None) is not None


def _clone(view: ProcessView, verdict_class: str, fired: Sequence[str], undecided: set[str]) -> Suspect:
    says = "a missing clone(): a tensor was changed or freed while others used it"
    freed = [rule for rule in _LIFETIME_RULES if rule in fired]
    if freed:
        why = f"{freed[0]} was found: a copy would end the sharing of that memory, and hide who frees it"
        return Suspect("clone", says, "cannot-decide", why)
    if view.crash is None or not view.is_fault:
        return Suspect("clone", says, "refuted", "no access to memory failed: the first death was no memory fault")
    open_rules = [rule for rule in _LIFETIME_RULES if rule in undecided]
    if open_rules:
        return Suspect("clone", says, "cannot-decide", f"{open_rules[0]} could not be decided")
    if verdict_class in _UNEXPLAINED:
        why = "the address belongs to nothing known, and storages that were freed long ago are forgotten"
        return Suspect("clone", says, "cannot-decide", why)
    return Suspect("clone", says, "refuted", "the fault address lay in no storage that had been freed or replaced")


def _barrier(job: JobView, fired: Sequence[str], undecided: set[str]) -> Suspect:
    says = "a missing barrier(): ranks ran apart"
    apart = [rule for rule in _COLLECTIVE_RULES if rule in fired]
    if apart:
        why = f"{apart[0]} was found: a barrier is one more collective that every rank must enter, and waits as well"
        return Suspect("barrier", says, "refuted", why)
    groups = [group for group in job.matches.groups if len(group.ranks) > 1]
    numbers = [number for group in groups for number in group.last.values()]
    unread = not numbers or any(group.unknown or not group.last for group in groups) or None in numbers
    if not groups or unread or any(rule in undecided for rule in _COLLECTIVE_RULES):
        return Suspect("barrier", says, "cannot-decide", "not all ranks' collectives were recorded")
    count = sum(min(number or 0 for number in group.last.values()) for group in groups)
    if count == 0:
        return Suspect("barrier", says, "cannot-decide", "there is no collective that all ranks had called")
    why = f"the ranks called the same {count_words(count, 'collective')} in the same order"
    return Suspect("barrier", says, "refuted", why)


def _compiled(view: ProcessView) -> Suspect:
    says = "torch.compile together with DDP"
    crash = view.crash
    files = [frame.file or "" for frame in view.python_stack or view.exception_stack or ()]
    images = [image.path for image in crash.images] if crash is not None else []
    compiled = [path for path in images if _COMPILED_IMAGE in path]
    inside = [file for file in files if any(part in file for part in _COMPILER_FILES)]
    if inside or compiled:
        what = "a frame of the compiler is on the stack" if inside else "compiled code was loaded"
        return Suspect("torch-compile", says, "cannot-decide", f"{what}: run once with TORCH_COMPILE_DISABLE=1")
    if not files or not images:
        return Suspect("torch-compile", says, "cannot-decide", "the loaded libraries or the Python stack are not known")
    return Suspect(
        "torch-compile", says, "refuted", "no compiled code was loaded, and no frame of the compiler is on the stack"
    )


def _version(view: ProcessView, verdict_class: str) -> Suspect:
    says = "this version of torch: downgrade it"
    if verdict_class in _FROM_OUTSIDE:
        return Suspect("version", says, "refuted", "the process was ended by its surroundings, not by code of torch")
    known = known_crash(view)
    versions = view.process.snapshot.versions
    torch = f"torch {versions.torch}" if versions.torch else "this torch"
    if known is not None:
        return Suspect("version", says, "cannot-decide", known.says)
    why = f"no known crash has the recorded facts; no other version of {torch} was tried"
    return Suspect("version", says, "cannot-decide", why)
