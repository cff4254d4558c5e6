"""A static object of the program's extension that is destroyed while the process exits, after Python has ended.

exit() destroys the static objects of all libraries, after the interpreter was finalized: a Python object that one of
them holds can no longer be released. The library is that of the destructor; its source says which variable it is.
"""

from __future__ import annotations

import os

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import function_words, list_words
from pytracer.analyze.evidence.native.fault_function import is_own_frame
from pytracer.analyze.evidence.native.native_stack import image_name, is_at_exit, own_frames
from pytracer.analyze.evidence.own_code.own_libraries import is_own_path
from pytracer.analyze.evidence.own_code.source_files import sources_beside
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

_OF_PYTHON = Pattern(r"^(Py|_Py)|_dealloc$|^(subtype|object|type)_|^gc")
_HOLDER = r"(?:py|pybind11)::(?!(?:module|arg|init|class|return|gil|call|buffer_info)\w*\b)\w+"
_STATIC = Pattern(
    rf"^(?P<local>\s*static\s+|(?=\w)(?:inline\s+|static\s+)*)(?P<type>(?:std::\w+\s*<[^;=(]*)?{_HOLDER}[^;=({{]*?)\s+"
    r"(?P<name>\w+)\s*(?=[;={(])(?![^;{]*\)\s*\{)"
)
_MOST = 2


class EndedStatic(msgspec.Struct, frozen=True):
    """`statics`: `` `static py::object stored` (main.cpp:9) ``, those of the source that hold Python objects.

    `leaking`: how the only one is written so that nothing destroys it.
    """

    library: str
    statics: tuple[str, ...]
    leaking: str | None

    @property
    def what(self) -> str:
        """The headline's reason."""
        of = f", likely {self.statics[0]}," if len(self.statics) == 1 else ""
        return f"a static object of {self.library}{of} released a Python object at exit, after Python had ended"

    @property
    def advice(self) -> str:
        """The change to make."""
        named = list_words(self.statics) if self.statics else f"the static objects of {self.library}"
        how = f" (`{self.leaking}`)" if self.leaking is not None else ""
        return (
            f"Never destroy {named}: write a pointer or reference that is not deleted instead{how}, or empty it before "
            "Python ends, in a function that the module registers by atexit. The program's own work was done."
        )


def ended_static(view: ProcessView) -> EndedStatic | None:
    """None unless exit() destroyed an object of the program's library on this thread, and that called Python."""
    crash, frames = view.crash, own_frames(view)
    if crash is None or crash.python_stack or not is_at_exit(view):
        return None
    at = next((place for place, frame in enumerate(frames) if _is_own(frame.image)), None)
    if at is None:
        return None
    inner = [frame.function or "" for frame in frames[:at]]
    calls_python = any(_OF_PYTHON.search(function_words(name)) for name in inner)
    destroys = any("::~" in (frame.function or "") for frame in frames[at:]) or any("::~" in name for name in inner)
    if not calls_python or not destroys:
        return None
    path = frames[at].image or ""
    found = [
        (
            f"static auto &{match['name']} = *new {match['type']}(...);",
            f"`{' '.join(match[0].split())}` ({os.path.basename(file)}:{number})",
        )
        for file, lines in sources_beside(path)
        for number, text in enumerate(lines, 1)
        if (match := _STATIC.match(text)) is not None
    ]
    if len(found) > _MOST:
        found = []
    return EndedStatic(image_name(path), tuple(words for _, words in found), found[0][0] if len(found) == 1 else None)


def _is_own(image: str | None) -> bool:
    return is_own_path(image) and is_own_frame(NativeFrame(image=image))
