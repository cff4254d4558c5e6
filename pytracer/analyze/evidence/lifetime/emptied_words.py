"""What to do about tensors whose memory a line of the program took away, and what several of them are called."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._library_files import is_library_file
from pytracer._text import list_words
from pytracer.analyze.evidence.lifetime.emptied import emptied_at
from pytracer.analyze.evidence.lifetime.variables import line_words, plain_expression
from pytracer.analyze.evidence.operators.operator import OperatorTensor
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
