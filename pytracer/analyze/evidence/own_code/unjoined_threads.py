"""A std::thread that was destroyed while it could still be joined: C++ calls std::terminate() then.

A member or static variable of the program's own library. What joins it is in the source; that it was destroyed shows
that this had not run.
"""

from __future__ import annotations

import os
import re

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import is_at_exit, own_frames
from pytracer.analyze.evidence.own_code.c_text import (
    Function,
    calls_of,
    closing,
    function_around,
    without_comments,
)
from pytracer.analyze.evidence.own_code.calling_lines import lines_that_call
from pytracer.analyze.evidence.own_code.left_generators import LeftGenerator, left_generator
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.own_libraries import files_of_program, is_own_path, own_libraries
from pytracer.analyze.evidence.own_code.program_text import named_sources
from pytracer.analyze.evidence.own_code.source_files import sources_before, sources_named
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

_DECLARED = Pattern(
    r"(?m)^[ \t]*(?:static\s+|inline\s+)*(?:std::(?:vector|deque|list|unique_ptr|optional)\s*<\s*)?std::thread\s*>?\s+"
    r"(?P<name>\w+)\s*(?:;|\{|=)"
)
_THREADS = Pattern(r"\bj?thread\s*>?\s+\w+\s*(?:;|\{|=|\(|,)|\bj?thread\s*[({]")
_MOST = 2


class UnjoinedThread(msgspec.Struct, frozen=True):
    """`name` of `declared` (`reader.cpp:58`). `joiners`: functions that join it, `stop() (line 32)`.

    `entries`: those of the same file that call one, and `calls` the lines of the program that call any of them.
    `owner`: the class that it is a member of.
    """

    name: str
    declared: str
    joiners: tuple[str, ...]
    entries: tuple[str, ...]
    calls: tuple[LineWords, ...]
    at_exit: bool
    owner: str | None = None
    left: LeftGenerator | None = None

    @property
    def what(self) -> str:
        """The reason, for the headline."""
        when = "at the exit of the process " if self.at_exit else ""
        joins = list_words(self.joiners, _MOST)
        why = f": {joins}, which joins it, had not run for it" if len(self.joiners) == 1 else ""
        of = f" of {self.owner}" if self.owner is not None else ""
        left = f"; {self.left.summary}" if self.left is not None else ""
        return (
            f"`{self.name}` ({self.declared}), a std::thread{of}, was destroyed {when}before it was joined{why}{left}"
        )

    @property
    def advice(self) -> str:
        """What to call, or to write into the destructor."""
        done = " The program's own work was done." if self.at_exit else ""
        if self.left is not None:
            owner = self.owner or "its owner"
            return f"{self.left.advice} Or let the destructor of {owner} stop `{self.name}` and join it.{done}"
        if not self.joiners:
            return f"Stop `{self.name}` and join it in the destructor of its owner: nothing in that file does.{done}"
        first = self.entries[0] if len(self.entries) == 1 else self.joiners[0].partition(" ")[0]
        where = f" ({list_words([*self.calls], _MOST)} does)" if len(self.calls) == 1 else ""
        return (
            f"Call {first}{where} on every way out, by `try: ... finally:` or a `with`: what joins `{self.name}` is "
            f"there. Or let the destructor of its owner stop and join it.{done}"
        )


def unjoined_thread(view: ProcessView) -> UnjoinedThread | None:
    """Of the innermost frame of the program's own library; None where its source has no thread, or several."""
    frame = next((item for item in own_frames(view) if is_own_path(item.image) and is_of_own_image(item)), None)
    source = _source(view, frame) if frame is not None else None
    if source is None:
        return None
    text = without_comments("\n".join(source[1]))
    declared = [match for match in _DECLARED.finditer(text) if not _is_local(text, match)]
    if len(declared) != 1 or len(_THREADS.findall(text)) != 1:  # a local one may be meant
        return None
    if re.search(rf"\b{declared[0]['name']}\s*=[^=]", text):
        return None  # to set one that runs ends the process as well
    name, file = declared[0]["name"], os.path.basename(source[0])
    joins = [
        function
        for match in re.finditer(rf"\b{name}\s*(?:\.|->)\s*(?:join|detach)\s*\(|:\s*{name}\s*\)[^;]*\.join\s*\(", text)
        if (function := function_around(text, match.start())) is not None and not function.name.startswith("~")
    ]
    names = [*dict.fromkeys(item.name for item in joins)]
    entries = [*dict.fromkeys(_callers(text, names))]
    return UnjoinedThread(
        name,
        f"{file}:{_line(text, declared[0].start('name'))}",
        tuple(f"{item.name}() (line {_line(text, item.body)})" for item in joins),
        tuple(f"{item}()" for item in entries),
        tuple(dict.fromkeys(lines_that_call(view, [*names, *entries]))),
        is_at_exit(view),
        _owner(text, declared[0].start("name")),
        left_generator(view, files_of_program(view), [*names, *entries]),
    )


def _source(view: ProcessView, frame: NativeFrame) -> tuple[str, list[str]] | None:
    """Of the frame's library; of one that is gone, such as with a temporary folder, what the program's text names."""
    found = own_source(frame)
    if found is not None:
        return found[0].file or "", found[1]
    libraries = own_libraries(view)
    if libraries is None or libraries.paths != (frame.image,) or os.path.exists(frame.image or ""):
        return None
    files = files_of_program(view)
    folders = sorted({os.path.dirname(file) for file in files})
    began = view.process.snapshot.created_wall_ns
    named = sources_named(began, folders, named_sources(files.values())) or sources_before(began, folders)
    return named[0] if len(named) == 1 else None


def _owner(text: str, place: int) -> str | None:
    """The class that has a member."""
    around = [
        match["name"]
        for match in re.finditer(r"\b(?:class|struct)\s+(?P<name>\w+)[^;{()]*\{", text[:place])
        if (closing(text, match.end() - 1) or len(text)) > place
    ]
    return around[-1] if around else None


def _is_local(text: str, match: re.Match[str]) -> bool:
    """Whether it is a variable of a function, which its block destroys."""
    return function_around(text, match.start("name")) is not None


def _callers(text: str, names: list[str]) -> list[str]:
    places = [place for name in names for place, _ in calls_of(text, name)]
    around: list[Function | None] = [function_around(text, place) for place in places]
    return [item.name for item in around if item is not None and item.name not in names]


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1
