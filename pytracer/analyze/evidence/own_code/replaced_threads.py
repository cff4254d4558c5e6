"""A std::thread that was set anew while the one before could still be joined: C++ calls std::terminate() then.

Where operator= was inlined, the calls of std::terminate() of one function are one, which has the line of any of them:
nothing is said then of a function with a second one, or of a thread that the function itself makes.
"""

from __future__ import annotations

import re

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import closing, function_around, without_comments
from pytracer.analyze.evidence.own_code.native_source import own_sources
from pytracer.analyze.evidence.own_code.own_place import OwnPlace, own_place
from pytracer.analyze.view import ProcessView

_SET = Pattern(r"(?P<name>[A-Za-z_][\w.]*(?:->\w+|\[[^\]=]*\])*)\s*=(?!=)")
_ANEW = Pattern(_SET.pattern + r"\s*(?:std::)?thread\b")
_LAMBDA = Pattern(r"=[^;]*\[[^\]]*\]\s*(?:\([^()]*\)\s*)?\{")
_ENDS_OTHERS = Pattern(r"\bthread\b|=\s*(?:std::)?(?:move|make_unique)\b|\.(?:reset|clear|pop_back|resize|erase)\s*\(")
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
    if place is None or frame is None or _LAMBDA.search(place.text) is not None:
        return None
    functions = [line.function or "" for line in frame.lines or ()] or [frame.function or ""]
    assigned, proven = any(_ASSIGNS in item for item in functions), _ASSIGNS in functions[-1]  # the last: not inlined
    found = _ANEW.search(place.text) or (_only(place.text) if assigned else None)
    sources = own_sources(frame) or [item for outer in own_frames(view) for item in own_sources(outer)[:1]]
    text = without_comments("\n".join(sources[0][1])) if sources else ""
    if found is None or not (proven or _is_only_end(text, place, found["name"])):
        return None
    last = re.findall(r"\w+", found["name"].partition("[")[0])[-1]
    if len(re.findall(rf"\bthread\b[^;(){{}}=]*\b{last}\b", text)) != 1:  # of another class
        return ReplacedThread(found["name"], place, ())
    joins = (function_around(text, item.start()) for item in re.finditer(rf"\b{last}\b[^;]*[.>]join\s*\(", text))
    names = dict.fromkeys(item.name for item in joins if item is not None and item.name != place.function)
    return ReplacedThread(found["name"], place, tuple(names))


def _only(text: str) -> re.Match[str] | None:
    found = [*_SET.finditer(text)]
    return found[0] if len(found) == 1 else None


def _is_only_end(text: str, place: OwnPlace, name: str) -> bool:
    """Whether nothing else of the function ends a thread, and the object is older than its call."""
    at = text.find(place.text)
    around = function_around(text, at) if at >= 0 and text.count(place.text) == 1 else None
    end = closing(text, around.body) if around is not None else None
    if around is None or end is None:
        return False
    body = text[around.body : end]
    first = re.escape(re.findall(r"\w+", name)[0])
    is_local = re.search(rf"[\w>*&]\s+[*&]*{first}\s*(?:[;={{(\[]|,)", body) is not None
    return len(_ENDS_OTHERS.findall(body)) <= 1 and not is_local
