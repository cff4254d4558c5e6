"""A deleter of foreign memory that ran when the process died: a tensor of from_dlpack() or from_blob() was the owner.

The torch half wraps each deleter, so the stack shows that one ran, and the last end of foreign memory on this thread
tells whose. Memory that its deleter cannot free has a second owner: a `__del__`, a close(), or the library itself.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import capital, function_words
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.native.fault_function import NativeFunction, own_function
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import short_file
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Storage
from pytracer.report.job import PythonFrame

_OURS = "libpytracer_torch"
_ENDING = "::Ending>"
MADE_BY = {"DLPACK": "from_dlpack()", "BLOB": "from_blob()", "NUMPY": "from_numpy()", "BUFFER": "frombuffer()"}


class Deleter(msgspec.Struct, frozen=True):
    """`function`: the deleter; `made_by`: `from_dlpack()`; `made`: the line; `calls`: lines that call it, too."""

    function: NativeFunction
    made_by: str
    made: PythonFrame | None
    calls: tuple[tuple[PythonFrame, str], ...] = ()

    @property
    def tensor(self) -> str:
        """`the tensor of from_dlpack() of samples.py:40`."""
        return _tensor_words(self.made_by, self.made)


def running_deleter(view: ProcessView) -> Deleter | None:
    """The deleter in which the process died; None where none ran, or its memory is not known."""
    frames = own_frames(view)
    names = [(image_name(frame.image), frame.function or "") for frame in frames]
    at = next((n for n, (image, name) in enumerate(names) if image.startswith(_OURS) and _ENDING in name), None)
    function = own_function(view)
    below = [function_words(frame.function) for frame in frames[:at] if frame.function]
    if at is None or function is None or function.name not in below:
        return None
    storage = _last_ended(view)
    if storage is None:
        return None
    site = storage.allocated_by
    made = site.place
    calls = tuple(_calls(view, function.name))
    return Deleter(function, MADE_BY[storage.origin or ""], python_frame(made) if made is not None else None, calls)


def ended_tensor(view: ProcessView) -> str | None:
    """The same words of the foreign memory that ended last, also where its deleter is not there any more."""
    storage = _last_ended(view)
    if storage is None:
        return None
    made = storage.allocated_by.place
    return _tensor_words(MADE_BY[storage.origin or ""], python_frame(made) if made is not None else None)


def _tensor_words(made_by: str, made: PythonFrame | None) -> str:
    at = f" of {short_file(made.file)}:{made.line}" if made is not None else ""
    return f"the tensor of {made_by}{at}"


def _last_ended(view: ProcessView) -> Storage | None:
    """The foreign memory whose end the crashed thread recorded last: that happens before the deleter runs."""
    crash = view.crash
    ended = [
        item
        for item in view.process.snapshot.storages
        if item.freed is not None and crash is not None and item.freed_thread == crash.tid and item.origin in MADE_BY
    ]
    return max(ended, key=lambda item: item.freed.epoch if item.freed is not None else 0, default=None)


def _calls(view: ProcessView, function: str) -> list[tuple[PythonFrame, str]]:
    """Lines of the program's files that call a function of that name, as `library.name(...)`."""
    frames = program_frames(view)
    found = []
    for frame in {frame.file: frame for frame in frames}.values():
        tree = syntax_tree(view.process.snapshot, frame)
        for node in nodes_of(tree) if tree is not None else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == function:
                at = PythonFrame(function=None, file=frame.file, line=node.lineno)
                found.append((at, line_text(view.process.snapshot, at) or ""))
    return found


def owners_words(deleter: Deleter) -> str:
    """What to do about two owners."""
    also = " and ".join(f"line {at.line} (`{text.strip()}`)" for at, text in deleter.calls[:2])
    if also:
        verb = "calls" if len(deleter.calls[:2]) == 1 else "call"
        return (
            f"The memory has two owners: {deleter.tensor} calls {deleter.function.name}() when it ends, and {also} "
            f"{verb} it as well. Let one of them do so: the one that gave the memory away must not."
        )
    return (
        f"{capital(deleter.tensor)} calls {deleter.function.name}() when it ends. Look for a second owner "
        "that has freed the same memory before (a __del__, a close(), the library itself), or memory of another "
        "allocator: only one may free it, by the function that belongs to its allocator."
    )
