"""A descriptor that select() has no room for: an fd_set has a bit for each of 0 to 1023 (FD_SETSIZE), and no more.

In C, FD_SET() and FD_CLR() of a larger one write behind the set, and FD_ISSET() reads there; a program that was
compiled with _FORTIFY_SOURCE is stopped there, also for a descriptor below 0. In Python, select.select() raises
ValueError, of larger ones only. A new descriptor gets the lowest number that is free, so that many are open then: where
a single line of the program keeps files, it is named. Where the C file nowhere tests the descriptor for one below 0,
it may as well be the -1 of what was closed.
"""

from __future__ import annotations

import ast
import re

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import function_words, shortened
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.limits.kept_files import KeptFiles, kept_files
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.own_code.c_text import without_comments
from pytracer.analyze.evidence.own_code.native_source import own_sources
from pytracer.analyze.evidence.own_code.own_place import own_place
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.naming import place_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

_CHECK = "__fdelt_"  # __fdelt_chk() of glibc, whose message depends on its version; __fdelt_warn is the same function
_TEXT = "*** bit out of range"
_SETS = Pattern(r"\b(FD_(?:SET|CLR|ISSET))\s*\(")
_GIVEN = Pattern(r"\bFD_(?:SET|CLR|ISSET)\s*\(\s*([A-Za-z_]\w*(?:(?:\.|->)\w+)*)\s*,")
_ANY = "FD_SET(), FD_CLR() or FD_ISSET()"
_OF_PYTHON = "filedescriptor out of range in select()"
_ROOM = "an fd_set has room for the descriptors 0 to 1023 only"
_QUOTED = 60


class DescriptorSet(msgspec.Struct, frozen=True):
    """`what`: why it was stopped, without subject. `function`: one that it names."""

    what: str
    advice: str
    function: str | None
    behind: Behind | None


def beyond_set(view: ProcessView) -> DescriptorSet | None:
    """Of a process that the C library stopped in FD_SET(), FD_CLR() or FD_ISSET()."""
    frames = own_frames(view)
    check = max((n for n, item in enumerate(frames) if _CHECK in (item.function or "")), default=None)
    text = view.crash.abort_text if view.crash is not None else None
    if check is None and not (text or "").startswith(_TEXT):
        return None
    caller = frames[check + 1] if check is not None and check + 1 < len(frames) else None
    own = caller is not None and is_of_own_image(caller)
    place = own_place(view) if own else None
    if place is not None and _SETS.search(place.text) is None:
        place = None
    name = place.function if place is not None else _function(caller)
    who = f"{name}()" if name is not None else "a function"
    if caller is not None and not own:
        who += f" of {image_name(caller.image)}"
    at = f" (`{shortened(place.text.rstrip(';'), _QUOTED)}` at {place.place})" if place is not None else ""
    macro = _macro(place.text) if place is not None else _ANY
    kept = kept_files(view.process.snapshot, program_frames(view))
    tested = place is not None and caller is not None and _is_tested(caller, place.text)
    return DescriptorSet(
        f"{who} gave {macro} a descriptor that an fd_set has no room for{at}: {_which(kept, tested=tested)}",
        _advice(who, kept, _closed(view, tested=tested), own=own or caller is None),
        name,
        Behind.of([], kept) if kept is not None else None,
    )


def _macro(text: str) -> str:
    """The one of them that a line has; all three where it has several."""
    names = {match[1] for match in _SETS.finditer(text)}
    return f"{names.pop()}()" if len(names) == 1 else _ANY


def _function(frame: NativeFrame | None) -> str | None:
    if frame is None:
        return None
    inner = next((item.function for item in frame.lines or () if item.function), None)
    name = inner or frame.function
    return function_words(name) if name else None


def _is_tested(frame: NativeFrame, text: str) -> bool:
    """Whether its file compares the descriptor, by the name that the line has, with 0 or -1."""
    given = _GIVEN.search(text)
    sources = own_sources(frame)
    if given is None or not sources:
        return False
    tests = rf"\b{re.escape(given[1])}\s*(?:<\s*0|<=\s*-1|[=!]=\s*-1|>=\s*0|>\s*-1)"
    return re.search(tests, without_comments("\n".join(sources[0][1]))) is not None


def _closed(view: ProcessView, *, tested: bool) -> str:
    """A sentence: what the line of Python passes may be -1; "" where C refuses that."""
    if tested:
        return ""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    calls = calls_on(tree, frame.line) if tree is not None and frame is not None and frame.line is not None else ()
    given = [ast.unparse(item) for item in calls if called_name(item) == "fileno"]
    if frame is None or len(given) != 1:
        return "Check that the descriptor is not -1, of what was closed or of a call that failed."
    return f"Check that `{given[0]}` at {place_words(frame)} is not -1: it is once that was closed."


def _which(kept: KeptFiles | None, *, tested: bool) -> str:
    if kept is None:
        return "1024 (FD_SETSIZE) or more" + ("" if tested else ", or below 0")
    if tested:
        return f"1024 (FD_SETSIZE) or more, most likely since {kept.words}"
    return f"below 0, or 1024 (FD_SETSIZE) or more ({kept.words})"


def _advice(who: str, kept: KeptFiles | None, closed: str, *, own: bool) -> str:
    limit = f"{_ROOM}, and a higher limit of open files (`ulimit -n`) does not change that."
    few = f" Or have fewer files open. {kept.advice}" if kept is not None else ""
    if own:
        wait = f"ait by poll() or epoll in {who}, in place of select(): {limit}{few}"
        return f"{closed} If it is not: w{wait}" if closed else f"W{wait}"
    keeps = f" {kept.advice}" if kept is not None else ""
    fewer = "" if kept is not None else " Find what keeps so many files open (`ls -l /proc/PID/fd`), and close them."
    return f"Keep fewer than 1000 files open in this process, which waits by select() in {who}: {limit}{keeps}{fewer}"


def beyond_select(at: FailingLine) -> str | None:
    """Of select.select()."""
    if _OF_PYTHON not in at.message or at.kind != "ValueError":
        return None
    kept = kept_files(at.snapshot, at.frames)
    since = f", most likely since {kept.words}" if kept is not None else ""
    few = f" {kept.advice}" if kept is not None else ""
    return (
        f"A descriptor is 1024 (FD_SETSIZE) or more{since}: use select.poll() or selectors.DefaultSelector, which take "
        f"any.{few}"
    )
