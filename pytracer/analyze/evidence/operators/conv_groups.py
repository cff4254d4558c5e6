"""A convolution of more groups than its weight has output channels: output channels by groups is 0 in integers.

The groups follow from the sizes: a weight of [outputs, inputs of a group, ...] and an input of [batch, channels, ...]
make channels / inputs groups, which is what QNNPACK's kernels check. They do not check that the outputs can be divided
by the groups, as the floating-point convolution does. Not for a transposed one, whose weight has other sizes.
"""

from __future__ import annotations

import msgspec

from pytracer._text import capital, function_words, shortened
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.operators.line_tensors import line_tensors
from pytracer.analyze.evidence.operators.operator import OperatorTensor, shape_words
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.set_attributes import lines_that_set_attribute
from pytracer.analyze.naming import LineWords
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_KERNEL = "qnnpack::qnnpackconv"
_OTHERS = ("transpose", "deconv", "makeconvoutputshape")  # the last one divides by a stride
_INPUT, _WEIGHT = "quint8", "qint8"
_LEAST_DIMENSIONS = 3  # batch, channels and a length
_QUOTED = 70


class ConvGroups(msgspec.Struct, frozen=True):
    """`data` [batch, channels, ...] and `weight` [outputs, channels of a group, ...] make `groups`.

    `line`: the one that runs the convolution; `set_outputs`: the one that sets `out_channels` of a module, where the
    program sets no `groups`.
    """

    data: OperatorTensor
    weight: OperatorTensor
    groups: int
    line: str
    set_outputs: str | None

    @property
    def words(self) -> str:
        """`` the convolution has 8 groups (...) and 6 output channels, and 6 // 8 is 0 ``."""
        outputs = self.weight.item.sizes[0]
        return (
            f"the convolution has {self.groups} groups ({_named(self.data)} has {self.data.item.sizes[1]} channels, "
            f"{_named(self.weight)} {shape_words(self.weight.item)} takes {self.weight.item.sizes[1]} for each group) "
            f"but {outputs} output channels, and {outputs} // {self.groups} is 0"
        )

    @property
    def advice(self) -> str:
        """What must fit, and the line that changed one of the two alone."""
        since = f" {self.set_outputs} sets `out_channels`, and no line there sets `groups`." if self.set_outputs else ""
        removed = (
            " Where filters of a depthwise convolution are removed, set its `groups` and `in_channels` to what is "
            "left, and pass it the same channels of the input."
        )
        return (
            f"Make the output channels of {_named(self.weight)} a multiple of `groups` before {self.line}: QNNPACK "
            f"does not check it.{since}{removed if self.weight.item.sizes[1] == 1 else ''}"
        )


def conv_groups(view: ProcessView) -> ConvGroups | None:
    """None where QNNPACK's convolution does not run, its tensors are not known for certain, or their sizes fit."""
    frames = view.crash.native_stack if view.crash is not None else ()
    names = " ".join(function_words(item.function) for item in frames if item.function).lower()
    if _KERNEL not in names or any(word in names for word in _OTHERS):
        return None
    tensors = [item for item in line_tensors(view) if item.name and item.item.dimensions >= _LEAST_DIMENSIONS]
    given = [item for item in tensors if item.item.dtype == _INPUT]
    weights = [item for item in tensors if item.item.dtype == _WEIGHT]
    if len(given) != 1 or len(weights) != 1 or given[0].item.dimensions != weights[0].item.dimensions:
        return None
    data, weight = given[0], weights[0]
    channels, outputs, inputs = data.item.sizes[1], *weight.item.sizes[:2]
    if not inputs or not outputs or channels % inputs or channels // inputs <= outputs:
        return None
    return ConvGroups(data, weight, channels // inputs, line_words(view), _set_outputs(view))


def _set_outputs(view: ProcessView) -> str | None:
    """`` Line 25 (`conv.out_channels = len(keep)`) ``, where just one line does so."""
    files = program_files(view.process.snapshot, program_frames(view))
    if any(True for tree in files.values() for _ in lines_that_set_attribute(tree, "groups")):
        return None
    found = {
        (file, item.line) for file, tree in files.items() for item in lines_that_set_attribute(tree, "out_channels")
    }
    if len(found) != 1:
        return None
    file, line = found.pop()
    text, place = (
        line_text(view.process.snapshot, PythonFrame(function=None, file=file, line=line)),
        place_of(view, file, line),
    )
    return LineWords(capital(place), file, line).quoted(shortened(text, _QUOTED)) if text is not None else None


def _named(item: OperatorTensor) -> str:
    name = item.name or ""
    return f"`{name}`" if " " not in name else name
