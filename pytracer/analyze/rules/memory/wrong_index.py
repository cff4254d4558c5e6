"""wrong-index: an index that leads out of a tensor.

What: the fault address is, to the bit, the sum of a pointer into a live storage and a multiple of a number that was in
a register, on the stack, or in the memory of another tensor; the instruction shows only the finished sum. Or the
operator that was running has an index tensor with a value that none of its other tensors is large enough for, or whose
values lead to the address from the first byte of just one of them. So it is where the plain indices of a compressed
sparse tensor, known by the row pointers that count them, are larger than each size of the dense ones. Where both hold
and the sum's number is none of a tensor's, it is how far a loop had come that the tensor's value began. A sum is also
told as a row of its tensor, with the tensor of the same call that has so many rows, or the index tensor whose values
reach so far.

Why it happens: native code uses the values of an index tensor without checking them (`check_invariants=False`,
indices of pooling backward, targets of a loss, offsets of embedding bags), or computes an offset from wrong sizes.
torch checks most indices and raises IndexError; not those of all kernels.

What to do: look at the index tensors that the line passes: min() and max() must lie inside the other tensor's size.

How it can be wrong: that the sum fits may be an accident. Sums below 4 KiB do not count, unscaled numbers only where
they are elements of a tensor or lead farther than 4 GiB from the first byte of a storage, and a pointer that has moved
on inside its storage only with offsets above 4 GiB; where two storages fit, neither is named. Pointers are no indices.
The tensors of an operator are those that its stack refers to, and a word of a stack may be stale: a value out of range
alone is likely, never certain. Where only the values of an index tensor reach the address, it is *likely* if few
addresses would fit (the first byte of a row of 64 bytes or more, or an index with no value inside), else *possible*. A
number that is 1024 times the bytes of the largest tensor, and in none, is no index, but what a size or a stride was
overwritten with: *possible*; *likely* where the tensors of a batch norm do not fit its input's channels, which is why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pytracer._text import count_words, hex_addr, size_words
from pytracer.analyze.address_space.address_info import Formation
from pytracer.analyze.address_space.referrers import STATE_REGISTERS
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.at_fault import of_row, of_sparse, of_unfit, of_values
from pytracer.analyze.evidence.exceptions.name_origins import passed_words
from pytracer.analyze.evidence.heap.behind_storage import overwritten
from pytracer.analyze.evidence.indices.compressed_parts import wrong_part
from pytracer.analyze.evidence.indices.index_origins import index_advice
from pytracer.analyze.evidence.indices.narrow_indices import two_indices
from pytracer.analyze.evidence.indices.reached_row import ReachedRow, is_close, reached_row, row_in_range
from pytracer.analyze.evidence.indices.row_words import row_advice, row_evidence, row_headline, shaped_name
from pytracer.analyze.evidence.indices.sparse_source import sparse_advice, sparse_source
from pytracer.analyze.evidence.indices.written_value import origin_words
from pytracer.analyze.evidence.lifetime.variables import line_words, variable_name, variable_of
from pytracer.analyze.evidence.lifetime.where_made import made_briefly
from pytracer.analyze.evidence.native.jumps import wild_jump
from pytracer.analyze.evidence.operators.in_backward import backward, saved_advice
from pytracer.analyze.evidence.operators.operator import (
    Operator,
    OperatorTensor,
    OutOfRange,
    find_operator,
    out_of_compressed,
    out_of_range,
    shape_words,
    tensor_with,
    tensor_words,
)
from pytracer.analyze.evidence.operators.state_sizes import small_state
from pytracer.analyze.evidence.operators.unfit_operands import unfit_operands
from pytracer.analyze.evidence.own_code.passed import computed_advice
from pytracer.analyze.evidence.own_code.unfit_memory import UnfitMemory, unfit_memory
from pytracer.analyze.evidence.phrases import (
    access_verb,
    allocation_evidence,
    collective_evidence,
    fault_evidence,
    in_function,
    python_evidence,
)
from pytracer.analyze.evidence.preconditions.overwritten_number import NO_INDEX, is_overwritten
from pytracer.analyze.naming import introduction
from pytracer.analyze.rules.base import Description, Judgement
from pytracer.analyze.rules.fault import StorageFaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Storage
from pytracer.report.job import Confidence, Evidence

_EXPLAINED = ("null", "near-null", "in-storage", "stack-guard", "stack")  # by other rules, whatever the arguments are
_NO_INDEX_TIMES = 1 << 10  # more than so many times the bytes of the largest tensor is no index into one
_CERTAIN_BYTES = 1 << 32  # no two numbers of a process happen to differ by so much


class _Index(msgspec.Struct, frozen=True):
    """How the address was computed, or what the running operator has out of range; then `formation` is of the way."""

    cause: Formation | OutOfRange | ReachedRow
    operator: Operator | None
    formation: Formation | None


class WrongIndex(StorageFaultRule[_Index]):
    """Fires when the address is a live storage + scale * index outside of it, or an operator's index is too large."""

    id = "wrong-index"
    needs = ("crash", "storages", "registers")
    absent = (
        "no fault address was the sum of a live storage and a number that was at hand, and no index of the running "
        "operator was out of range"
    )

    def judge(self, view: ProcessView) -> Judgement[_Index] | None:
        """See FaultRule."""
        if view.place is None or wild_jump(view) is not None or wrong_part(view) is not None:
            return None
        operator = find_operator(view)
        not_explained = view.place.kind not in _EXPLAINED
        outside = out_of_range(operator) if not_explained else None
        formation = view.place.formation
        cause: Formation | OutOfRange | ReachedRow | None = outside
        if formation is not None and not _led(outside, formation, operator):
            cause = formation
        elif outside is None:
            cause = row_in_range(view) or (out_of_compressed(operator) if not_explained else None)
        if cause is None or (isinstance(cause, Formation) and is_overwritten(view, cause.index)):
            return None
        confidence = _confidence(cause)
        if isinstance(cause, Formation) and confidence == "certain" and _is_no_index(view, cause):
            confidence = "likely" if unfit_operands(view) is not None else "possible"
        return Judgement("out-of-bounds", confidence, (view,), _Index(cause, operator, formation))

    def describe(self, job: JobView, judgement: Judgement[_Index]) -> Description:
        """See FaultRule."""
        view, operator, found = judgement.views[0], judgement.found.operator, judgement.found.cause
        if isinstance(found, OutOfRange):
            return _describe_range(judgement.views, found, judgement.found.formation)
        if isinstance(found, ReachedRow):
            return _describe_row(judgement.views, found)
        way, state = reached_row(view), small_state(view)
        behind = overwritten(view) if abs(found.index) >= NO_INDEX else None
        unfit = unfit_operands(view) if found.index_storage is None and behind is None else None
        misread = _misread(view, found)
        leads = unfit.summary if unfit is not None else state or (row_headline(view, way) if way is not None else None)
        of = f" of {_tensor(view, found.index_storage.base)}" if found.index_storage is not None else ""
        storage = view.storage
        return Description(
            f"{introduction(judgement.views)} {access_verb(view)} out of bounds{in_function(view)}: "
            + (
                f"{behind.summary}."
                if behind is not None
                else f"{leads}."
                if leads is not None
                else _of_two(view, found, found.twin)
                if found.twin is not None
                else _no_index_words(view, found)
                if _is_no_index(view, found)
                else f"index {found.index}{of} leads out of {_tensor(view, found.storage.base)}, with "
                f"{count_words(found.room, 'element')} of {count_words(found.scale, 'byte')}"
                f"{f': {misread.summary}' if misread is not None else ''}."
            ),
            [
                fault_evidence(view),
                _sum(found),
                behind.evidence if behind is not None else None,
                *_origin(view, found),
                *_argument(operator, found),
                row_evidence(way) if state is None else None,
                allocation_evidence(storage),
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            behind.advice
            if behind is not None
            else unfit.advice(view)
            if unfit is not None
            else misread.advice(view)
            if misread is not None
            else index_advice(operator, found.index) or row_advice(view, way) or _advice(view, found),
            [None if found.index_storage is not None or leads is not None else "the tensor that the index came from"],
            behind=of_unfit(view, unfit)
            if unfit is not None
            else of_row(view, way)
            if way is not None
            else Behind.of([variable_name(view, found.index_storage.base)])
            if found.index_storage is not None
            else None,
        )


def _misread(view: ProcessView, found: Formation) -> UnfitMemory | None:
    """Where the index was read from floats, which the program's function takes for whole numbers."""
    base = found.index_storage.base if found.index_storage is not None else None
    unfit = unfit_memory(view) if base is not None else None
    known = unfit is not None and unfit.misread is not None and base is not None
    return unfit if known and unfit is not None and variable_name(view, base or 0) == unfit.name else None


def _led(outside: OutOfRange | None, found: Formation, operator: Operator | None) -> bool:
    """Whether a loop up to the value out of range was on its way through one of the operator's tensors."""
    if outside is None or operator is None or found.index_storage is not None:
        return False
    bases = {item.item.base for item in operator.tensors}
    return found.storage.base in bases and abs(found.index) < abs(outside.value) and found.index * outside.value > 0


def _confidence(found: Formation | OutOfRange | ReachedRow) -> Confidence:
    """An unscaled number may be the distance to the object that was meant; a value out of range may be stale."""
    if isinstance(found, OutOfRange):
        return "likely"
    if isinstance(found, ReachedRow):
        return "likely" if is_close(found) else "possible"
    far = abs(found.scale * found.index) >= _CERTAIN_BYTES
    scaled = found.scale != 1 or found.index_storage is not None
    return "certain" if found.exact and far and scaled else "likely"


def _is_no_index(view: ProcessView, found: Formation) -> bool:
    """Whether the number is in no tensor, and so large that none of this process has an index near it."""
    if found.scale == 1 or found.index_storage is not None or two_indices(view, found.index) is not None:
        return False
    if tensor_with(find_operator(view), found.index) is not None:
        return False
    largest = max((item.nbytes for item in view.process.snapshot.storages), default=0)
    return abs(found.index) > max(_NO_INDEX_TIMES * largest, _CERTAIN_BYTES)


def _no_index_words(view: ProcessView, found: Formation) -> str:
    where = "behind" if found.index > 0 else "before"
    return (
        f"{size_words(abs(found.scale * found.index))} {where} what was read in {_tensor(view, found.storage.base)}; "
        f"{found.index}, which led there, is no index of any tensor here: what it was computed from may have been "
        "overwritten."
    )


def _tensor(view: ProcessView, base: int) -> str:
    """`` `idx` in densify() ``, else the storage by its size."""
    storage = view.space.live_around(base)
    size = size_words(storage.nbytes) if storage is not None else "unknown size"
    name = view.space.uses.names_of(storage, base)[1][:1] if storage is not None else ()
    named = variable_of(view, base) or next(iter(name), None)
    return named or f"a tensor of {size}{made_briefly(view, base)}"


def _describe_range(views: Sequence[ProcessView], outside: OutOfRange, way: Formation | None) -> Description:
    view, name = views[0], _argument_name(outside.tensor)
    source = sparse_source(view) if outside.tensor.name is None else None
    if source is not None:
        leads = (
            f"an index of `{source.name}` is {outside.value}, more than any size of the call's dense tensors, such as "
            f"{shaped_name(outside.data)}"
        )
        advice = sparse_advice(view, source)
    else:
        saved = backward(view)
        leads = (
            f"{name}, an argument of {outside.operator}, holds {outside.value}, which leads out of all of its tensors"
        )
        advice = (
            f"Check the values of {name} before {line_words(view)} passes it: {outside.value} must not be among them "
            f"(min(), max()). {_where_from(view, outside.tensor, outside.value)}"
            if saved is None
            else saved_advice(view, saved, outside.tensor)
        )
    return Description(
        f"{introduction(views)} {access_verb(view)} out of bounds{in_function(view)}: {leads}.",
        [
            fault_evidence(view),
            Evidence(
                "tensor",
                f"{outside.operator} was given {tensor_words(outside.tensor)}",
                tensor=outside.tensor.name,
                value=outside.value,
            ),
            Evidence(
                "index",
                f"an index of {tensor_words(outside.data)} must be less than {outside.limit}",
                tensor=outside.data.name,
                value=outside.value,
                limit=outside.limit,
            ),
            *([_sum(way)] if way is not None else []),
            python_evidence(view),
            collective_evidence(views),
        ],
        advice,
        [None if way is not None else _unseen(view)],
        behind=of_sparse(source) if source is not None else of_values(view, outside.tensor),
    )


def _where_from(view: ProcessView, item: OperatorTensor, value: int) -> str:
    name = f"`{item.name}`" if item.name else None
    return f"{origin_words(view, value, item.item.base, name)} The function does not check it."


def _describe_row(views: Sequence[ProcessView], way: ReachedRow) -> Description:
    """By the values of an index tensor alone."""
    view = views[0]
    return Description(
        f"{introduction(views)} {access_verb(view)} out of bounds{in_function(view)}: {row_headline(view, way)}.",
        [fault_evidence(view), row_evidence(way), python_evidence(view), collective_evidence(views)],
        row_advice(view, way) or "",
        [_unseen(view)],
        behind=of_row(view, way),
    )


def _unseen(view: ProcessView) -> str:
    """What the registers do not show of an address that an index led to."""
    crash, place = view.crash, view.place
    held = crash.registers.items() if crash is not None and place is not None else ()
    if any(place is not None and value == place.addr and name not in STATE_REGISTERS for name, value in held):
        return "which index it was: the registers held only the address that was computed from it"
    return "which access it was: no register held a part of the address"


def _argument_name(item: OperatorTensor) -> str:
    if item.name or item.argument:
        return f"`{item.name or item.argument}`"
    return f"a tensor {shape_words(item.item)} of {item.item.dtype}"


def _argument(operator: Operator | None, found: Formation) -> Iterator[Evidence]:
    """The operator's tensor whose smallest or largest element the index is."""
    item = tensor_with(operator, found.index)
    if item is not None and operator is not None:
        which = "largest" if found.index == item.item.maximum else "smallest"
        words = f"{found.index} is the {which} value of {tensor_words(item)}, which {operator.name} works on"
        yield Evidence("tensor", words, tensor=item.name, value=found.index)


def _sum(found: Formation) -> Evidence:
    within = f" + {found.within_bytes}" if found.within_bytes else ""
    start = f"the storage of {size_words(found.storage.nbytes)} at {hex_addr(found.storage.base)}"
    unit = f"{found.scale} * " if found.scale != 1 else ""
    held = f"; {found.pointer} pointed into that storage" if found.pointer is not None else ""
    return Evidence(
        "address-sum",
        f"the address is {start}{within} + {unit}{found.index}{held}",
        register=found.pointer,
        base=hex_addr(found.storage.base),
        nbytes=found.storage.nbytes,
        offset_bytes=found.within_bytes,
        scale=found.scale,
        value=found.index,
        limit=found.room,
    )


def _origin(view: ProcessView, found: Formation) -> Iterator[Evidence]:
    storage = found.index_storage
    if storage is not None:
        name = _tensor(view, storage.base)
        yield Evidence(
            "index",
            f"{found.index} is an element of {name} ({size_words(storage.nbytes)} at {hex_addr(storage.base)})",
            value=found.index,
            tensor=name,
            base=hex_addr(storage.base),
            nbytes=storage.nbytes,
        )
    if found.index_at is not None:
        yield Evidence(
            "register-value", f"{found.index_at} held {found.index}", register=found.index_at, value=found.index
        )


def _of_two(view: ProcessView, found: Formation, twin: Storage) -> str:
    """The row of both; how far it is where several numbers may be the row's."""
    small, large = _tensor(view, found.storage.base), _tensor(view, twin.base)
    if found.scale == 1:
        return f"{size_words(found.index)} from the start of {small}, as far as it was in {large}."
    return f"row {found.index} of {small}, which has {found.room} of {count_words(found.scale, 'byte')}, as in {large}."


def _advice(view: ProcessView, found: Formation) -> str:
    line = line_words(view)
    if found.twin is not None:
        names = f"{_tensor(view, found.storage.base)} and {_tensor(view, found.twin.base)}"
        saved = backward(view)
        if saved is not None and saved.unpack is not None:
            return (
                f"Compare the shapes of {names}: the backward function takes them row by row. {saved.unpack} must "
                "return what the forward saved."
            )
        if saved is not None:
            return (
                f"Compare the shapes of {names}: the backward function takes them row by row. A tensor that the "
                "forward saved may have another shape now: saved_tensors_hooks that return another tensor, or "
                "set_(), resize_() or .data of one."
            )
        return f"Compare the shapes of {names}, which {line} uses together: the function takes them row by row."
    if found.index_storage is not None:
        name = _tensor(view, found.index_storage.base)
        unnamed = variable_of(view, found.index_storage.base) is None
        origin = origin_words(view, found.index, found.index_storage.base, None if unnamed else name)
        passed = passed_words(view.process.snapshot, view.python_frame) if unnamed else None
        uses = f" The line uses {passed}." if passed is not None else ""
        return (
            f"Check the values of {name} before {line} passes it: {found.index} must not be among them (min(), max()). "
            f"{origin} The function does not check it.{uses}"
        )
    return computed_advice(view, found.index, "the other tensor")
