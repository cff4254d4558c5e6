"""A std::thread that was set anew while the one before could still be joined: C++ calls std::terminate() then."""

from __future__ import annotations

import re

import msgspec

from pytracer._text import list_words
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import function_around, without_comments
from pytracer.analyze.evidence.own_code.native_source import own_sources
from pytracer.analyze.evidence.own_code.own_place import OwnPlace, own_place
from pytracer.analyze.view import ProcessView

_SET = re.compile(r"(?P<name>[A-Za-z_][\w.]*(?:->\w+|\[[^\]=]*\])*)\s*=(?!=)")
_ANEW = re.compile(r"=\s*(?:std::)?j?thread\b|=\s*std::move\b")
_ASSIGNS = "thread::operator="
_MOST = 2


class ReplacedThread(msgspec.Struct, frozen=True):
    """`name` is set at `place`, in `function`. `joiners`: functions of that file that join it."""

    name: str
    place: OwnPlace
    joiners: tuple[str, ...]

    @property
    def what(self) -> str:
        """The reason, for the headline."""
        return (
            f"{self.place.place} sets `{self.name}` anew, a std::thread whose thread of before was not joined yet: "
            "C++ ends the process there"
        )

    @property
    def advice(self) -> str:
        """What to do before."""
        by = f" ({list_words([f'{item}()' for item in self.joiners], _MOST)} does that)" if self.joiners else ""
        return (
            f"End the thread that `{self.name}` has and join it{by} before {self.place.function}() runs a second time, "
            f"or let {self.place.function}() return early where `{self.name}.joinable()`."
        )


def replaced_thread(view: ProcessView) -> ReplacedThread | None:
    """Where the innermost line of the program's own library sets a std::thread; None where no such call is seen."""
    place, frame = own_place(view), next(filter(is_of_own_image, own_frames(view)), None)
    found = _SET.search(place.text) if place is not None else None
    if place is None or frame is None or found is None:
        return None
    inlined = [line.function or "" for line in frame.lines or ()]
    if _ANEW.search(place.text) is None and not any(_ASSIGNS in item for item in inlined):
        return None
    sources = own_sources(frame)
    text = without_comments("\n".join(sources[0][1])) if sources else ""
    last = re.findall(r"\w+", found["name"].partition("[")[0])[-1]
    joins = (function_around(text, item.start()) for item in re.finditer(rf"\b{last}\b[^;]*[.>](?:join)\s*\(", text))
    names = dict.fromkeys(item.name for item in joins if item is not None and item.name != place.function)
    return ReplacedThread(found["name"], place, tuple(names))
