"""The operator that the crashed thread was running, and the tensors that its native code worked on.

The operator's name is in the symbols of the native stack (`at::_ops::embedding::call`); in `run --level ops` also in
the records. Its tensors are those that the handler found in registers and on the stack: dispatcher frames hold
`const at::Tensor&`. A word of a stack may be stale, so a tensor is possible, not proven; one to which the caller's
frame refers, too, is an argument or the result, which the caller has made room for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import function_words
from pytracer.analyze.evidence.lifetime.variables import plain_expression, tensor_variable, tensors_without_memory
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.records import Node
from pytracer.decode.types.snapshot import Argument, Crash, NativeFrame

_ENTRY = Pattern(r"\bat::_ops::(\w+?)::(?:call|redispatch)\b")
_NATIVE = Pattern(r"^(at::native::\w+)\((?:[^()]*[(, ])?at::Tensor\b")
_INTERPRETER = Pattern(r"^_?PyEval_|^_Py_(?:Call|Vectorcall)")
_TAKES_TENSOR = Pattern(r"[(,] ?at::Tensor\b")
_OF_TORCH = ("at::", "torch::", "c10::", "caffe2::", "pybind11::", "std::", "THP")
_TORCH = "libtorch"
_MATRIX = 2  # dimensions

# What each index must be less than: the first size of the tensor that is indexed, its largest one where the dimension
# is not known, or its number of elements. Of operators whose integer tensors are all indices.
_LIMITS = {
    **dict.fromkeys(("embedding",), "first"),
    **dict.fromkeys(("index_select", "gather", "gather_backward", "index_fill", "index_fill_", "index_copy"), "size"),
    **dict.fromkeys(("index_copy_", "index_add", "index_add_", "index_reduce", "index_reduce_", "index_put"), "size"),
    **dict.fromkeys(("index", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"), "size"),
    **dict.fromkeys(
        ("scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_"), "size"
    ),
    **dict.fromkeys(("nll_loss", "nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward"), "size"),
    **dict.fromkeys(("segment_reduce",), "size"),  # its lengths
    **dict.fromkeys(("take", "put", "put_"), "elements"),
    **dict.fromkeys(("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward"), "elements"),
    **dict.fromkeys(("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward"), "elements"),
    **dict.fromkeys(("fractional_max_pool2d_backward", "fractional_max_pool3d_backward"), "elements"),
}
# Arguments by name where the data type tells which is which: (integer, all others).
_ARGUMENTS = {
    "embedding": ("indices", "weight"),
    "index_select": ("index", "self"),
    "gather": ("index", "self"),
    "take": ("index", "self"),
    "nll_loss_forward": ("target", "self"),
}
_SPARSE = ("sparse", "csr", "csc", "coo", "_sp")
_MAY_BE_NEGATIVE = ("index", "nll", "take", "put", "_index", "_unsafe")


class OperatorTensor(msgspec.Struct, frozen=True):
    """One tensor. `argument`: its name in the operator's schema; `name`: of the parameter or variable.

    `passed`: an argument or the result, because the operator's caller refers to it as well.
    """

    item: Argument
    name: str | None
    argument: str | None
    passed: bool


class Operator(msgspec.Struct, frozen=True):
    """`name` as in torch's schema, `aten::embedding`, or of a function that takes tensors.

    `inside`: the operator that it had called in turn. `from_records`: by a record of `--level ops`.
    """

    name: str
    inside: str | None
    tensors: tuple[OperatorTensor, ...]
    from_records: bool = False


class OutOfRange(msgspec.Struct, frozen=True):
    """An integer tensor with a value that no index of the operator's other tensors may have."""

    operator: str
    tensor: OperatorTensor
    value: int
    limit: int
    data: OperatorTensor


