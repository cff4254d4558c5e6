"""What to do about tensors whose memory a line of the program took away, and what several of them are called."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import capital, list_words
from pytracer.analyze.evidence.lifetime.emptied import emptied_at, only_line
from pytracer.analyze.evidence.lifetime.variables import line_words, plain_expression
from pytracer.analyze.evidence.operators.operator import OperatorTensor
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Holder


def several_words(items: Sequence[Holder]) -> str:
    """`` `self.weight_ih_l0` and `self.bias_ih_l0` in LSTM.forward() ``: of a library, with its function."""
    names = list_words([f"`{plain_expression(item.expression)}`" for item in items])
    frames = {item.frame for item in items}
    frame = frames.pop() if len(frames) == 1 else None
    return f"{names} in {frame.function}()" if frame is not None and is_library_file(frame.file) else names


def emptied_advice(view: ProcessView, empty: Sequence[Holder]) -> str | None:
    """Of tensors whose storages one line of the program resized to 0."""
    own = [item for item in empty if item.frame is not None and not is_library_file(item.frame.file)]
    items = list({plain_expression(item.expression): item for item in own or empty}.values())
    lines = {emptied_at(view, elements) for elements in {item.elements for item in items}}
    at = lines.pop() if len(lines) == 1 else None
    only = only_line(view) if at is None and all(item.elements for item in items) else None
    if only is not None:
        called = f", which {only.caller} calls," if only.caller is not None else ""
        return (
            f"{capital(only.at)}{called} is the only line of the program that takes the memory of tensors away: "
            f"{several_words(items)}, or a view of the same memory, was still in use. Keep a copy (clone()) of what is "
            f"used later, or use it before."
        )
    if at is None:
        return None
    its, storage = ("its", "its storage") if len(items) == 1 else ("their", "the storage")
    return (
        f"Give {several_words(items)} {its} memory back before {line_words(view)} (resize_() of {storage} to the old "
        f"size, then copy_()), or use {'it' if len(items) == 1 else 'them'} before {at} takes the memory away."
    )


def taken_words(view: ProcessView, items: Sequence[OperatorTensor]) -> str:
    """Of tensors of one size that have elements: the line of the program that took their memory away."""
    sizes = {item.item.elements for item in items}
    at = emptied_at(view, sizes.pop()) if len(sizes) == 1 else None
    return f" Its memory was taken away by {at}: give it back before." if at is not None else ""


class Taken(msgspec.Struct, frozen=True):
    """The line that took a tensor's memory away. `only`: by the source, of which no other line does so."""

    at: str
    caller: LineWords | None = None
    only: bool = False

    @property
    def summary(self) -> str:
        """Behind that a storage was resized to 0: `` , which only line 9 (`t.untyped_storage().resize_(0)`) does ``."""
        called = f", called at {self.caller}" if self.caller is not None else ""
        return f", which only {self.at} does{called}" if self.only else f", by {self.at}"


def taken_by(view: ProcessView, items: Sequence[Holder]) -> Taken | None:
    """None where several lines may have, or none of the program did."""
    sizes = {item.elements for item in items}
    if len(sizes) != 1 or 0 in sizes:
        return None
    at = emptied_at(view, sizes.pop())
    if at is not None:
        return Taken(at)
    only = only_line(view)
    return Taken(only.at, only.caller, only=True) if only is not None else None
