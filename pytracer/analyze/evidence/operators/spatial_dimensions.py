"""A convolution of more than three spatial dimensions: torch has none, and not every way into its kernels checks that.

torch.convolution() takes lists of any length. With groups, oneDNN's weights are prepared before anything looks at the
number of dimensions: a descriptor without a format is then read.
"""

from __future__ import annotations

import msgspec

from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.operators.operator import OperatorTensor, find_operator, is_of_torch, shape_words
from pytracer.analyze.view import ProcessView

_CONVOLUTIONS = ("convolution", "conv_transpose", "conv1d", "conv2d", "conv3d", "convNd")
_MOST, _BESIDE = 3, 2  # spatial dimensions; batch and channels, or the channels of both sides


class SpatialDimensions(msgspec.Struct, frozen=True):
    """`tensor` of the operator has `count` dimensions beside batch and channels."""

    operator: str
    tensor: OperatorTensor
    count: int
    line: str

    @property
    def summary(self) -> str:
        """Behind the headline."""
        own = self.tensor.name
        name = "a tensor" if own is None else own if " " in own else f"`{own}`"  # `parameter up.weight`
        return (
            f"{self.operator}() was given {self.count} spatial dimensions ({name} {shape_words(self.tensor.item)}), "
            f"where torch's convolutions have at most {_MOST} and do not check it on this way"
        )

    @property
    def advice(self) -> str:
        """What there is."""
        return (
            f"Do not pass {self.count} spatial dimensions to {self.operator}() at {self.line}: build it of "
            "convolutions that there are, such as Conv3d over three of them with the rest folded into the batch "
            "(reshape), and Conv1d along the rest. Without groups, or with mkldnn switched off, the same call raises "
            "an error instead; it does not work, either."
        )


def spatial_dimensions(view: ProcessView) -> SpatialDimensions | None:
    """None where the operator is no convolution of torch, or no tensor of it has so many dimensions."""
    operator = find_operator(view)
    if operator is None or not is_of_torch(operator) or not any(name in operator.name for name in _CONVOLUTIONS):
        return None
    found = [
        item
        for item in operator.tensors
        if not item.item.undefined and item.item.dimensions > _MOST + _BESIDE and "float" in (item.item.dtype or "")
    ]
    if not found:
        return None
    first = next((item for item in found if item.name is not None), found[0])
    name = operator.name.partition("::")[2] or operator.name
    return SpatialDimensions(name, first, first.item.dimensions - _BESIDE, line_words(view))
