"""out-of-bounds: an access before or past a live storage.

What: the fault address lies in no live storage, and the faulting instruction formed it from a pointer into one and an
index that leads out of it; or it lies in no mapping, a short way before or behind a live storage.

Why it happens: native code computed an index or a length from wrong sizes, strides or dtypes, or in 32 bits; torch
itself checks indices and raises IndexError.

The registers of a gather instruction's indices are not recorded: the index follows from the address. Where torch's
operator made it of floats itself (the backward of grid_sample()), and it is what NaN becomes as an integer, the
argument that has NaN is named, with the lines that can make NaN; of the program's own native code, the tensor of floats
that its line passes and that has NaN.

What to do: compare the sizes and the dtype that the native code assumes with those of the named tensor.

How it can be wrong: without an index register, the nearest storage is a guess. Only accesses that leave mapped memory
fault, so that an overrun of fewer bytes than a page usually goes unnoticed, and the storage that was overrun may be
another one in the same pages; below `--guard` each has pages of its own. Where the index is not scaled, it may be the
difference of two pointers, of which the other one was wrong. A freed block that rows of a live storage lead to may
have been meant itself: its own first byte was held by nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer._text import hex_addr, size_words
from pytracer.analyze.address_space.description import offset_words
from pytracer.analyze.address_space.lookup import GUESSED
from pytracer.analyze.address_space.operands import COMPUTED, ROWS
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.at_fault import of_expanded, of_row, of_unfit
from pytracer.analyze.evidence.guard_mode import guard_confidence, guard_evidence
from pytracer.analyze.evidence.indices.compressed_parts import wrong_part
from pytracer.analyze.evidence.indices.index_origins import index_advice
from pytracer.analyze.evidence.indices.reached_row import ReachedRow, reached_row
from pytracer.analyze.evidence.indices.row_words import row_advice, row_evidence, row_headline, shaped_name
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames, variable_name
from pytracer.analyze.evidence.lifetime.where_made import line_that_made
from pytracer.analyze.evidence.native.jumps import wild_jump
from pytracer.analyze.evidence.native.native_stack import image_name
from pytracer.analyze.evidence.operators.exported_package import package_advice
from pytracer.analyze.evidence.operators.operator import (
    find_operator,
    is_of_torch,
    shape_words,
    tensor_with,
    tensor_words,
)
from pytracer.analyze.evidence.operators.state_sizes import small_state
from pytracer.analyze.evidence.operators.unfit_operands import unfit_operands
from pytracer.analyze.evidence.own_code.arrays import array_from
from pytracer.analyze.evidence.own_code.expanded import Expanded, behind_evidence, expanded_behind, expanded_tensor
from pytracer.analyze.evidence.own_code.passed import computed_advice, layout_advice, length_advice, unfit_clause
from pytracer.analyze.evidence.own_code.ran_into_freed import ran_into_freed
from pytracer.analyze.evidence.own_code.row_below import row_before_storage
from pytracer.analyze.evidence.own_code.unfit_memory import unfit_memory
from pytracer.analyze.evidence.own_code.wrapped_counts import wrapped_count
from pytracer.analyze.evidence.phrases import (
    access_verb,
    allocation_evidence,
    bucket_evidence,
    collective_evidence,
    fault_evidence,
    free_evidence,
    in_function,
    python_evidence,
    storage_evidence,
)
from pytracer.analyze.evidence.preconditions.overwritten_number import is_overwritten
from pytracer.analyze.evidence.preconditions.violated import unchecked_name
from pytracer.analyze.naming import introduction
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.rules.base import Description, Judgement
from pytracer.analyze.rules.fault import StorageFaultRule
from pytracer.analyze.tensors.fsdp_words import unit_evidence
from pytracer.analyze.view import JobView, ProcessView, is_handler_frame
from pytracer.report.job import Confidence, Evidence

_ADVICE = "Compare the sizes, strides and dtype that the native code assumes with those of this tensor{}."
_COPY = Pattern(r"_*(memcpy|memmove|mempcpy)(_\w+)?$")  # of libc
_TORCH = Pattern(r"lib(torch|c10)")
_ADVICE_32 = "Compute the index in 64 bits: it has more than 32, and was cut off or went negative."
PAGE_BYTES = 4096
_FAR_BYTES = 1 << 30  # no wrong length or stride leads so far: an index has a wrong value


class OutOfBounds(StorageFaultRule[Expanded | None]):
    """Fires when the address is in nothing, close to a live storage."""

    id = "out-of-bounds"
    absent = "no fault address lay close to a live storage"

    def judge(self, view: ProcessView) -> Judgement[Expanded | None] | None:
        """See FaultRule."""
        ran = ran_into_freed(view)
        if ran is not None and wild_jump(view) is None:
            return Judgement("out-of-bounds", "likely", (view,), ran)
        beside = view.place is not None and view.place.kind in ("past-storage", "before-storage")
        if not beside or wild_jump(view) is not None or (view.place is not None and view.place.found == COMPUTED):
            return None
        if wrong_part(view) is not None or is_overwritten(view, _count(view) or 0):
            return None
        behind = _behind(view)
        return Judgement("out-of-bounds", _confidence(view, behind), (view,), behind)

    def describe(self, job: JobView, judgement: Judgement[Expanded | None]) -> Description:
        """See FaultRule."""
        view = judgement.views[0]
        if judgement.found is not None:
            return _describe_behind(judgement, judgement.found)
        storage, way, state = view.storage, reached_row(view), small_state(view)
        leads = _leads(view)
        guessed = view.place is not None and view.place.found == GUESSED
        unfit = unfit_clause(view) if guessed else ""
        wide = expanded_tensor(view, view.place.storage) if leads is None and view.place is not None else None
        count = wrapped_count(view)
        misfit = (unfit_memory(view) or count) if not guessed and wide is None else None
        proven = misfit is not count or (count is not None and count.proven)
        why = wide.words if wide is not None else misfit.summary if misfit is not None else None
        words = f": {_where(view)}{in_function(view)}{f': {why}' if why is not None else ''}"
        if leads is not None or (unfit and wide is None):
            words = f"{in_function(view)}{f': {leads}' if leads is not None else unfit}"
        return Description(
            f"{introduction(judgement.views)} {access_verb(view)} out of bounds{words}.",
            [
                fault_evidence(view),
                storage_evidence(view),
                guard_evidence(view),
                *_index(view),
                _index_tensor(view),
                row_evidence(way) if leads is not None and state is None else None,
                *_neighbor(view),
                bucket_evidence(view),
                unit_evidence(view),
                allocation_evidence(storage),
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            wide.advice(access_verb(view) == "wrote") if wide is not None else _advice(view, way),
            [_unproven(view)],
            explained=wide is not None or (misfit is not None and proven),
            behind=_about(view, wide, way),
        )


def _about(view: ProcessView, wide: Expanded | None, way: ReachedRow | None) -> Behind | None:
    """What is at fault; None where only the storage beside the address is known."""
    if wide is not None:
        return of_expanded(wide)
    unfit = unfit_operands(view)
    if unfit is not None:
        return of_unfit(view, unfit)
    if way is not None:
        return of_row(view, way)
    name = unchecked_name(view)
    return Behind.of([name]) if name is not None else None


def _leads(view: ProcessView) -> str | None:
    """What led out of a tensor: a state that is too small for its parameter, or a row that it has not."""
    way = reached_row(view)
    return small_state(view) or (row_headline(view, way) if way is not None else None)


def _behind(view: ProcessView) -> Expanded | None:
    """The expanded tensor that the line passes, where the storage is but the nearest one and nothing else led there."""
    place = view.place
    if place is None or place.found != GUESSED or _leads(view) is not None:
        return None
    return expanded_behind(view) if expanded_tensor(view, place.storage) is None else None


def _describe_behind(judgement: Judgement[Expanded | None], behind: Expanded) -> Description:
    """Of an expanded tensor that the line passes; the storage nearest to the address has nothing to do with it."""
    view = judgement.views[0]
    return Description(
        f"{introduction(judgement.views)} {access_verb(view)} out of bounds{in_function(view)}: {behind.words}.",
        [
            fault_evidence(view),
            behind_evidence(view, behind),
            python_evidence(view),
            collective_evidence(judgement.views),
        ],
        behind.advice(access_verb(view) == "wrote"),
        ["proof that it ran on from there: the registers do not hold where it began"],
        explained=True,
        behind=of_expanded(behind),
    )


def _is_copy_of_program(view: ProcessView) -> bool:
    """Whether something other than torch called memcpy() or the like: then the program passed the length."""
    frames = [frame for frame in view.native_stack or () if not is_handler_frame(frame)][:2]
    return (
        len(frames) == 2
        and bool(_COPY.match(frames[0].function or ""))
        and not _TORCH.match(image_name(frames[1].image))
    )


def _advice(view: ProcessView, way: ReachedRow | None) -> str:
    """By what is known of the index: cut off, far outside of any length, or not known."""
    if _wrapped(view) is not None:
        return _ADVICE_32
    if _is_copy_of_program(view):
        return f"Compare the length that {line_words(view)} passes to the copy with the sizes of both sides, in bytes."
    package = package_advice(view)
    if package is not None:
        return package
    count = _count(view)
    row = row_before_storage(view, count) if way is None else None
    if row is not None:
        return row.advice(view)
    by_row = row_advice(view, way)
    if by_row is not None and (count is None or index_advice(find_operator(view), count) is None):
        return by_row
    if count is None or (view.place is not None and (view.place.distance_bytes or 0) < _FAR_BYTES):
        return layout_advice(view) or length_advice(view, _of_operator(view, way) or _general(view))
    operator = find_operator(view)
    origin = index_advice(operator, count)
    if origin is not None:
        return origin
    item = tensor_with(operator, count)
    if item is not None and item.name is not None:
        return (
            f"Check the values of `{item.name}` before {line_words(view)} passes it: {count} must not be among them "
            "(min(), max()). The function uses them unchecked."
        )
    return computed_advice(view, count, "this tensor")


def _general(view: ProcessView) -> str:
    """With the line that made the tensor, where no variable of a line that was running is known."""
    storage = view.place.storage if view.place is not None else None
    made = line_that_made(view, storage.base) if storage is not None and not program_frames(view) else None
    return _ADVICE.format(f", which {made} made" if made is not None else "")


def _of_operator(view: ProcessView, way: ReachedRow | None) -> str | None:
    """Of a named tensor of one of torch's operators: its shape, against what the other arguments say."""
    operator = find_operator(view)
    if way is None or way.data.name is None or operator is None or not is_of_torch(operator):
        return None
    made = line_that_made(view, way.data.item.base, quote=False)
    allocated = f" (allocated at {made})" if made is not None else ""
    return (
        f"Compare the shape of {shaped_name(way.data)}{allocated} with what the other arguments of {line_words(view)} "
        "ask for: the function goes past its end."
    )


