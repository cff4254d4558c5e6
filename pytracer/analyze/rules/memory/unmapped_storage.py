"""unmapped-storage: the memory of a tensor that is still alive had been unmapped.

What: the fault address is in a live storage, but in no mapping: the tensor exists, its memory does not. Or the memory
had another owner, and inaccessible anonymous memory is there now, such as the reserve of another thread's heap.

Why it happens: the memory has another owner. `torch.from_blob`, `torch.frombuffer`, `torch.from_numpy` and
DLPack make tensors of memory that another library, a `mmap` or a C array owns; a tensor keeps the object alive that it
was made from, but not what that object only points at. An owner that unmaps its memory when it is collected
(SharedMemory, mmap) is named, where it was a local variable of a function that has returned, or where a line closed it.
So is the variable whose address alone the tensor was made of (`_from_blob(x.ctypes.data, ...)`), where it ended.

An address of 32 bits, in a process that has no memory below 4 GiB, lost its upper half before the tensor was made of
it: then it is a `wild-pointer`.

What to do: keep the owner of the memory for as long as the tensor, or `clone()` the tensor.

How it can be wrong: a storage whose release was not seen, because it happened past the hooks, looks alive. So the
finding is certain only for memory that others own and that the crash handler found a live storage in; for memory of
torch's own allocator it is merely possible.
"""

from __future__ import annotations

from pytracer.analyze.address_space.overrun import begins_there, oversized_bytes
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.lifetime.closed_owner import closed_owner
from pytracer.analyze.evidence.lifetime.cut_memory import cut_memory
from pytracer.analyze.evidence.lifetime.dropped_owner import dropped_owner
from pytracer.analyze.evidence.lifetime.ended_owner import ended_owner
from pytracer.analyze.evidence.lifetime.inherited_memory import was_left_behind
from pytracer.analyze.evidence.lifetime.owner_calls import owner_calls
from pytracer.analyze.evidence.lifetime.owner_object import owner_object
from pytracer.analyze.evidence.lifetime.reallocation import reallocation_of
from pytracer.analyze.evidence.lifetime.resized_owner import resized_owner
from pytracer.analyze.evidence.lifetime.temporary_owner import TemporaryOwner, temporary_owner
from pytracer.analyze.evidence.lifetime.unmapping import (
    unmapper_words,
    unmapping_evidence,
    unmapping_line,
    unmapping_of,
)
from pytracer.analyze.evidence.own_code.local_memory import blob_advice, local_blob
from pytracer.analyze.evidence.phrases import (
    access_verb,
    allocation_evidence,
    fault_evidence,
    python_evidence,
    storage_evidence,
    tensor_and_line,
)
from pytracer.analyze.naming import introduction, place_words
from pytracer.analyze.rules.base import Description, Judgement
from pytracer.analyze.rules.fault import StorageFaultRule
from pytracer.analyze.tensors.origins import is_borrowed
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Crash, Storage
from pytracer.report.job import Confidence, Evidence


class UnmappedStorage(StorageFaultRule[None]):
    """Fires for an address in a live storage and in no mapping, where the memory map is known beyond it."""

    id = "unmapped-storage"
    needs = ("crash", "storages", "mappings")
    absent = "no fault address lay in a live storage without memory"

    def judge(self, view: ProcessView) -> Judgement[None] | None:
        """See FaultRule."""
        place, crash = view.place, view.crash
        if place is None or crash is None or place.kind != "in-storage" or place.storage is None:
            return None
        if oversized_bytes(crash, place) is not None or not _is_gone(view) or reallocation_of(view) is not None:
            return None
        if was_left_behind(view):
            return None  # memory-not-inherited
        if not any(item.end > place.addr for item in crash.mappings):
            return None
        if cut_memory(view) is not None:
            return Judgement("wild-pointer", "likely", (view,), None)
        return Judgement("use-after-free", _confidence(view), (view,), None)

    def describe(self, job: JobView, judgement: Judgement[None]) -> Description:
        """See FaultRule."""
        view = judgement.views[0]
        cut, local, dropped = cut_memory(view), local_blob(view), dropped_owner(view)
        why = f"the tensor is alive, its memory was unmapped{_by_words(view)}"
        closed = closed_owner(view)
        if dropped is not None:
            why = f"the tensor is alive, its memory was unmapped: {dropped.summary}"
        elif closed is not None:
            why = f"the tensor is alive, its memory was unmapped by {closed.by}{closed.still}"
        ended, resized, temporary = ended_owner(view), resized_owner(view, shrunk=False), _temporary(view)
        if local is not None:
            why = local.summary
        elif ended is not None:
            why = ended.summary
        elif resized is not None:
            why = f"it {resized.summary}"
        elif temporary is not None:
            why = f"{why}; {temporary.summary}"
        if cut is not None:
            why = cut.summary
        return Description(
            f"{introduction(judgement.views)} {access_verb(view)} memory of {tensor_and_line(view)}: {why}.",
            [
                fault_evidence(view),
                storage_evidence(view),
                _where(view),
                unmapping_evidence(view),
                allocation_evidence(view.storage, "made"),
                python_evidence(view),
            ],
            cut.advice if cut is not None else _advice(view, temporary),
            [None if unmapping_of(view) or cut is not None or ended is not None else "who unmapped the memory"],
            behind=_behind(view, temporary),
        )


