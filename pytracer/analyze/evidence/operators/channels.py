"""A batch norm whose statistics or weights are of another number of channels than its input.

The wrappers of torch.nn.functional compare them; the operators below (`batch_norm_update_stats`, `native_batch_norm`,
and what an extension calls) do not: they read and write one number for each channel of the input, past the end of
tensors that have fewer, and damage what lies behind.
"""

from __future__ import annotations

import msgspec

from pytracer._text import list_words
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.operators.operator import OperatorTensor, find_operator, shape_words
from pytracer.analyze.view import ProcessView

_NORM = "batch_norm"
_CHANNELS = 1  # dimension of the input
_MOST = 4


class UnfitChannels(msgspec.Struct, frozen=True):
    """`data` has `channels`, `small` fewer elements."""

    operator: str
    data: OperatorTensor
    channels: int
    small: tuple[OperatorTensor, ...]

    @property
    def summary(self) -> str:
        """`` `x` [4, 2048, 24, 24] has 2048 channels, buffer bn.running_mean [64] has 64 ``."""
        first = self.small[0]
        return (
            f"{_named(self.data)} {shape_words(self.data.item)} has {self.channels} channels, {_named(first)} has "
            f"{first.item.elements}"
        )

    def advice(self, view: ProcessView) -> str:
        """What to compare, and that the damage may be elsewhere."""
        names = list_words([f"{_named(item)} {shape_words(item.item)}" for item in self.small], _MOST)
        data = _named(self.data)
        return (
            f"Pass {data} and statistics of the same layer at {line_words(view)}: {self.operator} takes one number for "
            f"each of the {self.channels} channels of {data} {shape_words(self.data.item)}, "
            f"and does not check that {names} {'has' if len(self.small) == 1 else 'have'} so many. It overwrites what "
            "lies behind, in this call or in one before."
        )


def unfit_channels(view: ProcessView) -> UnfitChannels | None:
    """Of the arguments of a batch norm; None where all fit, or the input is not known for certain."""
    operator = find_operator(view)
    if operator is None or _NORM not in operator.name:
        return None
    floats = [
        item
        for item in operator.tensors
        if item.passed and item.name and item.item.elements and not item.item.is_integer
    ]
    inputs = [item for item in floats if item.item.dimensions > _CHANNELS and len(item.item.sizes) > _CHANNELS]
    channels = {item.item.sizes[_CHANNELS] for item in inputs}
    if len(channels) != 1:
        return None
    count = channels.pop()
    small = [item for item in floats if item.item.dimensions == 1 and item.item.elements < count]
    return UnfitChannels(operator.name, inputs[0], count, tuple(small)) if small else None


def _named(item: OperatorTensor) -> str:
    """`` `x` ``, or `buffer bn.running_mean` as the module calls it."""
    name = item.name or ""
    return f"`{name}`" if " " not in name else name
