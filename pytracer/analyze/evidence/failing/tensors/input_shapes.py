"""Inputs of a shape that a layer or a batch does not take: channels of images, samples of several sizes."""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import sizes_in

_WEIGHT = Pattern(r"weight of size (\[[\d, ]+\])")
_PLANES = 4  # of a Conv2d's weight


def unfit_channels(at: FailingLine, found: re.Match[str]) -> str | None:
    """Of a convolution: channels last, grayscale or RGBA images, or another layer's output."""
    shape, expected, got = sizes_in(found[1]), int(found[2]), int(found[3])
    layer = at.layer
    made = re.sub(r"\.\d+$", "", layer.name) if layer is not None else ""
    name = f"`{layer.name}`{at.came(made)}" if layer is not None else "The convolution"
    has = f"{name} takes {expected} channels (dimension 1), and its input is {found[1]}"
    if shape[-1] == expected != shape[-2]:
        return f"{has}: the channels are last. {_channels_first(at, shape)}"
    if expected == 3 and got == 1:
        return (
            f'{has}: one channel, as of grayscale images. Convert the images (`.convert("RGB")`), repeat the channel '
            "(`x.expand(-1, 3, -1, -1)`), or make the layer with in_channels=1."
        )
    if expected == 3 and got == 4:
        return (
            f'{has}: four channels, as of RGBA images. Convert the images (`.convert("RGB")`), or drop the last '
            "channel (x[:, :3])."
        )
    return f"{has}: make it with in_channels={got}, or correct what the layer before gives."


def _channels_first(at: FailingLine, shape: tuple[int, ...]) -> str:
    """`Pass x.permute(0, 3, 1, 2)`, by the dimensions of the weight: those of a batch, or of a single input."""
    weight, call = _WEIGHT.search(at.message), at.only(ast.Call)
    given = at.shape(call.args[0]) if call is not None and call.args else None
    shape = given.sizes if given is not None else shape  # the message has a batch of 1 before a single input
    rank = len(sizes_in(weight[1])) if weight is not None else len(shape)
    batch = [0] if len(shape) == rank else []
    order = [*batch, len(shape) - 1, *range(len(batch), len(shape) - 1)]
    passed = at.passed("x")
    of = ", as images of numpy and PIL need" if rank == _PLANES else ", and back behind it where the rest wants that"
    return f"Pass {passed}.permute({', '.join(map(str, order))}){of}."


def unlike_samples(at: FailingLine, found: re.Match[str]) -> str | None:
    """Samples of a batch that cannot be stacked."""
    if not any("collate.py" in (item.file or "") for item in at.stack):
        return None
    one, other = sizes_in(found[1]), sizes_in(found[2])
    if len(one) != len(other):
        what = f"have {len(one)} and {len(other)} dimensions"
        return (
            f"Samples 0 and {found[3]} of the batch {what} ({found[1]}, {found[2]}): return one form from the dataset."
        )
    differ = [n for n, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]]
    if not differ:
        return None
    if differ == [0] and {one[0], other[0]} <= {1, 3, 4} and len(one) == 3:
        return (
            f"Samples 0 and {found[3]} of the batch have {one[0]} and {other[0]} channels ({found[1]}, {found[2]}): "
            "convert all "
            'images alike (`.convert("RGB")`) in the dataset.'
        )
    place = f"dimension {differ[0]}" if len(differ) == 1 else f"dimensions {', '.join(map(str, differ))}"
    return (
        f"Samples 0 and {found[3]} of the batch differ in {place} ({found[1]}, {found[2]}): crop, resize or pad them "
        "to one size in the dataset, or give the DataLoader a collate_fn that pads (pad_sequence)."
    )