def find_operator(view: ProcessView) -> Operator | None:
    """The operator in whose native code the process crashed; None when it was in none, or nothing is known."""
    crash = view.crash
    if crash is None:
        return None
    frames = below_python(crash.native_stack)
    named = _opener_frames(view, crash) or frames
    entries = [(place, found.group(1)) for place, name in enumerate(named) if (found := _ENTRY.search(name))]
    if entries:
        inner, (place, outer) = entries[0][1], entries[-1]
        tensors = tuple(_tensors(view, outer, place, len(frames)))
        return Operator(f"aten::{outer}", f"aten::{inner}" if inner != outer else None, tensors)
    own = _own_function(frames)
    if own is not None:
        place, name = own
        return Operator(name, None, tuple(_tensors(view, name, place, len(frames))))
    in_torch = any(_TORCH in (frame.image or "") for frame in crash.native_stack[: len(frames)])
    recorded = _recorded(view) if in_torch else None
    if recorded is not None:
        called = recorded.removeprefix("aten::")
        return Operator(recorded, None, tuple(_tensors(view, called, 0, len(frames))), from_records=True)
    native = [(place, found.group(1)) for place, name in enumerate(named) if (found := _NATIVE.match(name))]
    if not native:
        return None
    place, name = native[-1]  # called without a dispatcher's frame of its own: by torch.ops, for one
    return Operator(name, None, tuple(_tensors(view, name, place, len(frames))))


def out_of_range(operator: Operator | None) -> OutOfRange | None:
    """An index that is too large, or too small, for every tensor that the operator may index with it."""
    if operator is None:
        return None
    called = operator.name.removeprefix("aten::")
    limits = _LIMITS.get(called)
    data = [item for item in operator.tensors if not item.item.is_integer and item.item.sizes]
    if limits is None or not data:
        return None
    limit, largest = max(((_limit(item.item, limits), item) for item in data), key=lambda pair: pair[0])
    integers = [item for item in operator.tensors if item.item.is_integer]
    if len(integers) != 1:  # integers may be data as well
        return None
    least = -limit if called.startswith(_MAY_BE_NEGATIVE) else 0
    index = integers[0]
    lowest, highest = index.item.minimum, index.item.maximum
    if not index.passed or lowest is None or highest is None:
        return None
    if highest >= limit:
        return OutOfRange(operator.name, index, highest, limit, largest)
    if lowest < least and not called.startswith("nll"):  # its ignore_index may be any number
        return OutOfRange(operator.name, index, lowest, limit, largest)
    return None


def out_of_compressed(operator: Operator | None) -> OutOfRange | None:
    """The plain indices of a compressed sparse tensor, known by the row pointers, which count them.

    They mean a size of one of the dense tensors.
    """
    if operator is None or not is_sparse(operator):
        return None
    integers = [item for item in operator.tensors if item.passed and item.item.is_integer and item.item.elements]
    counts = {item.item.elements for item in integers}
    pointers = [item for item in integers if item.item.minimum == 0 and item.item.maximum in counts]
    counted = {item.item.maximum for item in pointers}
    plain = [item for item in integers if item not in pointers and item.item.elements in counted]
    dense = [
        item
        for item in operator.tensors
        if not item.item.is_integer and len(item.item.sizes) == _MATRIX and item.item.elements not in counted
    ]
    if len(plain) != 1 or not dense or plain[0].item.maximum is None:
        return None
    largest = max(dense, key=lambda item: max(item.item.sizes))
    limit, highest = max(largest.item.sizes), plain[0].item.maximum
    return OutOfRange(operator.name, plain[0], highest, limit, largest) if highest >= limit else None


def counts_in(operator: Operator | None) -> str | None:
    """What an index of the operator counts: "rows" or "elements" of the other tensor; None where that is not known."""
    if operator is None:
        return None
    limits = _LIMITS.get(operator.name.removeprefix("aten::"))
    if limits is None:
        return "rows" if is_sparse(operator) else None
    return "elements" if limits == "elements" else "rows"


def is_sparse(operator: Operator) -> bool:
    """Whether it works on a sparse tensor, by its name."""
    return any(word in f"{operator.name} {operator.inside or ''}" for word in _SPARSE)


def runs_sparse(view: ProcessView) -> bool:
    """Whether the operator, or the function at the fault of torch or of its libraries, works on a sparse tensor."""
    operator, crash = find_operator(view), view.crash
    inner = [frame.function or "" for frame in (crash.native_stack[:1] if crash is not None else ())]
    return operator is not None and (is_sparse(operator) or (is_of_torch(operator) and "sparse" in "".join(inner)))


