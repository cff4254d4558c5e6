"""What glibc's check of a buffer stopped: the call, the function of the program that makes it, and the local array.

A program that was compiled with _FORTIFY_SOURCE calls `__sprintf_chk()` for sprintf(), with the buffer's size, which
the compiler knows. Of sprintf(), strcpy() and strcat() the text is too long: they take no size. Of memcpy(), snprintf()
and read() the size that they are given is larger than the buffer.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer._text import function_words
from pytracer.analyze.evidence.native.fault_function import HEADERS, is_of_own_image
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.own_code.c_text import arguments_at
from pytracer.analyze.evidence.own_code.native_source import LocalArray, local_arrays, own_sources
from pytracer.analyze.evidence.own_code.passed_texts import passed_text
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame, SourceLine

Kind = Literal["text", "added", "size"]
_FAILED = Pattern(r"^(?:__GI_)?__chk_fail$")  # not `__stack_chk_fail`
_TEXT = "*** buffer overflow detected"
_CHECKED = Pattern(r"^(?:__GI_)?__(?P<name>[a-z]\w*?)_chk(?:_\w+)?$")
_LIBC = ("libc.", "libc-", "libpytracer_")
# By what they write too much: a text that they take no size for, or one that they add to another, or a size.
_TEXTS = frozenset({"sprintf", "vsprintf", "strcpy", "stpcpy", "strcat", "gets", "wcscpy", "wcpcpy", "wcscat"})
_ADDED = frozenset({"strncat", "wcsncat"})
_SIZED = frozenset({
    "memcpy", "memmove", "mempcpy", "memset", "strncpy", "stpncpy", "snprintf", "vsnprintf", "read", "pread", "pread64",
    "recv", "recvfrom", "fread", "fgets", "readlink", "readlinkat", "getcwd", "gethostname", "confstr", "strlcpy",
    "strlcat", "wmemcpy", "wmemmove", "wmemset", "wcsncpy", "explicit_bzero",
})  # fmt: skip
_SAFE = {
    "sprintf": "snprintf", "vsprintf": "vsnprintf", "strcpy": "snprintf", "stpcpy": "snprintf", "strcat": "snprintf",
    "gets": "fgets", "wcscpy": "swprintf", "wcpcpy": "swprintf", "wcscat": "swprintf", "strncat": "snprintf",
    "wcsncat": "swprintf",
}  # fmt: skip
_CONTINUED = frozenset({"strcat", "wcscat", "strncat", "wcsncat"})  # they write behind what is there
_BUFFERS = {  # which argument it is, where not the first
    **dict.fromkeys(("read", "pread", "pread64", "recv", "recvfrom", "readlink", "confstr"), 1), "readlinkat": 2,
}  # fmt: skip
_NAME = Pattern(r"^&?\s*(?P<name>[A-Za-z_]\w*)\s*(?:\[\s*0\s*\])?$")
_BASE = Pattern(r"^[&(\s]*(?P<name>[A-Za-z_]\w*)")
_MOST_LINES = 12  # of a call


class CheckedWrite(msgspec.Struct, frozen=True):
    """`function` calls `name` at `place` (`load.c:12`), for `target`, an expression of its source.

    `array`: the local array of the target; `whole`: the target is its beginning. `given`: the text that the program's
    line passes for one of the call's arguments, in words.
    """

    function: str
    place: str | None
    name: str
    kind: Kind
    target: str | None = None
    array: LocalArray | None = None
    whole: bool = False
    given: str | None = None

    @property
    def what(self) -> str:
        """Behind `Process 101 aborted: `."""
        if self.kind == "size":
            return f"{self._line} passes {self.name}() a size that is larger than {self._buffer}"
        adds = "adds" if self.name in _CONTINUED else "writes"
        return f"{self._line} {adds} a text by {self.name}() that {self._buffer} has no room for"

    @property
    def advice(self) -> str:
        """The change to make."""
        if self.kind == "size":
            return f"Bound the size that {self._line} passes to {self.name}() by that of {self._buffer}."
        larger = f", or make `{self.array.name}` as large as the longest text" if self.array is not None else ""
        unaware = (
            f"the number that {self.name}() takes bounds what is added, not the buffer"
            if self.kind == "added"
            else f"{self.name}() takes no size"
        )
        given = f" The text has {self.given}: look at its length." if self.given is not None else ""
        return f"Write by {self._safe} in {self._line}{larger}: {unaware}.{given}"

    @property
    def _line(self) -> str:
        return f"{self.function}(){f' ({self.place})' if self.place is not None else ''}"

    @property
    def _buffer(self) -> str:
        if self.array is not None:
            return self.array.words
        return f"`{self.target}`" if self.target is not None else "its buffer"

    @property
    def _safe(self) -> str:
        """`` `snprintf(buff, sizeof buff, ...)` ``, or with the room that is left."""
        call = _SAFE[self.name]
        if self.array is None or self.array.bounds.count("[") > 1:
            return f"{call}() with the size of the buffer"
        if not self.whole or self.name in _CONTINUED:
            return f"{call}() with the room that is left in `{self.array.name}`"
        if call == "swprintf":
            return f"swprintf() with the number of characters of `{self.array.name}`"
        given = ", stdin" if call == "fgets" else ", ..."
        return f"`{call}({self.array.name}, sizeof {self.array.name}{given})`"


def checked_write(view: ProcessView) -> CheckedWrite | None:
    """Of a process that glibc's check stopped; None where the call, or who makes it, is not known."""
    frames = own_frames(view)
    at = max((n for n, item in enumerate(frames) if _is_check(item)), default=None)
    text = view.crash.abort_text if view.crash is not None else None
    if at is None or (text and not text.startswith(_TEXT)):
        return None
    inside, caller = [frames[at]], None
    for frame in frames[at + 1 :]:
        if not image_name(frame.image).startswith(_LIBC):
            caller = frame
            break
        inside.append(frame)
    name = _called(inside, caller) if caller is not None else None
    if caller is None or name is None or not is_of_own_image(caller):
        return None
    kind: Kind = "text" if name in _TEXTS else "added" if name in _ADDED else "size"
    return _with_source(view, caller, name, kind)


