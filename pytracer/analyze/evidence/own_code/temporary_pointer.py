"""A pointer to the data of a temporary tensor, in the source of the program's own function.

`x.contiguous().data_ptr<float>()` makes a tensor that nothing holds: where x was contiguous it is x itself, else it is
freed at the end of that statement, and the pointer dangles.
"""

from __future__ import annotations

import re

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.native.fault_function import is_own_frame
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.local_memory import LocalMemory, returned_pointer
from pytracer.analyze.evidence.own_code.native_source import own_lines, source_text
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

_MOST_FRAMES = 6
_MAKES = (
    r"contiguous|to|clone|cpu|toType|to_dense|reshape|flatten|t|transpose|permute|index_select|masked_select|"
    r"cumsum|sort|argsort|nonzero|float|to_type|squeeze|detach"
)
_POINTER = Pattern(
    rf"\b(?P<name>\w+)\s*=\s*(?:\([\w:\s*]+\)\s*)?(?:(?:static|reinterpret)_cast<[^>]*>\()?"
    rf"(?P<made>[\w.>\[\]-]+\.(?:{_MAKES})\([^;]*\))\.(?P<taken>(?:const_|mutable_)?data_ptr\b)"
)
_CALLED = Pattern(r"\*\s*(?P<name>\w+)\s*=\s*(?P<function>\w+)\s*\(")
_OBJECT = Pattern(r"^[\w>\[\]-]+")


class TemporaryPointer(msgspec.Struct, frozen=True):
    """`name` points into `made`, such as `table.contiguous()`, which ends with the statement at `place`."""

    name: str
    made: str
    place: str

    @property
    def summary(self) -> str:
        """Behind the headline."""
        return f"`{self.name}` was taken of `{self.made}`, a temporary that ends at {self.place}"

    @property
    def advice(self) -> str:
        """The change to make."""
        of = match[0] if (match := _OBJECT.match(self.made)) is not None else "the tensor"
        return (
            f"Hold the tensor in a variable of its own at {self.place}, for as long as `{self.name}` is used: "
            f"`auto held = {self.made};`, then held.data_ptr(). Where `{of}` fits as it is, as one that is contiguous "
            "does, nothing is copied, so that the same call works."
        )


class ReturnedPointer(msgspec.Struct, frozen=True):
    """`name` = `function(...)` at `place`, which returns the data of a tensor that ends with it."""

    name: str
    place: str
    memory: LocalMemory

    @property
    def summary(self) -> str:
        """Behind the headline."""
        own = self.memory
        return f"`{self.name}` is what {own.function}() returned ({own.place}), the data of its own `{own.name}`"

    @property
    def advice(self) -> str:
        """The change to make."""
        own = self.memory
        return (
            f"Return the tensor `{own.name}` from {own.function}() ({own.place}: `{own.text}`) instead of a pointer to "
            f"its data, and keep it in a variable for as long as `{self.name}` is used, at {self.place}: the tensor "
            "ends with that function. Where nothing had to be copied, the same call works."
        )


def temporary_pointer(view: ProcessView) -> TemporaryPointer | ReturnedPointer | None:
    """The only pointer of the running function that was taken of a temporary; None without its source."""
    frame = next((item for item in own_frames(view)[:_MOST_FRAMES] if is_own_frame(item) and item.lines), None)
    source = own_lines(frame) if frame is not None else None
    if source is None:
        return None
    file, lines = source
    running = lines[-1][1]
    found = [(number, match) for number, text in lines if (match := _POINTER.search(text)) is not None]
    used = [(number, match) for number, match in found if re.search(rf"\b{match['name']}\b", running)]
    if len(used) == 1:
        found = used
    if len(found) != 1:
        return _returned(frame, file, lines) if not found and frame is not None else None
    number, match = found[0]
    return TemporaryPointer(match["name"], match["made"], f"{file}:{number}")


def _returned(frame: NativeFrame, file: str, lines: list[tuple[int, str]]) -> ReturnedPointer | None:
    """Of a pointer that the running line uses, and that another function of the file returned."""
    text = source_text(frame)
    running = lines[-1][1]
    for number, line in lines if text is not None else ():
        match = _CALLED.search(line)
        if match is None or text is None or not re.search(rf"\b{match['name']}\b", running):
            continue
        memory = returned_pointer(file, text.splitlines(), match["function"])
        if memory is not None:
            return ReturnedPointer(match["name"], f"{file}:{number}", memory)
    return None