def _confidence(view: ProcessView, behind: Expanded | None) -> Confidence:
    """Certain when a pointer into the storage was indexed; likely when one was near, or the very next page touched."""
    place, instruction = view.place, view.instruction
    exact = guard_confidence(view)
    if exact is not None:
        return exact
    if behind is not None:
        return "likely"
    if place is None or place.storage is None:
        return "possible"
    if place.found == ROWS:
        return "likely"
    if place.register is not None:
        return "certain" if _count(view) is not None else "likely"
    start, end = place.storage.base, place.storage.base + place.storage.nbytes
    values = (instruction.base_value, instruction.index_value) if instruction else ()
    if any(value is not None and start <= value <= end for value in values):
        return "likely"
    return "likely" if (place.distance_bytes or 0) <= PAGE_BYTES else "possible"


def _count(view: ProcessView) -> int | None:
    """The number that was multiplied with the size of an element and added to a pointer into the storage."""
    place, instruction = view.place, view.instruction
    if place is None or instruction is None or place.register is None or place.register != instruction.base:
        return None
    if instruction.index_value is None or instruction.scale == 1:
        return None
    return signed(instruction.index_value)


def _wrapped(view: ProcessView) -> int | None:
    """The index without its sign of 32 bits, if that would have been inside the storage."""
    place, instruction = view.place, view.instruction
    count = _count(view)
    if count is None:
        count = _bytes_from_start(view)
    if count is None or place is None or place.storage is None or instruction is None:
        return None
    unsigned = count + (1 << 32)
    return unsigned if count < 0 <= unsigned < place.storage.nbytes // instruction.scale else None