def _is_check(frame: NativeFrame) -> bool:
    return _FAILED.match(frame.function or "") is not None


def _called(inside: list[NativeFrame], caller: NativeFrame) -> str | None:
    """The checked function of libc that the program called; some leave no frame, but the header's inline function."""
    named = [match["name"] for frame in inside if (match := _CHECKED.match(frame.function or "")) is not None]
    headers = [item.function or "" for item in caller.lines or () if item.file and HEADERS.search(item.file)]
    known = (name for name in (*reversed(named), *headers) if name in _TEXTS | _ADDED | _SIZED)
    return next(known, None)


def _with_source(view: ProcessView, caller: NativeFrame, name: str, kind: Kind) -> CheckedWrite | None:
    line = next((item for item in caller.lines or () if item.file and not HEADERS.search(item.file)), None)
    function = function_words((line.function if line is not None else None) or caller.function or "")
    if not function:
        return None
    place = f"{short_file(line.file)}:{line.line}" if line is not None and line.file and line.line else None
    plain = CheckedWrite(function, place, name, kind)
    source = next(iter(own_sources(caller)), None)
    if source is None or line is None or source[0] != line:
        return plain
    given = arguments_at(source[1], line.line or 0, name)
    number = _BUFFERS.get(name, 0)
    if given is None or len(given) <= number:
        return plain
    target = given[number]
    base = _BASE.match(target)
    found = [item for item in _arrays(caller, line) if base is not None and item.name == base["name"]]
    array = found[-1] if found and not re.search(r"->|\.", target) else None
    texts = [item for at, item in enumerate(given) if at != number]
    return CheckedWrite(
        function, place, name, kind, target, array, _NAME.match(target) is not None,
        passed_text(view, caller, texts) if kind != "size" else None,
    )  # fmt: skip


def _arrays(frame: NativeFrame, line: SourceLine) -> list[LocalArray]:
    return local_arrays(structs.replace(frame, lines=[line]))
