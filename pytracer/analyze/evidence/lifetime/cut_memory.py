"""A tensor that was made of an address of 32 bits, in a process whose memory lies above: the address was cut.

`from_address()`, `frombuffer()` and `as_array()` believe any address. ctypes converts what a function returns to a C
int where its restype is not set.
"""

from __future__ import annotations

import msgspec

from pytracer._text import hex_addr
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import line_that_made, place_of
from pytracer.analyze.evidence.own_code.narrow_callbacks import NarrowCallback, narrow_callback
from pytracer.analyze.evidence.own_code.unset_restype import UnsetRestype, native_call_behind, unset_restype
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.evidence.wild.truncated_address import HALF, is_half
from pytracer.analyze.naming import LineWords
from pytracer.analyze.tensors.origins import is_borrowed
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_WHOLE = 1 << 64


class CutMemory(msgspec.Struct, frozen=True):
    """`base`: where the tensor says that its memory begins; `made`: the line that made it.

    `returned`: the function of C whose result that is, where the source shows it.
    """

    base: int
    made: str | None
    returned: UnsetRestype | None = None
    callback: NarrowCallback | None = None
    declared: LineWords | None = None  # the line of its prototype

    @property
    def summary(self) -> str:
        """Behind the headline."""
        if self.returned is not None:
            return f"it was made of {hex_addr(self.base)}, the lower 32 bits of {self.returned.source}"
        if self.callback is not None:
            one = self.callback
            return (
                f"it was made of {hex_addr(self.base)}, the lower 32 bits of the address that C passed for "
                f"`{one.name}` of {one.function}(): `{one.prototype}` ({self.declared}) declares that as {one.kind}"
            )
        return (
            f"it was made of the address {hex_addr(self.base)}, which has 32 bits, and this process has no memory "
            "there: the upper half was lost"
        )

    @property
    def advice(self) -> str:
        """What to change."""
        if self.returned is not None:
            return (
                f"{self.returned.repair}: without it ctypes takes the result for a C int, and keeps 32 bits of the "
                "address, where this process has no memory."
            )
        if self.callback is not None:
            one = self.callback
            return (
                f"Declare argument {one.place} of `{one.prototype}` at {self.declared} as ctypes.c_void_p or "
                f"POINTER(...), as the C function that calls {one.function}() passes an address there: of {one.kind} "
                "32 bits arrive."
            )
        line = f", before {self.made} makes a tensor of it" if self.made is not None else ""
        return (
            "Set `restype = ctypes.c_void_p` (or POINTER(...)) of the C function that returned the address"
            f"{line}: without it ctypes takes the result for a C int, and keeps 32 bits. An address that is passed "
            "needs argtypes, or ctypes.c_void_p(...), for the same reason."
        )


def cut_memory(view: ProcessView) -> CutMemory | None:
    """None where the tensor's memory may be where it says, or the process has memory below 4 GiB."""
    crash, storage = view.crash, view.place.storage if view.place is not None else None
    if crash is None or storage is None or not crash.mappings or not is_borrowed(storage) or not is_half(storage.base):
        return None
    if any(item.start < HALF for item in crash.mappings):
        return None
    made = line_that_made(view, storage.base, also_failing=True)
    returned = _returned(view, made) if made is not None else None
    found = CutMemory(storage.base % _WHOLE, made, returned)
    callback = _callback(view, made) if made is not None and returned is None else None
    if callback is None:
        return found
    return msgspec.structs.replace(found, callback=callback, declared=place_of(view, callback.file, callback.line))


def _callback(view: ProcessView, made: LineWords) -> NarrowCallback | None:
    at = PythonFrame(file=made.file, line=made.line)
    tree = syntax_tree(view.process.snapshot, at)
    if tree is None or made.line is None:
        return None
    files = program_files(view.process.snapshot, [*program_frames(view), at])
    return narrow_callback(files, scope_of(tree, made.line), made.line)


def _returned(view: ProcessView, made: LineWords) -> UnsetRestype | None:
    frames, at = program_frames(view), PythonFrame(file=made.file, line=made.line)
    tree = syntax_tree(view.process.snapshot, at)
    if tree is None or made.line is None:
        return None
    back = Slice(view.process.snapshot, frames)
    place = Spot(made.file, tree, scope_of(tree, made.line), made.line)
    own = (spot for depth in range(len(frames)) if (spot := back.spot(depth)) is not None)
    spot = next((item for item in own if (item.file, item.line) == (made.file, made.line)), place)
    called = native_call_behind(back, tree, made.line, spot)
    if called is None:
        return None
    files = program_files(view.process.snapshot, [*frames, at])
    return unset_restype(view, files, called[1].file, called[0], frames[0].file if frames else None)
