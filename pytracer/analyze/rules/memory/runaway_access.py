"""runaway-access: a loop or a memset() that ran on from a tensor to the end of the memory that it may use.

What: the fault is at the first byte that refuses the access, above a live storage or below it, and from the storage to
there the memory map has no gap; a register or the stack still points at the storage. A loop that goes in larger steps
stops up to one step behind that byte: stride and counter are in registers, and give the address exactly. A string
instruction (`rep stos`, `rep movs`: memset, memcpy) has the length that was left, and memset() keeps where it began.

Why it happens: a count or length is negative, in bytes instead of elements or the other way round, or of another
tensor. Everything behind the tensor was passed before the refusal, and overwritten by a write.

What to do: compare the length that the native function is given with the tensor's.

How it can be wrong: a register may point at a storage for another reason. Where registers point into several storages
on the way, the one with most of them is named, and the finding is merely *possible* without a majority of two; or the
first, where a write has left one and the same number in all others. A freed block that lies across the end of the heap
may be where torch's own operator ran into, if nothing had the block's address. Without such a register it is
*possible*, and nothing is named: a wrong pointer seldom hits the first byte beside such memory. Of memset() it is
*likely*: that keeps where it began, though what was recorded of storages may be overwritten. So it is of an array of
NumPy whose first byte and row are in registers, and where the source of the program's own function takes an unsigned
difference for a count, memory has both numbers, and a register or the stack their difference, below zero; with both it
is *certain*. It is *likely* as well where the failing line of that function indexes one array that it was passed, and a
register has a number that is nearly the index at the address. What sets the first number of that difference to 0, by
the same source, is named.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import hex_addr, size_words
from pytracer.analyze.address_space.address_info import Overrun
from pytracer.analyze.address_space.overrun import Run, left_bytes
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.indices.counted_up_to import counted_up_to
from pytracer.analyze.evidence.indices.reached_row import ReachedRow, fills_rows, reached_row
from pytracer.analyze.evidence.indices.row_words import row_advice, row_evidence, row_headline, shaped_name
from pytracer.analyze.evidence.indices.runs import ran_on
from pytracer.analyze.evidence.indices.sparse_source import sparse_advice, sparse_source
from pytracer.analyze.evidence.lifetime.variables import line_words, variable_of
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.jumps import wild_jump
from pytracer.analyze.evidence.operators.operator import find_operator, is_sparse
from pytracer.analyze.evidence.operators.state_sizes import small_state
from pytracer.analyze.evidence.own_code.arrays import array_words, left_array, walked_array
from pytracer.analyze.evidence.own_code.empty_count import empty_count
from pytracer.analyze.evidence.own_code.expanded import expanded_tensor
from pytracer.analyze.evidence.own_code.indexed_array import indexed_array
from pytracer.analyze.evidence.own_code.passed import length_advice, unequal_tensors, unfit_clause
from pytracer.analyze.evidence.own_code.unfit_memory import unfit_memory
from pytracer.analyze.evidence.own_code.wrapped_counts import wrapped_count
from pytracer.analyze.evidence.phrases import (
    access_verb,
    allocation_evidence,
    collective_evidence,
    fault_evidence,
    in_function,
    python_evidence,
)
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import introduction
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, cannot_decide, not_found
from pytracer.analyze.rules.fault import MemoryFaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Confidence, Evidence

_MEMSET_KEEPS = (
    "rdx"  # glibc, sysdeps/x86_64/multiarch/memset-vec-unaligned-erms.S: what it returns, while rep stos runs
)
_NS = 1_000_000_000


class RunawayAccess(MemoryFaultRule[Overrun | Run]):
    """Fires when an access ran from a storage to the end of accessible memory without a gap."""

    id = "runaway-access"
    needs = ("crash", "registers", "mappings")

    def judge(self, view: ProcessView) -> Judgement[Overrun | Run] | None:
        """See MemoryFaultRule."""
        found = view.place.overrun if view.place is not None else None
        if found is None:
            run = ran_on(view)
            if run is None:
                return None
            known = _memset(view, run) is not None or unfit_memory(view) is not None or empty_count(view) is not None
            count = wrapped_count(view) if not run.downwards else None
            walked, wrapped = walked_array(view) is not None and not run.downwards, count is not None and count.proven
            indexed = indexed_array(view, run.low) if not run.downwards and count is None else None
            reached = indexed is not None and indexed.reached
            confidence: Confidence = "likely" if known or walked or wrapped or reached else "possible"
            return Judgement("out-of-bounds", "certain" if walked and wrapped else confidence, (view,), run)
        if wild_jump(view) is not None:
            return None
        return Judgement("out-of-bounds", _confidence(view, found), (view,), found)

    def describe(self, job: JobView, judgement: Judgement[Overrun | Run]) -> Description:
        """See MemoryFaultRule."""
        view, found = judgement.views[0], judgement.found
        if isinstance(found, Run):
            return _from_anywhere(job, judgement, found)
        storage, wide = view.storage, expanded_tensor(view, found.storage)
        name = f"`{wide.name}` ({size_words(wide.storage.nbytes)})" if wide is not None else _tensor(view, found)
        asked = found.span_bytes + found.left_bytes if found.left_bytes is not None else None
        length = f" of {size_words(asked)} that were asked for" if asked is not None else ""
        way = reached_row(view) if asked is None else None
        leads = row_headline(view, way) if way is not None else None
        where = f"{in_function(view)}: it ran on for {_left_behind(found, asked)}{length}"
        state = small_state(view)
        if state is not None:
            words = f"out of bounds{in_function(view)}: {state}"
        elif way is not None and way.index is not None:
            words = f"out of bounds{in_function(view)}: {leads}"
        else:
            larger = f", as if it were as large as {shaped_name(way.larger)}" if way and way.larger else ""
            larger = f": {wide.words}" if wide is not None else larger
            count = wrapped_count(view) if not found.downwards else None
            misfit = (empty_count(view) or unfit_memory(view) or count) if wide is None else None
            larger = f": {misfit.summary}" if misfit is not None else larger
            larger = larger or _by_unchecked_indices(view, found)
            words = f"{_side(found)} of {name}{where}, to the {_end(found)} of accessible memory{larger}"
        return Description(
            f"{introduction(judgement.views)} {access_verb(view)} {words}.",
            [
                fault_evidence(view),
                _way(found),
                row_evidence(way) if leads is not None else None,
                Evidence(
                    "instruction",
                    f"the instruction had {found.left_bytes} bytes left of {asked}",
                    nbytes=found.left_bytes,
                    limit=asked,
                )
                if asked is not None
                else None,
                Evidence(
                    "overrun",
                    "the recording of this process lay on the way: what it had of storages is overwritten",
                    register=found.register,
                    base=hex_addr(found.start),
                )
                if found.through_recording and view.fault is not None and view.fault.access == "write"
                else None,
                allocation_evidence(storage),
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            wide.advice(access_verb(view) == "wrote") if wide is not None else _advice(view, found, name, asked, way),
            [] if judgement.confidence == "certain" else ["proof that the access began there"],
            explained=wide is not None,
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See MemoryFaultRule."""
        if not any(view.crash is not None and view.crash.mappings for view in faults):
            return cannot_decide("the memory map was not recorded")
        return not_found("no access ran from a storage to the end of accessible memory")


