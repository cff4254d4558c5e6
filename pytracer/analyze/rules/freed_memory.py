"""What the rules about released memory share: the fault lies in a storage that was freed, and in no live one."""

from __future__ import annotations

from pytracer._text import size_words, time_words
from pytracer.analyze.address_space.description import offset_words
from pytracer.analyze.address_space.freed_neighbor import (
    FreedNeighbor,
    freed_neighbor,
    may_be_counted_from_elsewhere,
    may_be_counted_from_hole,
)
from pytracer.analyze.address_space.guard_pool import FOUND
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.guard_mode import guard_confidence, guard_evidence
from pytracer.analyze.evidence.lifetime.moved_views import moved_view
from pytracer.analyze.evidence.lifetime.release_words import ReleaseWords, release_words
from pytracer.analyze.evidence.lifetime.releases import Release, is_sent, release_of
from pytracer.analyze.evidence.lifetime.saves import save_advice
from pytracer.analyze.evidence.lifetime.unlocked_use import unlocked_use
from pytracer.analyze.evidence.operators.operator import find_operator, out_of_compressed, out_of_range
from pytracer.analyze.evidence.own_code.kept_address import by_other_thread, kept_address
from pytracer.analyze.evidence.own_code.ran_into_freed import ran_into_freed
from pytracer.analyze.evidence.own_code.unheld_address import unheld_address
from pytracer.analyze.evidence.phrases import (
    access_verb,
    allocation_evidence,
    bucket_evidence,
    collective_evidence,
    earlier_evidence,
    fault_evidence,
    free_evidence,
    in_function,
    python_evidence,
    storage_evidence,
)
from pytracer.analyze.naming import introduction, place_words
from pytracer.analyze.rules.base import Description, Judgement
from pytracer.analyze.rules.fault import StorageFaultRule
from pytracer.analyze.tensors.fsdp_words import earlier_advice, earlier_unit, unit_evidence
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Confidence, Origin

_WAIT = (
    "Let the thread that frees or replaces the memory wait for {} (a lock, join()), or give each thread a tensor of "
    "its own."
)
_COUNTED = (
    "what the address was counted from: nothing held the first byte of the freed storage, and something a pointer into "
    "a live one"
)

_REUSED = (
    "what the address was counted from: nothing held that of the freed storage, and part of its memory is mapped again"
)