def _bytes_from_start(view: ProcessView) -> int | None:
    """What was added, unscaled, to a pointer to the first byte of the storage."""
    place, instruction = view.place, view.instruction
    if place is None or place.storage is None or instruction is None or instruction.scale != 1:
        return None
    parts = (instruction.base_value, instruction.index_value)
    if place.storage.base not in parts or None in parts:
        return None
    return signed(place.addr - place.storage.base)


def _index(view: ProcessView) -> Iterator[Evidence]:
    """Which register pointed into the storage, and what was added to it."""
    place, instruction = view.place, view.instruction
    if place is None or place.storage is None or place.register is None or instruction is None:
        return
    count, wrapped, room = _count(view), _wrapped(view), place.storage.nbytes // instruction.scale
    if wrapped is not None:
        yield Evidence(
            "index",
            f"without its sign the index is {wrapped}, which is inside: it was computed in 32 bits",
            value=wrapped,
            limit=room,
        )
    if count is None:
        words = f"{place.register} pointed into that storage; what was added to it led out of it"
        yield Evidence("register-value", words, register=place.register, base=hex_addr(place.storage.base))
        return
    yield Evidence(
        "index",
        f"{place.register} pointed into that storage; the index in {instruction.index} was {count}, in units of "
        f"{instruction.scale} bytes, of which the storage has {room}",
        base=hex_addr(place.storage.base),
        register=instruction.index,
        value=count,
        scale=instruction.scale,
        limit=room,
    )