def _by_unchecked_indices(view: ProcessView, found: Overrun) -> str:
    """Of an operator that makes row pointers: how far it writes is up to the indices, which nothing checked."""
    operator, storage = find_operator(view), found.storage
    writes = access_verb(view) == "wrote" and not found.downwards and operator is not None and is_sparse(operator)
    source = sparse_source(view) if writes and storage is not None else None
    if source is None or storage is None:
        return ""
    if source.is_compressed and fills_rows(view):
        at = place_of(view, source.spot.file, source.line)
        return (
            f": the pointers of `{source.name}` lead there, or it has too few values; torch.{source.constructor}() at "
            f"{at} does not check that"
        )
    count = counted_up_to(view, storage)
    reached = f", one of them perhaps to {count}, up to which it counted" if count is not None else ""
    return f": {source.unchecked_words(view)}, lead there{reached}"


def _from_anywhere(job: JobView, judgement: Judgement[Overrun | Run], run: Run) -> Description:
    """Where it began is not known, but of memset(): what was recorded of storages is overwritten, or it is none.

    So it is of an array of NumPy, where registers have its first byte and the row.
    """
    view = judgement.views[0]
    memset = _memset(view, run)
    if memset is not None:
        return _of_memset(judgement, run, *memset)
    edge = "beginning" if run.downwards else "end"
    wrapped = wrapped_count(view) if not run.downwards else None
    unfit = unfit_clause(view, counts=not run.downwards)
    empty = empty_count(view)
    indexed = indexed_array(view, run.low) if not run.downwards and wrapped is None and empty is None else None
    array = left_array(view, run.low) if not run.downwards and indexed is None and empty is None else None
    walked = walked_array(view) if not run.downwards else None
    whose = f", perhaps past the end of {array_words(array)}" if array is not None else ""
    where = f"over the {edge} of accessible memory{in_function(view)}{whose}"
    if walked is not None:
        where = f"past the end of {array_words(walked.array)}{in_function(view)}"
    by_source = empty or (indexed if walked is None else None)
    if indexed is not None and walked is None:
        where = f"past the end of {indexed.array.words}{in_function(view)}: {indexed.summary}"
    refused = ": a loop or copy that ran on is refused there" if wrapped is None and indexed is None else ""
    refused = f": {empty.summary}" if empty is not None else refused
    return Description(
        f"{introduction(judgement.views)} {access_verb(view)} {where}{refused}{unfit}.",
        [
            fault_evidence(view),
            Evidence(
                "mapping",
                f"the {size_words(run.high - run.low)} {'behind' if run.downwards else 'before'} the address may be "
                "accessed",
                base=hex_addr(run.low),
                nbytes=run.high - run.low,
            ),
            walked.evidence if walked is not None else None,
            wrapped.evidence if wrapped is not None else None,
            indexed.evidence if indexed is not None else None,
            empty.evidence if empty is not None else None,
            _last_child(job, view) if wrapped is not None and wrapped.shared and wrapped.resets else None,
            python_evidence(view),
            collective_evidence(judgement.views),
        ],
        by_source.advice
        if by_source is not None
        else length_advice(
            view,
            f"Check the lengths, counts and offsets that {line_words(view)} passes: one of them is negative or too "
            "large. `pytracer run --guard` stops at the first byte outside of a tensor.",
            counts=not run.downwards,
        ),
        ["where the access began", "proof that it was no wrong pointer"] if walked is None else [],
        behind=Behind.of([], wrapped) if wrapped is not None else None,
    )


