"""Arguments of an operator as lines of a program: how they are written, and the one change that each allows.

Search and stored programs share these lines, so that what killed the search's child is what the program does. `{n}` is
the variable's name. Imports no torch: dtypes are their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_SAME_ITEMSIZE = {
    "float32": "int32",
    "int32": "float32",
    "float64": "int64",
    "int64": "float64",
    "complex64": "float64",
    "bool": "uint8",
    "uint8": "int8",
}
_OTHER_ITEMSIZE = {"float32": "float64", "float64": "float32", "int64": "int32", "int32": "int64", "uint8": "int64"}
HUGE = 1 << 40


@dataclass(frozen=True)
class Change:
    """One wrong thing: its kind, and the line that does it to `{n}`, or to a part such as `{n}_cols`."""

    kind: str
    line: str


def of_tensor(shape: Sequence[int], dtype: str, largest: int, name: str = "{n}") -> Iterator[Change]:
    """Wrong tensors of a name. `largest`: no size of the call is larger."""
    if shape and all(shape):
        yield Change("empty", f"{name} = {name}[:0].clone()")
        for dim in sorted({0, len(shape) - 1}):
            if shape[dim] > 1:
                yield Change("narrowed", f"{name} = {name}.narrow({dim}, 0, 1).clone()")
        if shape[0] > 3:
            yield Change("shortened", f"{name} = {name}[: len({name}) // 2].clone()")
        if len(shape) > 1:
            yield Change("flattened", f"{name} = {name}.flatten()")
    elif not shape:
        yield Change("empty", f"{name} = torch.empty(0, dtype=torch.{dtype})")
    if all(shape):
        yield Change("no-memory", f"{name}.untyped_storage().resize_(0)")
    if dtype in _SAME_ITEMSIZE:
        yield Change("dtype", f"{name} = {name}.view(torch.{_SAME_ITEMSIZE[dtype]})")
    if dtype in _OTHER_ITEMSIZE:
        yield Change("dtype-size", f"{name} = {name}.to(torch.{_OTHER_ITEMSIZE[dtype]})")
    if dtype in ("int64", "int32") and all(shape):
        yield from _of_indices(shape, dtype, largest, name)


def _of_indices(shape: Sequence[int], dtype: str, largest: int, name: str) -> Iterator[Change]:
    count = 1
    for size in shape:
        count *= size
    element = f"{name}.view(-1)[{count // 2}]" if shape else f"{name}.fill_"
    huge = HUGE if dtype == "int64" else (1 << 31) - 1
    for kind, value in (
        ("index-huge", huge),
        ("index-negative", -1),
        ("index-far-negative", -huge),
        ("index-beyond", largest + 1),
        ("index-beyond", 1000 * (largest + 1)),
    ):
        yield Change(kind, f"{element} = {value}" if shape else f"{element}({value})")
    if shape and shape[0] > 1:
        yield Change("not-increasing", f"{name} = {name}.flip(0)")


def of_int(value: int, name: str = "{n}") -> Iterator[Change]:
    """Wrong integers."""
    if value != 0:
        yield Change("int-zero", f"{name} = 0")
    if value != -1:
        yield Change("int-negative", f"{name} = -1")
    yield Change("int-large", f"{name} = {1000 * max(abs(value), 1)}")
    yield Change("int-huge", f"{name} = {HUGE}")


def of_ints(values: Sequence[int]) -> Iterator[Change]:
    """Wrong lists of integers: one of them."""
    for place in sorted({0, len(values) - 1}) if values else ():
        for change in of_int(values[place], f"{{n}}[{place}]"):
            yield Change(change.kind.replace("int-", "ints-"), change.line)
    if len(values) > 1:
        yield Change("ints-fewer", "{n}.pop()")


def of_list(count: int) -> Iterator[Change]:
    """Wrong lists of tensors."""
    if count > 1:
        yield Change("list-shorter", "{n}.pop()")
    if count:
        yield Change("list-empty", "{n}.clear()")
