"""What the recorded values of variables mean: the shapes of tensors, and torch's own layers."""

from __future__ import annotations

import math
import re

import msgspec

from pytracer._patterns import Pattern

MOST_ELEMENTS = 1 << 14  # of a larger tensor its numbers are not recorded
_LAYER = Pattern(r"^([A-Z]\w+)\((.*?)\)?(?: (\w+))?$")
_OPTION = Pattern(r"(\w+)=(\d+)")
_SHAPE = Pattern(r"^\[([\d, ]*)\] ?(\w*)")


class Shape(msgspec.Struct, frozen=True):
    """What a variable with a tensor was."""

    sizes: tuple[int, ...]
    dtype: str

    @property
    def words(self) -> str:
        """`[2, 3]`."""
        return f"[{', '.join(map(str, self.sizes))}]"

    @property
    def elements(self) -> int:
        """Their product."""
        return math.prod(self.sizes)


class Layer(msgspec.Struct, frozen=True):
    """One of torch's own layers that the line called. `given`: its input."""

    name: str
    kind: str
    options: dict[str, int]
    dtype: str
    given: Shape | None


def is_sharded(value: str | None) -> bool:
    """`DTensor [4, 3] float32, Shard(0)`: its shape is that of all parts, so it is none to reckon with."""
    return value is not None and value.startswith("DTensor [")


def shape_of(value: str | None) -> Shape | None:
    """`[2, 3] float32` is one."""
    found = _SHAPE.match(value) if value is not None else None
    if found is None:
        return None
    return Shape(tuple(int(size) for size in found[1].split(",") if size.strip()), found[2])


def sizes_in(text: str) -> tuple[int, ...]:
    """Of a shape in a message: `[2, 3]`."""
    return tuple(int(item) for item in re.findall(r"\d+", text))


def contradicts(recorded: str, constant: object) -> bool:
    """A number, a length of a text or None that is not the constant which the source has."""
    if constant is None or recorded == "None":
        return (constant is None) != (recorded == "None")
    if isinstance(constant, str) and recorded.startswith("str of "):
        return recorded != f"str of {len(constant)}"
    return type(constant) in (int, float, bool) and recorded != repr(constant)


def layer_of(values: dict[str, str]) -> Layer | None:
    """The first of torch's layers among the recorded values."""
    for name, value in values.items():
        found = _LAYER.match(value) if f"input of {name}" in values or "(" in value else None
        if found is not None:
            options = {key: int(number) for key, number in _OPTION.findall(found[2])}
            given = shape_of(values.get(f"input of {name}"))
            return Layer(name, found[1], _positional(found[1], found[2], options), found[3] or "", given)
    return None


def _positional(kind: str, text: str, options: dict[str, int]) -> dict[str, int]:
    """`Conv2d(3, 8, ...)` and `Embedding(4, 16)` name their first two by place."""
    numbers = re.match(r"\(?(\d+)(?:,\)?, |, )(\d+)", text)
    if numbers is None:
        return options
    names = ("num_embeddings", "embedding_dim") if kind == "Embedding" else ("in_channels", "out_channels")
    return {names[0]: int(numbers[1]), names[1]: int(numbers[2]), **options}