def _last_child(job: JobView, view: ProcessView) -> Evidence | None:
    """The process that it started last before: it may share the memory, and have set it up again."""
    crash, own = view.crash, view.process.snapshot
    if crash is None:
        return None
    times = [(item.process.snapshot.created_mono_ns, item.process.snapshot.pid) for item in children_of(job, view)]
    began, pid = max((pair for pair in times if pair[0] < crash.mono_ns), default=(0, 0))
    if not pid:
        return None
    seconds = (crash.mono_ns - began) / _NS
    return Evidence(
        "rank-state", f"the last process that {own.pid} started, {pid}, began {seconds:.1f} s before", pid=pid
    )


def _memset(view: ProcessView, run: Run) -> tuple[int, int] | None:
    """Where memset() began, and how many bytes it was asked for: while `rep stos` runs, registers keep both."""
    crash, place = view.crash, view.place
    if crash is None or place is None or run.downwards or not (view.function or "").startswith("__memset"):
        return None
    left, start = left_bytes(view.instruction, crash), crash.registers.get(_MEMSET_KEEPS)
    known = left is not None and start is not None and run.low <= start < place.addr
    return (start, place.addr - start + left) if known and start is not None and left is not None else None


def _of_memset(judgement: Judgement[Overrun | Run], run: Run, start: int, asked: int) -> Description:
    view = judgement.views[0]
    left = asked - (run.high - start)
    return Description(
        f"{introduction(judgement.views)} {access_verb(view)} past the end of the memory at {hex_addr(start)}"
        f"{in_function(view)}: it ran on for {size_words(run.high - start)} of {size_words(asked)} that were asked "
        "for, to the end of accessible memory.",
        [
            fault_evidence(view),
            Evidence(
                "overrun",
                f"{_MEMSET_KEEPS} keeps where memset() began, and the instruction had {left} bytes left of {asked}"
                + ("; the recording of this process lay on the way" if run.through_recording else ""),
                register=_MEMSET_KEEPS,
                base=hex_addr(start),
                nbytes=left,
                limit=asked,
            ),
            python_evidence(view),
            collective_evidence(judgement.views),
        ],
        f"Compare the length that {line_words(view)} passes, {asked} bytes, with nbytes of the memory that it is for: "
        "it is too large, for example counted in elements of another dtype.",
        ["whose memory it was: what was recorded of storages is overwritten"] if run.through_recording else [],
    )


