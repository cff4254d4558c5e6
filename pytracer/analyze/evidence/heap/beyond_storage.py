"""A tensor whose sizes need more memory than its storage has: whatever is written through it damages the heap.

`resize_()` sets the sizes before it enlarges the storage (torch 2.13, aten/src/ATen/native/Resize.h). Of memory of
others, such as a NumPy array's, it cannot: it raises an error, and the tensor keeps the new sizes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import shortened, size_words
from pytracer.analyze.evidence.lifetime.deleters import MADE_BY
from pytracer.analyze.evidence.lifetime.variables import plain_expression, program_frames, variable_of
from pytracer.analyze.evidence.operators.operator import shape_words
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.lines import names_of_line
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import line_in, place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.origins import is_borrowed, lost_storages
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument, Crash, NativeFrame, Storage
from pytracer.decode.types.snapshot import PythonFrame as SnapshotFrame
from pytracer.report.job import PythonFrame

_RESIZES = ("resize_", "resize_as_")
_QUOTED = 44
_TORCH = ("at::", "c10::", "torch::")


class BeyondStorage(msgspec.Struct, frozen=True):
    """`variable`: `` `frames` in decode() ``. `needed`: bytes up to its last element; `nbytes`: those there."""

    variable: str
    tensor: Argument
    storage: Storage
    needed: int
    nbytes: int

    @property
    def summary(self) -> str:
        """For the headline."""
        return (
            f"{self.variable} {shape_words(self.tensor)} {self.tensor.dtype} needs {size_words(self.needed)}, and has "
            f"{size_words(self.nbytes)} of memory"
        )


def beyond_storage(view: ProcessView) -> BeyondStorage | None:
    """The one that needs most, of those that variables hold; None where all fit, or one may be about to be resized."""
    crash, snapshot = view.crash, view.process.snapshot
    if crash is None or lost_storages(snapshot.counts) or _is_resizing(crash):
        return None
    found = [item for tensor in crash.arguments if (item := _beyond(view, tensor)) is not None]
    return max(found, key=lambda item: item.needed, default=None)


def _beyond(view: ProcessView, tensor: Argument) -> BeyondStorage | None:
    itemsize = tensor.element_bytes
    known = tensor.dimensions == len(tensor.sizes) == len(tensor.strides)
    if tensor.undefined or itemsize is None or not known or not tensor.base or tensor.device != "cpu":
        return None
    if not tensor.elements or min(tensor.strides, default=0) < 0:
        return None
    last = tensor.offset + sum((size - 1) * stride for size, stride in zip(tensor.sizes, tensor.strides, strict=True))
    needed = (last + 1) * itemsize
    # Several tensors may be made of the same memory of others: the one that reaches farthest counts.
    around = view.process.snapshot.storages.around(tensor.base)
    live = [item for item in around if item.state == "live" and item.base <= tensor.base < item.base + item.nbytes]
    nbytes = max((item.base + item.nbytes - tensor.base for item in live), default=needed)
    storage = next((item for item in live if item.base == tensor.base), None)
    variable = variable_of(view, tensor.base, tensor.elements)
    if storage is None or variable is None or needed <= nbytes:
        return None
    return BeyondStorage(variable, tensor, storage, needed, nbytes)


def _is_resizing(crash: Crash) -> bool:
    """Whether a thread is in resize_() and the like, which has set the sizes and not yet made the room."""
    stacks = [crash.native_stack, *(thread.native_stack for thread in crash.threads)]
    return any(_resizes(frame) for stack in stacks for frame in stack)


def _resizes(frame: NativeFrame) -> bool:
    names = [frame.function or "", *(line.function for line in frame.lines)]
    return any("resize" in name and any(part in name for part in _TORCH) for name in names)


def used_at(view: ProcessView, found: BeyondStorage) -> str:
    """`; the main thread was at train.py:24 in decode, which uses it`, for a crashed thread without Python code."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if view.python_frame is not None or frame is None or frame.line is None or tree is None:
        return ""
    names = names_of_line(tree, frame.line)
    held = [
        plain_expression(item.expression)
        for item in (view.crash.holders if view.crash is not None else ())
        if item.base == found.tensor.base and item.frame is not None and python_frame(item.frame) == frame
    ]
    uses = any(name in names for name in held)
    return f"; the main thread was at {place_words(frame)}, which uses it" if uses else ""


def beyond_advice(view: ProcessView, found: BeyondStorage) -> str:
    """Where the tensor was made, and what made it larger than its memory."""
    frames = program_frames(view)
    file = frames[0].file if frames else None
    name = found.variable.partition(" in ")[0]
    begins = f"{name} is larger than its memory{_made(found, file)}, so that writing to it damages the heap."
    resizes = list(_resizing_lines(view, frames))
    if len(resizes) == 1 and is_borrowed(found.storage):
        at, text = resizes[0]
        return (
            f"{begins} Look at {_line(at, file)} (`{shortened(text, _QUOTED)}`): memory of others cannot be resized, "
            "resize_() raises an error and leaves the new shape. Make a new tensor (torch.empty(...)) instead."
        )
    made = _maker(found)
    if len(resizes) == 1 and made is not None and (resizes[0][0].file, resizes[0][0].line) == (made.file, made.line):
        at, text = resizes[0]
        return (
            f"{begins} Look at {_line(at, file)} (`{shortened(text, _QUOTED)}`): a storage that is made smaller leaves "
            "the shape as it was. Make a new tensor of the part that stays instead."
        )
    return (
        f"{begins} Look for what changed its shape: a resize_() whose error was caught, set_(), or a storage that was "
        "made smaller. Make a new tensor instead."
    )


def _maker(found: BeyondStorage) -> SnapshotFrame | None:
    """The program's line that allocated its memory."""
    site = found.storage.allocated_by
    return next((item for item in (site.python, site.caller) if item and not is_library_file(item.file)), None)


def _made(found: BeyondStorage, file: str | None) -> str:
    """` (from_numpy() at line 10)`."""
    made = _maker(found)
    by = MADE_BY.get(found.storage.origin or "")
    at = f"at {_line(python_frame(made), file)}" if made is not None else ""
    words = " ".join(filter(None, (by or ("made" if at else ""), at)))
    return f" ({words})" if words else ""


def _resizing_lines(view: ProcessView, frames: list[PythonFrame]) -> Iterator[tuple[PythonFrame, str]]:
    for frame in {frame.file: frame for frame in frames}.values():
        tree = syntax_tree(view.process.snapshot, frame)
        for node in nodes_of(tree) if tree is not None else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called_name(node) in _RESIZES:
                at = PythonFrame(function=None, file=frame.file, line=node.lineno)
                yield at, line_text(view.process.snapshot, at) or ""


def _line(frame: PythonFrame, file: str | None) -> str:
    return line_in(frame.file, frame.line, file)