def without_memory(operator: Operator | None) -> list[OperatorTensor]:
    """Its tensors that have no memory: 0 elements, a storage that was resized to 0, or undefined."""
    if operator is None:
        return []
    of_torch = is_of_torch(operator)
    return [item for item in operator.tensors if item.passed and _lacks_memory(item.item, of_torch)]


def made_empty(operator: Operator | None) -> list[OperatorTensor]:
    """Tensors without elements that an operator of torch made for itself, of the sizes that its arguments lead to."""
    if operator is None or not is_of_torch(operator):
        return []
    return [item for item in operator.tensors if not item.item.undefined and not item.item.elements and item.item.sizes]


def is_of_torch(operator: Operator) -> bool:
    """Whether it is torch's own, not a function of an extension."""
    return operator.name.startswith(("aten::", "at::native::"))


def _lacks_memory(item: Argument, of_torch: bool) -> bool:
    """Torch's operators make undefined tensors themselves: for arguments that were left out, and for results."""
    return not of_torch if item.undefined else item.base == 0 and item.device in ("cpu", None)


def tensor_with(operator: Operator | None, value: int) -> OperatorTensor | None:
    """The integer tensor whose smallest or largest element is that value."""
    tensors = operator.tensors if operator is not None else ()
    return next((item for item in tensors if value in (item.item.minimum, item.item.maximum)), None)


def tensor_name(item: OperatorTensor) -> str:
    """`` `idx` ``, or `a tensor [3] of int64`."""
    return f"`{item.name}`" if item.name else f"a tensor {shape_words(item.item)} of {item.item.dtype}"


def tensor_words(item: OperatorTensor) -> str:
    """`weight: layers.0.weight [10, 4] float32`, `indices: idx [3] int64, 0..99`."""
    argument, tensor = f"{item.argument}: " if item.argument else "", item.item
    name = f"{item.name} " if item.name and item.name != item.argument else ""
    if tensor.undefined:
        return f"{argument}{name}undefined"
    words = f"{argument}{name}{shape_words(tensor)} {tensor.dtype or 'unknown type'}"
    if tensor.device not in ("cpu", None):
        words += f" on {tensor.device}"
    if tensor.elements == 0:
        return f"{words}, empty"
    if tensor.base == 0 and tensor.device != "meta":
        return f"{words}, without memory"
    if tensor.minimum is None:
        return words + _nan_words(tensor)
    return words + (
        f", all {tensor.minimum}" if tensor.minimum == tensor.maximum else f", {tensor.minimum}..{tensor.maximum}"
    )


def _nan_words(tensor: Argument) -> str:
    """`, all NaN`; nothing where there is none: the crash may have overwritten them, and infinity is in many masks."""
    if not tensor.nans:
        return ""
    count = tensor.elements * (2 if tensor.is_complex else 1)
    return f", {'all' if tensor.nans == count else f'{tensor.nans} of {count}'} NaN"


def shape_words(tensor: Argument) -> str:
    """`[10, 4]`."""
    more = ", ..." if tensor.dimensions > len(tensor.sizes) else ""
    return f"[{', '.join(map(str, tensor.sizes))}{more}]"


def below_python(stack: Sequence[NativeFrame]) -> list[str]:
    """The functions that the innermost Python code called, innermost first; unknown ones are empty."""
    names = []
    for frame in stack:
        name = frame.function or ""
        if _INTERPRETER.match(name):
            break
        names.append(name)
    return names


def _own_function(frames: Sequence[str]) -> tuple[int, str] | None:
    """The outermost function of the program's own that takes tensors: of an extension, without a dispatcher."""
    for place in reversed(range(len(frames))):
        short = function_words(frames[place])
        if _TAKES_TENSOR.search(frames[place]) and not short.startswith(_OF_TORCH):
            return place, short
    return None


def _opener_frames(view: ProcessView, crash: Crash) -> list[str]:
    """The functions of the thread that opened the parallel region; a worker's own stack does not have the operator."""
    opener = view.region_opener
    stacks = (item.native_stack for item in crash.threads if opener is not None and item.tid == opener.tid)
    return below_python(next(stacks, ()))


