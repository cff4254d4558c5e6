"""exit() that the program's own native code called: on a thread of its own, or while other threads still worked.

It runs handlers and destructors beside code that uses what they end, so that the process may die somewhere else. What
went wrong is what the code gave up for: `CHECK(a == b)` that ends in exit(1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import function_words, shortened
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.own_code.c_text import closing
from pytracer.analyze.evidence.own_code.native_source import own_sources
from pytracer.analyze.evidence.own_code.own_libraries import is_own_path
from pytracer.analyze.evidence.own_code.passed import passed
from pytracer.analyze.naming import LineWords, line_in, place_words
from pytracer.analyze.parts import native_frame
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

_EXITS = ("exit", "quick_exit", "__run_exit_handlers", "__GI_exit")
_LIBC = Pattern(r"^libc[.-]")
_REPORTS = Pattern(
    r"(?i)log|fatal|check|assert|expect|require|verify|die\b|fail|error|abort|panic|exit|throw|~|message"
)
_MOST, _QUOTED = 8, 90


class NativeExit(msgspec.Struct, frozen=True):
    """`function` called exit() at `place`; `led` is the line that gave up, `text`, in `by`.

    `here`: on the thread that crashed; `main`: whether that is the main one. `line`: what the program's line is called;
    `at`: that of the main thread, of a thread that runs no Python.
    """

    function: str
    place: LineWords
    by: str
    led: LineWords
    text: str
    here: bool
    main: bool
    line: str | None
    at: str | None
    numbers: str

    @property
    def summary(self) -> str:
        """Behind the process, in a headline."""
        where = "" if self.main else " on a thread of its own" if self.here else " on another thread"
        at = f", below {self.at}" if self.at is not None else ""
        what = "died within" if self.here else "died during"
        why = f": {self.by} ({self.led}) had given up at `{self.text}`" if self._is_check else ""
        return f"{what} exit(), which {self.function} ({self.place}) called{where}{why}{at}"

    @property
    def _is_check(self) -> bool:
        """Whether another function gave up, and called one that ends the process."""
        return self.led != self.place

    @property
    def advice(self) -> str:
        """What to look at first, and why exit() is not the way."""
        passes = f" Then check what {self.line} passes{self.numbers}." if self.line is not None else ""
        first = (
            f"Begin with what {self.led} asks for (`{self.text}`): it was not so, and stderr may have the details, "
            "written before the crash."
            if self._is_check
            else f"Look at why {self.function} ends the process at {self.place} (`{self.text}`)."
        )
        return (
            f"{first}{passes} The crash itself only followed: exit() ends what other threads still use. Throw an "
            "exception, or return an error, in place of exit()."
        )

    @property
    def lines(self) -> tuple[tuple[str | None, int | None], ...]:
        """Those of C."""
        return ((self.place.file, self.place.line), (self.led.file, self.led.line))


class _Line(msgspec.Struct, frozen=True):
    function: str
    file: str
    number: int
    lines: list[str]


def native_exit(view: ProcessView) -> NativeExit | None:
    """None where Python ended the process, or the source of what called exit() is not known."""
    crash = view.crash
    if crash is None:
        return None
    pid = view.process.snapshot.pid
    stacks = [(True, crash.tid == pid, own_frames(view))]
    stacks += [(False, item.tid == pid, [*map(native_frame, item.native_stack)]) for item in crash.threads]
    for here, main, frames in stacks:
        found = [*_given_up(frames)]
        if found:
            first = found[0]
            led = next((item for item in found if not _REPORTS.search(item.function)), first)
            if here and led == first and _runs_own(frames):
                return None  # a destructor of the program's own may be at fault itself
            line = next(iter(program_frames(view)), None)
            given = passed(view) if line is not None else None
            waits = line if here and not main else None
            return NativeExit(
                first.function,
                line_in(first.file, first.number, None),
                led.function,
                line_in(led.file, led.number, None),
                _text(led),
                here,
                main,
                line_words(view) if line is not None else None,
                place_words(waits) if waits is not None else None,
                f": {given.words}" if given is not None and given.numbers else "",
            )
    return None


def _runs_own(frames: Sequence[NativeFrame]) -> bool:
    """Whether exit() came to code of the program's own."""
    at = next((n for n, frame in enumerate(frames) if frame.function in _EXITS), 0)
    return any(is_of_own_image(frame) and is_own_path(frame.image) for frame in frames[:at])


def _given_up(frames: Sequence[NativeFrame]) -> Iterator[_Line]:
    """The lines of the program's own that lead to exit(), the innermost first."""
    places = [
        at
        for at, frame in enumerate(frames)
        if frame.function in _EXITS and _LIBC.match(image_name(frame.image)) is not None
    ]
    if not places:
        return
    for frame in frames[places[-1] + 1 :][:_MOST]:
        if not is_of_own_image(frame) or not is_own_path(frame.image):
            return
        for line, lines in own_sources(frame):
            name = function_words(line.function or frame.function or "?")
            yield _Line(name, line.file or "", line.line or 0, lines)


def _text(line: _Line) -> str:
    """The statement that begins at a line, up to the end of its first call."""
    text = "\n".join(line.lines[line.number - 1 : line.number + _MOST])
    opens = text.split("\n")[0].find("(")
    end = closing(text, opens) if opens >= 0 else None
    return shortened(" ".join((text[: end + 1] if end is not None else text.split("\n")[0]).split()), _QUOTED)