def _behind(view: ProcessView, temporary: TemporaryOwner | None) -> Behind:
    """Where the tensor was made, and what gave its memory away."""
    storage = view.storage
    made = storage.allocated.place if storage is not None and storage.allocated is not None else None
    owner = owner_object(view) if unmapping_of(view) is None else None
    gone = dropped_owner(view) or closed_owner(view)
    cause: object = cut_memory(view) or local_blob(view) or ended_owner(view) or resized_owner(view, shrunk=False)
    cause = cause or gone or temporary or owner or owner_calls(view)
    return Behind.of([], made, cause)


def _temporary(view: ProcessView) -> TemporaryOwner | None:
    """Where nothing that is recorded shows who gave the memory away."""
    known = unmapping_of(view) or local_blob(view) or dropped_owner(view) or closed_owner(view) or cut_memory(view)
    return temporary_owner(view) if known is None else None


def _by_words(view: ProcessView) -> str:
    unmapping = unmapping_of(view)
    return "" if unmapping is None else f" by {unmapper_words(view, unmapping)}"


def _advice(view: ProcessView, temporary: TemporaryOwner | None) -> str:
    unmapping = unmapping_of(view)
    ended = ended_owner(view) or resized_owner(view, shrunk=False)
    if ended is not None:
        return ended.advice
    if temporary is not None:
        return temporary.advice
    owner = owner_object(view)
    if unmapping is None and owner is not None:
        return owner.advice
    local = local_blob(view)
    if local is not None:
        return blob_advice(view, local)
    dropped = dropped_owner(view)
    if dropped is not None:
        return dropped.advice("the tensor")
    given_back = closed_owner(view)
    if given_back is not None:
        return given_back.advice("the tensor")
    calls = owner_calls(view) if unmapping is None else None
    if calls is not None:
        return calls.advice
    if unmapping is None:
        return (
            "Keep what owns the memory - the mapping, the library's object behind an array - for as long as the "
            "tensor, or copy it while that lives."
        )
    line = unmapping_line(unmapping)
    closed = f"{place_words(line)} closed" if line is not None else f"{unmapper_words(view, unmapping)} unmapped"
    return f"{closed} what owns the memory too early: keep it open for as long as the tensor, or clone() it before."


def _is_gone(view: ProcessView) -> bool:
    """No mapping, or one without any permission where others' memory was: it took the hole."""
    place = view.place
    mapping = place.mapping if place is not None else None
    if place is None or place.storage is None or mapping is None:
        return place is not None
    if mapping.path or not mapping.permissions.startswith("---") or not is_borrowed(place.storage):
        return False
    crash, storage = view.crash, place.storage
    return crash is None or not begins_there(crash, storage) or _is_overlaid(crash, storage)


def _is_overlaid(crash: Crash, storage: Storage) -> bool:
    """Whether a file is mapped in the middle of what began as plain memory: others got the parts of the hole."""
    within = [item for item in crash.mappings if item.start < storage.base + storage.nbytes and item.end > storage.base]
    plain = any(item.start <= storage.base and not item.path for item in within)
    return plain and any(item.path.startswith("/") for item in within)


def _where(view: ProcessView) -> Evidence:
    addr = view.fault.addr if view.fault else None
    if view.place is None or view.place.mapping is None:
        return Evidence("mapping", "the address lay in no mapping", addr=addr)
    words = (
        "inaccessible memory lies there now: it was unmapped, and the hole was taken, for example by a thread's heap"
    )
    return Evidence("mapping", words, addr=addr, permissions=view.place.mapping.permissions)


def _confidence(view: ProcessView) -> Confidence:
    """By whom the memory belongs to: torch unmaps its own when it frees it."""
    place = view.place
    if place is not None and place.mapping is not None:
        return "likely"  # mprotect() by its owner looks the same
    if place is None or place.storage is None or not place.storage.foreign:
        return "possible"
    return "certain" if place.found == "exact" and is_borrowed(place.storage) else "likely"