class FreedMemoryRule(StorageFaultRule[Release | None]):
    """A use of memory that was released in one of the ways `kinds`; None is a release of unknown reason."""

    kinds: tuple[str | None, ...]

    def judge(self, view: ProcessView) -> Judgement[Release | None] | None:
        """See FaultRule."""
        if view.place is None or view.place.kind != "freed-storage":
            return None
        if ran_into_freed(view) is not None:
            return None  # out-of-bounds
        release = release_of(view)
        if (release.kind if release else None) not in self.kinds:
            return None
        return Judgement("use-after-free", _confidence(view), (view,), release)

    def describe(self, job: JobView, judgement: Judgement[Release | None]) -> Description:
        """See FaultRule."""
        view, storage = judgement.views[0], judgement.views[0].storage
        release = release_words(view, judgement.found) if judgement.found is not None else None
        temporary = kept_address(view) if release is None else None
        moved = moved_view(view, judgement.found)
        unlocked = unlocked_use(view) if by_other_thread(view) else None
        below = f"; {unlocked.summary}" if unlocked is not None else ""
        where = f"{_where(view)}, {_released(view, release)}{below}"
        if temporary is not None:
            where = f"{_where(view)}{in_function(view)}: {temporary.summary}"
        elif moved is not None:
            where = moved.summary
        found = temporary or moved
        return Description(
            f"{introduction(judgement.views)} {access_verb(view)} freed memory: {where}.",
            [
                fault_evidence(view),
                storage_evidence(view),
                guard_evidence(view),
                bucket_evidence(view),
                unit_evidence(view),
                earlier_evidence(view),
                allocation_evidence(storage),
                free_evidence(storage),
                *(release.evidence if release else ()),
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            found.advice if found is not None else _advice(view, judgement.found, release) + earlier_advice(view),
            [_mapped(view), _ran_in(view), _overwritten(view), _older(view)],
            behind=_behind(view, found),
        )


def _behind(view: ProcessView, found: object) -> Behind:
    """Where the memory was allocated and freed, and what kept its address."""
    storage = view.storage
    sites = (storage.allocated, storage.freed) if storage is not None else ()
    other = by_other_thread(view)
    address, unlocked = (unheld_address(view), unlocked_use(view)) if other else (None, None)
    return Behind.of([], [site.place for site in sites if site is not None], found, address, unlocked)


def _confidence(view: ProcessView) -> Confidence:
    """Certain only when the handler saw it, in no mapping at all, and nothing live may have led there."""
    place = view.place
    exact = guard_confidence(view)
    if exact is not None:
        return exact
    if place is None or place.mapping is not None:
        return "possible"
    if earlier_unit(view) is not None:
        return "likely"  # FSDP's addresses come back in every step: the pointer may be one of those
    if _neighbor(view) is not None or _may_be_indexed(view):
        return "possible"
    unmapped = view.signal is not None and view.signal.code == "SEGV_MAPERR"
    seen = unmapped and place.found in ("exact", "register")
    return "certain" if seen and _counted_from(view) is None else "likely"


def _may_be_indexed(view: ProcessView) -> bool:
    """Whether the running operator has an index that leads out of its tensors: the address may be that of one."""
    operator = find_operator(view)
    return out_of_range(operator) is not None or out_of_compressed(operator) is not None


def _where(view: ProcessView) -> str:
    place = view.place
    if place is None or place.storage is None:
        return "a freed storage"
    if place.bucket is not None:
        return f"{place.bucket.offset_bytes} bytes into {place.bucket.name}"
    if place.names:
        return f"{offset_words(place)} the storage of {place.names[0]}"
    return f"{offset_words(place)} a storage of {size_words(place.storage.nbytes)}"


def _freed(view: ProcessView) -> Origin | None:
    storage = view.storage
    return storage.freed if storage else None


def _released(view: ProcessView, release: ReleaseWords | None) -> str:
    if release is not None:
        freed, other = _freed(view), by_other_thread(view)
        place = freed.place if freed is not None else None
        by = f", on another thread{f' at {place_words(place)}' if place is not None else ''}" if other else ""
        return f"which {release.says}{by}"
    freed = _freed(view)
    place = freed.place if freed else None
    by = ", by another thread" if by_other_thread(view) else ""
    return f"which was released at {place_words(place)}{by}" if place else f"which had been released{by}"


def _mapped(view: ProcessView) -> str | None:
    place = view.place
    if place is None or place.mapping is None or place.found == FOUND:
        return None
    return f"proof that the memory was given back: the address lies in a mapping ({place.mapping.permissions})"


def _neighbor(view: ProcessView) -> FreedNeighbor | None:
    """The live storage before the freed one, past whose end the access may have run as well."""
    place = view.place
    return freed_neighbor(view.space, place) if place is not None and place.found != FOUND else None


def _ran_in(view: ProcessView) -> str | None:
    found = _neighbor(view)
    if found is None:
        return _counted_from(view)
    return (
        f"proof that it was not an access past the end of the live storage of {size_words(found.live.nbytes)} before "
        "it: nothing held the first byte of the freed one"
    )


def _counted_from(view: ProcessView) -> str | None:
    """What is missing where the address may have been counted from other memory."""
    place = view.place
    if place is None or place.found == FOUND:
        return None
    if may_be_counted_from_elsewhere(view.space, place):
        return _COUNTED
    return _REUSED if may_be_counted_from_hole(view.space, place) else None


def _older(view: ProcessView) -> str | None:
    earlier = earlier_unit(view)
    return f"which owner's address it was: before, the same memory was the {earlier.name}" if earlier else None


def _overwritten(view: ProcessView) -> str | None:
    storage = view.place.storage if view.place else None
    if storage is None or storage.freed_by is not None:
        return None
    return "where it was allocated and freed: newer frees have overwritten the record of this storage"


def _advice(view: ProcessView, found: Release | None, release: ReleaseWords | None) -> str:
    frame = view.python_frame
    user = place_words(frame) if frame else "The native code"
    if by_other_thread(view) and not is_sent(found):
        address, unlocked = unheld_address(view), unlocked_use(view)
        held = address.advice if address is not None else unlocked.advice if unlocked is not None else None
        return save_advice(view) or held or _WAIT.format(user)
    if release is not None:
        return f"{user} {release.advice}"
    freed = _freed(view)
    ended = view.ended_ns
    age = ""
    if freed is not None and freed.time is not None and ended is not None and ended > freed.time:
        age = f", {time_words(ended - freed.time)} after it was freed"
    return f"{user} used memory of a tensor that nobody held any more{age}: keep a reference to it for as long."
