"""heap-corruption: the heap was damaged, and the allocator noticed or died of it.

What: the C library printed one of its texts ("free(): invalid pointer", "double free or corruption", "corrupted size
vs. prev_size" ...) and aborted, or a fault happened inside malloc() or free(). Each text is explained.

A variable's tensor that needs more memory than its storage has is named as what reaches past the end of a block; so is
a live tensor behind which no size of a block is left, as the handler found it (glibc's malloc() only).

Where the recorded arguments of a call that had returned, or whose backward runs, break what its operator of torch takes
for granted (targets of ctc_loss that are no class), they are named with their numbers.

Why it happens: native code wrote past the end of a block, before its beginning or into one that was freed, freed a
block twice, or freed memory of another allocator. An extension that was built against another torch, NumPy or C++ ABI
does all of these.

Where the line of the program's own C++ that was freeing is known, its source says who allocated the memory: another
allocator, a container, a tensor, or an object with a second owner.

Where the line frees by ctypes what ctypes or string_at() copied (a result with `restype = c_char_p`), or the lower
half of an address (a result without a restype), the heap is whole: the call, and what declares it, are named.

Where a line gives a native struct the address of memory that nothing holds (`io.data = ffi.new(...)`), it is named as a
suspect; so is an object of Python that freed its native one while another keeps the address. Where only the end of the
program noticed the damage, in its exit handlers, the headline says so. Where the source of the program's own native
code is a string of the program, or lies beside it, the first suspect is an allocation that is too small for what the
same function does with it, or a buffer that it fills by a counter which it compares with no size: beside a tensor that
is overrun, or where the line that makes the buffer gives it a limit that the count of that call does not have. Where
the call that runs passes an array of ids and a number of elements, and its C makes a block of so many and takes the ids
for indices of it unchecked, the largest id is compared with the number: by recorded numbers, or by what a line makes of
these. Where infinities lie in place of a size, a loop of that C that stores them from an index on that may be negative
is named.

What to do: the damage was done before, in this call or long ago. The program's own libraries that are loaded are
named, with the lines that call them and the tensors and arrays that these pass; so is a line that frees one object
twice. Run it with --guard, with MALLOC_CHECK_=3 (and libc_malloc_debug.so.0 in LD_PRELOAD since glibc 2.34), under
AddressSanitizer or valgrind; rebuild extensions against the torch in use.

Where the address that free() was given is that of a live storage with a float32 number over its upper half, the heap
was damaged for certain. A number that does not fit is data, and no padding, where the line that makes the padded rows
fills them with another one.

How it can be wrong: memory that nothing holds is a suspect by the source alone; whether native code used it is not
recorded. A fault inside free() also follows from one bad argument with the heap in order. The stack shows
who noticed, not who did it.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.at_fault import of_unfit
from pytracer.analyze.evidence.heap.behind_storage import Overwritten, overwritten
from pytracer.analyze.evidence.heap.beyond_storage import BeyondStorage, beyond_advice, beyond_storage, used_at
from pytracer.analyze.evidence.heap.freed_by_owner import FreedByOwner, freed_by_owner
from pytracer.analyze.evidence.heap.freed_twice import freed_twice
from pytracer.analyze.evidence.heap.heap import HeapDamage, allocator_user, ends_in, heap_damage, user_words
from pytracer.analyze.evidence.heap.heap_suspects import (
    ONLY_NOTICED,
    beside_advice,
    first_suspect,
    has_known_suspect,
    heap_advice,
    running_conversion,
    suspect_behind,
    unchecked_advice,
)
from pytracer.analyze.evidence.heap.second_free import SecondFree, second_free
from pytracer.analyze.evidence.lifetime.deleters import Deleter, owners_words, running_deleter
from pytracer.analyze.evidence.native.aborts import is_abort
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.operators.state_sizes import UnfitState, state_behind, unfit_state
from pytracer.analyze.evidence.operators.unfit_operands import Unfit, unfit_operands
from pytracer.analyze.evidence.own_code.dropped_handle import DroppedHandle, dropped_handle
from pytracer.analyze.evidence.own_code.freed_by_python import FreedByPython, freed_by_python
from pytracer.analyze.evidence.own_code.freed_number import FreedNumber, freed_number
from pytracer.analyze.evidence.own_code.freed_pointer import freed_pointer
from pytracer.analyze.evidence.own_code.freed_reasons import FreedPointer, LiteralFreed, MovedResult, OtherAllocator
from pytracer.analyze.evidence.own_code.freed_result import FreedResult, freed_result
from pytracer.analyze.evidence.own_code.own_allocations import own_allocation
from pytracer.analyze.evidence.own_code.pointer_content import half_of_storage, numbers_followed, numbers_in_pointer
from pytracer.analyze.evidence.own_code.unfit_memory import unfit_memory
from pytracer.analyze.evidence.own_code.unfit_overrun import unfit_overrun
from pytracer.analyze.evidence.own_code.unheld_memory import UnheldMemories, unheld_memory
from pytracer.analyze.evidence.phrases import collective_evidence, fault_evidence, printed_evidence, python_evidence
from pytracer.analyze.evidence.preconditions.violated import Violated, has_unfit_before, violated_before
from pytracer.analyze.naming import introduction
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, merge_alike, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence, NativeFrame

_TWICE = "double free or corruption (fasttop)"  # the other texts that begin so may mean the size beside a block
_FREES = ("free", "cfree", "__libc_free", "__GI___libc_free", "munmap_chunk")  # they look at the address itself
_FREED_BEFORE = ("free(): double free", "double free or corruption")
_BY_ITS_LIST = ("free(): double free", _TWICE)  # it was the start of a block
_COUNTS_AS_FREE = "double free or corruption (!prev)"  # by the size of the next block, which a write may reach as well
_ABOUT_FREED = ("free(): ", "munmap_chunk(): ", "double free or corruption")
_NO_BLOCK = ("munmap_chunk()", "free(): double free")
_OR_ITS_ADDRESS = (
    "If that write stays within its block, look at what {} frees: it may lie inside of a block, or be none."
)
_BY_ITS_CALLER = ("free(): invalid pointer", "munmap_chunk(): invalid pointer", "free(): double free", _TWICE)

Freed = FreedPointer | FreedByPython | FreedResult | FreedNumber | FreedByOwner


class HeapCorruption:
    """Fires for the C library's texts about the heap, and for faults inside its allocator."""

    id = "heap-corruption"
    needs = ("crash",)

    def check(self, job: JobView) -> tuple[Judgement[HeapDamage], ...] | NoFinding:
        """One judgement per group of processes that died alike."""
        judgements = merge_alike(_judge(view) for view in job.suspects)
        return judgements or not_found("no allocator complained, and none died")

    def describe(self, job: JobView, judgement: Judgement[HeapDamage]) -> Description:
        """See Rule; the first process represents all that died alike."""
        view, damage = judgement.views[0], judgement.found
        cause = _cause(view, damage)
        fixed = cause.unfit is not None or cause.freed is not None
        return Description(
            f"{introduction(judgement.views)} {_headline(view, damage, cause)}.",
            [
                Evidence(
                    "signal", "SIGABRT, sent by the process itself", signal="SIGABRT", pid=view.process.snapshot.pid
                )
                if is_abort(view)
                else fault_evidence(view),
                printed_evidence(damage.text),
                cause.behind.evidence if cause.behind is not None else None,
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            _advised(view, damage, cause),
            [
                "what the allocator printed" if damage.function is None and damage.text is None else None,
                None if fixed else _missing(cause),
            ],
            explained=cause.is_explained,
            behind=_lines_behind(view, cause),
        )


class _Cause(msgspec.Struct, frozen=True):
    """What is known of who damaged the heap, or freed what is no block; `user`: who called the allocator.

    `suspect`: words about a call that is only the first one to look at, where nothing else is known.
    """

    user: str | None
    running: str | None = None
    freed: Freed | None = None
    deleter: Deleter | None = None
    beyond: BeyondStorage | None = None
    behind: Overwritten | None = None
    unfit: Unfit | UnfitState | None = None
    unheld: UnheldMemories | None = None
    dropped: DroppedHandle | None = None
    second: SecondFree | None = None
    suspect: str | None = None

    @property
    def is_explained(self) -> bool:
        """Whether it is more than what the allocator noticed, and its user."""
        return self.is_told or self.behind is not None

    @property
    def is_told(self) -> bool:
        """Whether somebody did so, or most likely did."""
        found = (self.freed, self.deleter, self.beyond, self.unfit, self.unheld, self.dropped)
        return any(item is not None for item in found)


def _cause(view: ProcessView, damage: HeapDamage) -> _Cause:
    """The first that is known, surest first; only then who else may have freed it, and a suspect."""
    cause = _surest(view, damage)
    known = cause.is_told or cause.running is not None or _freed_by_own(view, cause.user, damage)
    unheld = unheld_memory(view) if not known else None
    dropped = dropped_handle(view, anywhere=True) if not known and unheld is None and cause.behind is None else None
    cause = replace(cause, unheld=unheld, dropped=dropped)
    if cause.is_told:
        return cause
    twice = _is_twice(view, damage)
    second = second_free(view) if cause.behind is None and _is_of_freed(damage) and not twice else None
    by_write = (
        not twice
        and second is None
        and not _is_refused(view, cause.user, damage)
        and (not _is_callers(damage) or has_unfit_before(view) or _has_short_room(view, damage))
    )
    return replace(cause, second=second, suspect=first_suspect(view, cause.behind) if by_write else None)


def _surest(view: ProcessView, damage: HeapDamage) -> _Cause:
    """What the allocator's words, and the memory around, prove."""
    user, running = allocator_user(view), running_conversion(view)
    freed = _freed(view, damage)
    deleter = running_deleter(view) if freed is None else None
    if freed is not None or deleter is not None:
        return _Cause(user, running, freed, deleter)
    beyond = beyond_storage(view)
    if beyond is not None:
        return _Cause(user, running, beyond=beyond)
    behind = overwritten(view) if running is None else None
    return _Cause(user, running, behind=behind, unfit=_unfit(view, behind))


def _headline(view: ProcessView, damage: HeapDamage, cause: _Cause) -> str:
    what = _happened(view, damage, cause)
    if cause.unheld is not None:
        long_before = "; it may have been damaged long before" if ends_in(view) is not None else ""
        what = f"{what if cause.behind is not None else _found(view, damage)}{long_before}: {cause.unheld.summary}"
    if cause.dropped is not None:
        what += f"; the first suspect: {cause.dropped.fact}"
    if cause.second is not None:
        what += f"; {cause.second.summary}"
    return f"{what}; {cause.suspect}" if cause.suspect is not None else what


def _happened(view: ProcessView, damage: HeapDamage, cause: _Cause) -> str:
    if cause.freed is not None:
        return f"{_found(view, damage, cause.freed)}: {cause.freed.summary}"
    if cause.unfit is not None:
        return f"{_found(view, damage)}: {_damaged(view, damage)}{cause.unfit.summary}"
    if cause.beyond is not None:
        return f"{_found(view, damage)}: {cause.beyond.summary}{used_at(view, cause.beyond)}"
    if cause.behind is not None:
        return f"{_found(view, damage)}: {cause.behind.summary}"
    if cause.deleter is not None:
        return _of_deleter(cause.deleter)
    below = f", while {cause.running} was running" if cause.running is not None else user_words(view)
    return _what(view, damage, cause.user, below)


def _advised(view: ProcessView, damage: HeapDamage, cause: _Cause) -> str:
    if cause.freed is not None:
        return cause.freed.advice
    if cause.unfit is not None:
        return cause.unfit.advice(view)
    if cause.beyond is not None:
        return beyond_advice(view, cause.beyond)
    held = cause.unheld or cause.dropped
    if held is not None:
        return f"{held.advice} {ONLY_NOTICED}"
    if cause.behind is not None:
        return beside_advice(view, cause.behind)
    if cause.second is not None:
        return cause.second.advice
    return _advice(view, cause.user, damage, cause.deleter)


def _lines_behind(view: ProcessView, cause: _Cause) -> Behind | None:
    if isinstance(cause.unfit, Violated):
        return of_unfit(view, cause.unfit)
    if isinstance(cause.unfit, UnfitState):
        return state_behind(view, cause.unfit.size)
    if cause.suspect is not None:
        return suspect_behind(view, cause.behind)
    named = isinstance(cause.freed, (FreedResult, FreedNumber, FreedByOwner))
    return Behind.of([], cause.freed) if named else None


def _judge(view: ProcessView) -> Judgement[HeapDamage] | None:
    damage = heap_damage(view)
    if damage is None:
        return None
    sure = damage.text is not None or _written(view, damage) is not None
    return Judgement("heap-corruption", "certain" if sure else "likely", (view,), damage)


def _of_deleter(deleter: Deleter) -> str:
    return (
        f"freed memory that was freed before, or is not of malloc(), in {deleter.function.words}: the deleter of "
        f"{deleter.tensor}"
    )


def _missing(cause: _Cause) -> str:
    if cause.behind is not None:
        return "what wrote there: only where it wrote is known"
    if cause.beyond is not None:
        return "what wrote past the end of the memory: the tensor is the only one known that reaches there"
    return "who damaged the heap: only who noticed is known" if cause.deleter is None else "who freed it first"


def _advice(view: ProcessView, user: str | None, damage: HeapDamage, deleter: Deleter | None) -> str:
    if deleter is not None:
        return owners_words(deleter)
    short = _has_short_room(view, damage)
    told = unchecked_advice(view) or heap_advice(
        view,
        user,
        frees=(_is_callers(damage) or _is_refused(view, user, damage)) and not _only_noticed(view, user) and not short,
        freed=(damage.text or "").startswith(_FREED_BEFORE),
    )
    return f"{told} {_OR_ITS_ADDRESS.format(user)}" if short and user is not None and _is_callers(damage) else told


def _freed(view: ProcessView, damage: HeapDamage) -> Freed | None:
    """What the line that was freeing must not free; where the allocator's words, or its function, are about that."""
    if not _is_of_freed(damage):
        return None
    found = freed_pointer(view) or freed_result(view) or freed_number(view) or freed_by_python(view)
    if found is None and (damage.text or "").startswith(_FREED_BEFORE):
        return freed_by_owner(view)
    of_other = isinstance(found, (OtherAllocator, LiteralFreed, MovedResult, FreedByPython, FreedResult))
    return None if of_other and (damage.text or "").startswith(_BY_ITS_LIST) else found


def _is_of_freed(damage: HeapDamage) -> bool:
    """Whether the allocator's words, or its function, are about what is freed."""
    return (damage.text or "").startswith(_ABOUT_FREED) or damage.function in _FREES


def _is_twice(view: ProcessView, damage: HeapDamage) -> bool:
    """Whether the advice is about one method that frees it twice."""
    return (damage.text or "").startswith(_FREED_BEFORE) and freed_twice(view) is not None


def _unfit(view: ProcessView, behind: Overwritten | None) -> Unfit | UnfitState | None:
    """Of the call that noticed, else of one that had returned."""
    known = unfit_operands(view) or unfit_state(view) or violated_before(view) or unfit_memory(view, before=True)
    return known or unfit_overrun(view, behind)


def _is_callers(damage: HeapDamage) -> bool:
    """Whether the address itself that was freed may be wrong, and not only what lies around it."""
    return (damage.text or "").startswith(_BY_ITS_CALLER) or (damage.function or "") in _FREES


def _has_short_room(view: ProcessView, damage: HeapDamage) -> bool:
    """Whether an own allocation is too small; not by words that no byte behind a block leads to."""
    return not (damage.text or "").startswith(_NO_BLOCK) and own_allocation(view) is not None


def _is_refused(view: ProcessView, user: str | None, damage: HeapDamage) -> bool:
    """Whether native code of the program freed a block that counts as free, and no write that may do so is known."""
    if not (damage.text or "").startswith(_COUNTS_AS_FREE) or has_known_suspect(view):
        return False
    frame = _frame_of(view, user)
    return frame is not None and is_of_own_image(frame)


def _written(view: ProcessView, damage: HeapDamage) -> str | None:
    """The numbers that stood in the allocator's own lists, where no process can have memory at what they make."""
    impossible = view.place is not None and view.place.kind == "non-canonical"
    if damage.function in _FREES and half_of_storage(view) is not None:
        return numbers_in_pointer(view)  # of a block that it was to free
    return numbers_followed(view) if damage.of_request and impossible else None


def _damaged(view: ProcessView, damage: HeapDamage) -> str:
    """What is known beside the suspect, where the C library has printed nothing: that its heap was damaged."""
    if damage.function in _FREES and half_of_storage(view) is not None:
        return "its heap was damaged, with a float32 number over half of an address; "
    return "its heap was damaged; " if damage.function is not None else ""


def _what(view: ProcessView, damage: HeapDamage, user: str | None, below: str) -> str:
    written = _written(view, damage)
    if written is not None:
        over = f"a block of the heap was overwritten before: the place of a pointer held {written}"
        return f"{_found(view, damage)}{below}: {over}"
    if damage.function is not None and not _only_noticed(view, user):
        return f"{_found(view, damage)}: its heap was damaged, or it was given a bad pointer{below}"
    meaning = f": {damage.meaning}" if damage.meaning else ""
    if _only_noticed(view, user):
        return f"{_found(view, damage)}{meaning}; it may have been damaged long before"
    return f"{_found(view, damage)}{meaning}{below}"


def _only_noticed(view: ProcessView, user: str | None) -> bool:
    """Whether what freed memory is a library's, and did it at the end of the program, as it does in every program."""
    frame = _frame_of(view, user)
    return frame is not None and ends_in(view) is not None and not is_of_own_image(frame)


def _freed_by_own(view: ProcessView, user: str | None, damage: HeapDamage) -> bool:
    """Whether the program's own native code freed what may be no block: then that is looked at first."""
    frame = _frame_of(view, user)
    return frame is not None and _is_callers(damage) and is_of_own_image(frame)


def _frame_of(view: ProcessView, function: str | None) -> NativeFrame | None:
    return next((item for item in own_frames(view) if item.function == function), None) if function else None


def _found(view: ProcessView, damage: HeapDamage, freed: Freed | None = None) -> str:
    end = ends_in(view)
    when = f" at the end of the program, in {end}," if end is not None else ""
    if damage.function is not None:
        return f"died{when} inside the allocator ({damage.function})"
    if isinstance(freed, (FreedResult, LiteralFreed, MovedResult)):
        return f"aborted{when} because free() was given an address that malloc() never gave out"  # the heap is whole
    if isinstance(freed, FreedByOwner):
        return f"aborted{when} because free() refused a block"  # the heap is whole, if it was freed before
    return f"aborted{when} because the C library found its heap damaged"
