"""The running operator as a part of the report, with the tensors of its call."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from pytracer._text import hex_addr
from pytracer.analyze.evidence.operators.in_backward import in_engine
from pytracer.analyze.evidence.operators.line_tensors import line_tensors, operands_of_line
from pytracer.analyze.evidence.operators.operations import operands_of_operation
from pytracer.analyze.evidence.operators.operator import Operator, OperatorTensor, find_operator, tensor_words
from pytracer.analyze.evidence.operators.overwritten_operands import may_be_overwritten
from pytracer.analyze.evidence.phrases import access_verb
from pytracer.analyze.evidence.preconditions.missing import missing_arguments
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument
from pytracer.report import job as r

_MOST_TENSORS = 6


def operator_report(view: ProcessView) -> r.Operator | None:
    """The operator as the report has it."""
    operator = find_operator(view)
    if operator is None:
        return None
    return r.Operator(
        name=operator.name,
        inside=operator.inside,
        found="records" if operator.from_records else "stack",
        tensors=[_tensor_report(item) for item in operator.tensors],
        says=_words(view, operator),
    )


def _tensor_report(found: OperatorTensor) -> r.OperatorTensor:
    item = found.item
    if item.undefined:
        return r.OperatorTensor(argument=found.argument, passed=found.passed, undefined=True)
    return r.OperatorTensor(
        argument=found.argument,
        name=found.name,
        passed=found.passed,
        dtype=item.dtype,
        sizes=list(item.sizes),
        dimensions=item.dimensions,
        elements=item.elements,
        device=item.device,
        base=hex_addr(item.base) if item.base else None,
        undefined=False,
        minimum=item.minimum,
        maximum=item.maximum,
        nans=item.nans,
        infinite=item.infinite,
    )


def _words(view: ProcessView, operator: Operator) -> str:
    """`aten::embedding with weight: layers.0.weight [10, 4] float32; indices: idx [3] int64, 0..99`.

    Where the line passes nothing but variables and all are seen, they alone. What a worker's lambda captures may be a
    buffer of torch's own: without a name it is left out beside what the line passes. In the backward pass the line
    passes none of them.
    """
    shown = operands_of_line(view)
    if shown is None:
        passed = [item for item in operator.tensors if item.passed and not item.item.undefined]
        given = [item for item in line_tensors(view) if item.item.how == "held"] if not in_engine(view) else []
        own = operands_of_operation(view, operator) if given else None
        if given:
            passed = [item for item in passed if item.name or item.item.how != "captured"]
        shown = [*passed, *(item for item in given if item.name and (own is None or item.name in own))]
    shown = _whole(view, operator, shown)
    words = [f"{tensor_words(item)}{_written(view, item)}" for item in shown[:_MOST_TENSORS]]
    missing = missing_arguments(view)
    words += [f"{text} None" if text != "None" else text for text in (missing.texts if missing is not None else ())]
    if len(shown) > _MOST_TENSORS:
        words.append(f"{len(shown) - _MOST_TENSORS} more")
    return f"{operator.name} with {'; '.join(words)}" if words else operator.name


def _whole(view: ProcessView, operator: Operator, shown: Sequence[OperatorTensor]) -> list[OperatorTensor]:
    """A row of a named tensor, on which a kernel works, as the tensor itself; each one once."""
    kept: dict[int | tuple[object, ...], OperatorTensor] = {}
    for number, one in enumerate(shown):
        nbytes = _named_bytes(view, one)
        if nbytes is None or _bytes(one.item) >= nbytes:
            kept.setdefault((one.name, one.item.base, one.item.sizes) if nbytes is not None else number, one)
            continue
        whole = (item for item in operator.tensors if item.name == one.name and _bytes(item.item) == nbytes)
        found = next(whole, None)
        if found is None:
            kept[number] = structs.replace(one, name=f"a part of {one.name}")
        else:
            kept.setdefault((found.name, found.item.base, found.item.sizes), found)
    return list(kept.values())


def _bytes(item: Argument) -> int:
    return item.elements * (item.element_bytes or 1)


def _named_bytes(view: ProcessView, one: OperatorTensor) -> int | None:
    """The size of the parameter or buffer by whose name the tensor is known."""
    storage = view.space.live_around(one.item.base) if one.item.base and one.name is not None else None
    named = view.space.uses.named.of_storage(storage, one.item.base)[0] if storage is not None else ()
    return next((item.nbytes for item in named if item.name == one.name), None)


def _written(view: ProcessView, found: OperatorTensor) -> str:
    """Where the numbers are perhaps not those that the operator was given."""
    item = found.item
    known = not item.undefined and item.minimum is not None
    if known and may_be_overwritten(view, item):
        return " (perhaps written by this access)"
    return " (perhaps written over by this access)" if _may_be_lost(view, item) else ""


def _may_be_lost(view: ProcessView, item: Argument) -> bool:
    """Whether a write that ran far over the heap may have put the zeros there that the handler read for an address."""
    place, crash = view.place, view.crash
    ran = place is not None and place.kind in ("past-storage", "before-storage") and access_verb(view) == "wrote"
    if not ran or crash is None or item.undefined or item.base != 0 or not item.elements:
        return False
    return all(one.base == 0 for one in crash.arguments if one.elements)