def _left_behind(found: Overrun, asked: int | None) -> str:
    """How far it went beyond the tensor; of a length that was asked for, how much of it was done."""
    storage = found.storage
    if asked is not None or found.downwards:
        return size_words(found.span_bytes)
    if storage is None:
        return f"{size_words(found.span_bytes)} from its beginning"
    return size_words(found.start + found.span_bytes - (storage.base + storage.nbytes))


def _side(found: Overrun) -> str:
    return "before the beginning" if found.downwards else "past the end"


def _end(found: Overrun) -> str:
    return "beginning" if found.downwards else "end"


def _way(found: Overrun) -> Evidence:
    if found.stride_bytes is not None:
        steps = found.span_bytes // found.stride_bytes
        return Evidence(
            "overrun",
            f"the address is {steps} steps of {found.stride_bytes} bytes behind {hex_addr(found.start)}, to which "
            f"{found.register} pointed; registers hold both numbers, and the memory map has no gap between",
            register=found.register,
            base=hex_addr(found.start),
            nbytes=found.storage.nbytes if found.storage is not None else None,
            offset_bytes=found.span_bytes,
            value=steps,
        )
    if found.of_line:
        return Evidence(
            "overrun",
            f"of the tensors that the line holds, the one at {hex_addr(found.start)} is the last before the write, and "
            "from there to the fault the memory map has no gap",
            base=hex_addr(found.start),
            nbytes=found.storage.nbytes if found.storage is not None else None,
            offset_bytes=found.span_bytes,
        )
    return Evidence(
        "overrun",
        f"{found.register} pointed into memory that begins at {hex_addr(found.start)}, and from there to the fault, "
        f"{size_words(found.span_bytes)} {'below' if found.downwards else 'behind'}, the memory map has no gap",
        register=found.register,
        base=hex_addr(found.start),
        nbytes=found.storage.nbytes if found.storage is not None else None,
        offset_bytes=found.span_bytes,
    )


def _confidence(view: ProcessView, found: Overrun) -> Confidence:
    """memset() keeps its beginning in a register; which one a loop does is a guess, and a pointer may lie by chance."""
    in_memset = found.left_bytes is not None and (view.function or "").startswith("__memset")
    if in_memset and view.crash is not None and view.crash.registers.get(_MEMSET_KEEPS) == found.start:
        return "certain"
    return "likely" if found.sole or found.majority else "possible"


def _tensor(view: ProcessView, found: Overrun) -> str:
    size = f"a tensor of {size_words(found.storage.nbytes)}" if found.storage is not None else "a tensor"
    named = variable_of(view, found.start)
    operator = find_operator(view)
    of_operator = {item.item.base for item in (operator.tensors if operator is not None else ()) if item.passed}
    if named is None and found.start not in of_operator and (unequal := unequal_tensors(view)) is not None:
        return f"a tensor, perhaps the smaller one of {unequal}"  # the pointer lay there by chance
    return f"{named} ({size_words(found.storage.nbytes)})" if named and found.storage is not None else named or size


def _advice(view: ProcessView, found: Overrun, name: str, asked: int | None, way: ReachedRow | None) -> str:
    line = line_words(view)
    if asked is not None:
        return (
            f"Compare the length that {line} passes, {asked} bytes, with nbytes of {name}: it is too large, for "
            "example counted in elements of another dtype."
        )
    empty = empty_count(view)
    if empty is not None:
        return empty.advice
    by_row = row_advice(view, way)
    if by_row is not None:
        return by_row
    operator = find_operator(view)
    source = sparse_source(view) if operator is not None and is_sparse(operator) else None
    if source is not None:
        return sparse_advice(view, source)
    general = (
        f"Check the lengths, counts and offsets that {line} passes for {name}: one of them is negative or too large. "
        "`pytracer run --guard` stops at the first byte outside of the tensor."
    )
    return length_advice(view, general, f" for {name}", counts=not found.downwards)