def _index_tensor(view: ProcessView) -> Evidence | None:
    """The tensor that the index came from."""
    count = _count(view)
    item = tensor_with(find_operator(view), count) if count is not None else None
    if item is None:
        return None
    words = f"{count} is a value of {tensor_words(item)}, which the function works on"
    return Evidence("tensor", words, tensor=item.name, value=count)


def _neighbor(view: ProcessView) -> Iterator[Evidence]:
    """What the access ran into: the storage on the other side, or one that had been freed there."""
    place, fault = view.place, view.fault
    if place is None or fault is None or place.storage is None:
        return
    for life in (fault.earlier_lives or [])[:1]:
        freed = free_evidence(life)
        yield Evidence(
            "storage-lifetime",
            f"where it went, there had been a storage of {size_words(life.nbytes or 0)}"
            + (f", {freed.sentence}" if freed else ""),
            base=life.base,
            nbytes=life.nbytes,
            state=life.state,
            time=life.freed.time if life.freed else None,
        )
    for item in fault.neighbors or []:
        if item.storage is not None and item.storage.base != hex_addr(place.storage.base):
            name = f" ({item.storage.names[0]})" if item.storage.names else ""
            side = "behind" if item.side == "above" else "before"
            what = f"{size_words(item.storage.nbytes or 0)} at {item.storage.base}{name}"
            yield Evidence(
                "neighbor",
                f"the next storage {side} the address is {what}",
                base=item.storage.base,
                nbytes=item.storage.nbytes,
                tensor=next(iter(item.storage.names or ()), None),
            )


def _unproven(view: ProcessView) -> str | None:
    if guard_confidence(view) == "certain":
        return None
    if view.place is None or view.place.register is None:
        return "proof that this storage, and not another one nearby, was meant"
    return (
        None
        if _count(view) is not None
        else "proof that what was added was an index, not the distance to another object"
    )


def _where(view: ProcessView) -> str:
    place = view.place
    if place is None or place.storage is None:
        return "next to a storage"
    size = size_words(place.storage.nbytes)
    held = variable_name(view, place.storage.base)
    name = place.names[0] if place.names else f"`{held}` ({size})" if held else ""
    name = name or array_from(view, place.storage.base) or f"a storage of {size}"
    way = reached_row(view) if place.names else None
    name += f" {shape_words(way.data.item)}" if way is not None and way.data.name == place.names[0] else ""
    return f"{offset_words(place)} {name}"
