"""A sort of the program's own native code that ran past its range: its comparison is no strict weak order.

std::sort() stops at the first element that the comparison does not put before the pivot, without looking for the end.
With `>=`, `<=` or NaN no element stops it where all are alike.
"""

from __future__ import annotations

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.native.fault_function import HEADERS, own_function
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.native_source import lines_from
from pytracer.analyze.evidence.own_code.own_libraries import is_own_path
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

_UNGUARDED = Pattern(r"(?:^|\bstd::)__(?:introsort_loop|unguarded_(?:partition|linear_insert)\w*)(?:<|$)")
_MOST_FRAMES = 5  # of the comparison, and of what was not inlined
_MOST_LINES = 80  # from the function's first line to its comparison
_SIDE = r"[\w.\[\]()>*-]+?"
_NOT_STRICT = Pattern(rf"return\s+({_SIDE})\s*([<>])=\s*({_SIDE})\s*;")
_LAST_NAME = Pattern(r"(\w+)\W*$")


class SortOrder(msgspec.Struct, frozen=True):
    """`function`: what sorts, `best_boxes (boxes.cpp:11)`; `comparison` and its `place` where the source has it."""

    function: str
    comparison: str | None
    strict: str | None
    place: str | None

    @property
    def summary(self) -> str:
        """Behind the headline."""
        return "std::sort() was comparing elements there"

    @property
    def advice(self) -> str:
        """The line to change, else what to look for."""
        if self.comparison is not None:
            return (
                f"Write `{self.strict}` instead of `{self.comparison}` at {self.place}: it is true for equal elements, "
                "too, which is no strict weak order, so that std::sort() can run past its range. NaN does the same."
            )
        return (
            f"Look at the comparison that {self.function} sorts by: where it is true for equal elements (`>=`, `<=`), "
            "or elements are NaN, std::sort() runs past the end of its range. If it is strict, an element is a bad "
            "pointer."
        )


def sort_order(view: ProcessView) -> SortOrder | None:
    """None unless the fault is in the part of std::sort() that looks for no end, in a library of the program."""
    frames = own_frames(view)[:_MOST_FRAMES]
    at = next((place for place, frame in enumerate(frames) if _is_unguarded(frame)), None)
    if at is None or not is_own_path(frames[at].image):
        return None
    if any(frame.image != frames[at].image for frame in frames[:at]):
        return None  # what the comparison calls: it was given a bad element
    function = own_function(view)
    name = function.words if function is not None else "the function"
    return _in_source(name, own_frames(view)[at:]) or SortOrder(name, None, None, None)


def _is_unguarded(frame: NativeFrame) -> bool:
    names = [frame.function or "", *(line.function or "" for line in frame.lines or ())]
    return any(_UNGUARDED.search(name.removeprefix("void ")) for name in names)


def _in_source(name: str, frames: list[NativeFrame]) -> SortOrder | None:
    """The only comparison of the function that sorts that is true for equal elements."""
    for frame in frames:
        line = next((item for item in frame.lines or () if item.file and not HEADERS.search(item.file)), None)
        if line is None or not line.file or line.line is None:
            continue
        found = [
            (number, match)
            for number, text in lines_from(frame, line, _MOST_LINES)
            if (match := _NOT_STRICT.search(text)) is not None and _last(match[1]) == _last(match[3])
        ]
        if len(found) == 1:
            number, match = found[0]
            words = f"{match[1]} {match[2]}= {match[3]}"
            return SortOrder(name, words, words.replace("=", "", 1), f"{short_file(line.file)}:{number}")
        return None
    return None


def _last(side: str) -> str | None:
    match = _LAST_NAME.search(side)
    return match[1] if match is not None else None