def _recorded(view: ProcessView) -> str | None:
    """The operator that the crashed thread began last, by its records."""
    crash = view.crash
    own = [item for item in view.process.snapshot.events if crash is not None and item.tid == crash.tid]
    last = next((item for item in reversed(own) if item.kind in ("OP", "RANGE_BEGIN", "RANGE_END")), None)
    return last.data.name if last is not None and last.kind == "OP" and isinstance(last.data, Node) else None


def _tensors(view: ProcessView, called: str, place: int, frames: int) -> Iterator[OperatorTensor]:
    crash = view.crash
    found = [item for item in crash.arguments if item.frame is None or item.frame < frames] if crash else []
    passed = [item for item in found if _is_passed(item, place) and _may_take(called, item)]
    integers = [item for item in passed if item.is_integer]
    others = [item for item in passed if not item.is_integer and not item.undefined]
    names = _ARGUMENTS.get(called)
    for item in [*passed, *(item for item in found if item not in passed)]:
        argument = None
        if names is not None and item in passed and not item.undefined:
            alike = integers if item.is_integer else others
            argument = names[0 if item.is_integer else 1] if len(alike) == 1 else None
        yield OperatorTensor(item, _name(view, item) or _copied_name(view, item, found), argument, item in passed)


def _may_take(called: str, item: Argument) -> bool:
    """An optimizer's operator takes no integers: a pointer to some is left of what had run there before."""
    return not (called.startswith("_fused_") and called.endswith("_") and item.is_integer)


def _is_passed(item: Argument, place: int) -> bool:
    """Whether the frames that called the operator refer to it; a worker's lambda captures what it works on.

    What only frames further out refer to is of their own: the gradient from which autograd's engine began.
    """
    if item.how == "captured":
        return True
    if place and item.frame is not None and item.frame > place + 1:
        return False
    return item.outer_frame is not None and item.outer_frame >= place and not (item.undefined and item.how == "impl")


def _name(view: ProcessView, item: Argument) -> str | None:
    """`layers.0.weight` of a named tensor, else the variable."""
    if item.undefined:
        return None
    if item.base == 0:
        alike = [held for held in tensors_without_memory(view) if held.elements == item.elements]
        return plain_expression(alike[0].expression) if len(alike) == 1 else None
    storage = view.space.live_around(item.base)
    named = view.space.uses.named.of_storage(storage, item.base)[0] if storage is not None else ()
    if storage is not None and len(named) > 1 and len(view.space.meant_at(item.base)) > 1:
        return " or ".join(tensor.name for tensor in named)
    return next((tensor.name for tensor in named), None) or tensor_variable(view, item)


def _copied_name(view: ProcessView, item: Argument, found: Sequence[Argument]) -> str | None:
    """`index.contiguous()`: of whole numbers without gaps, as many, and in the same range, as the only variable with
    gaps has.
    """
    if not item.is_integer or not item.elements or _has_gaps(item):
        return None
    alike = [other for other in found if _may_be_copied(other, item)]
    names = {_name(view, other) for other in alike}
    name = names.pop() if len(names) == 1 else None
    return f"{name}.contiguous()" if name is not None else None


def _may_be_copied(item: Argument, copy: Argument) -> bool:
    """Where both have been looked at, the smallest and the largest number are the same."""
    known = None not in (item.minimum, copy.minimum)
    same = (item.minimum, item.maximum) == (copy.minimum, copy.maximum)
    return (item.sizes, item.dtype) == (copy.sizes, copy.dtype) and _has_gaps(item) and (same or not known)


def _has_gaps(item: Argument) -> bool:
    plain = tuple(math.prod(item.sizes[at + 1 :]) for at in range(len(item.sizes)))
    return any(step != whole for step, whole, size in zip(item.steps, plain, item.sizes, strict=True) if size > 1)


def _limit(item: Argument, limits: str) -> int:
    if limits == "elements":
        return item.elements
    return item.sizes[0] if limits == "first" else max(item.sizes)
