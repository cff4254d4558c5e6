"""A function of the program's own extension that returns None or another lasting object without a reference of its own.

`return Py_None;` gives away a reference that the function does not own: each call takes one from the object.
"""

from __future__ import annotations

import os
import re

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.native_stack import functions
from pytracer.analyze.evidence.own_code.c_text import function_around
from pytracer.analyze.evidence.own_code.own_libraries import is_own_path
from pytracer.analyze.evidence.own_code.source_files import sources_beside
from pytracer.analyze.evidence.slicing.callers import calls_named
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.view import ProcessView

_NOTICED = ("_Py_FatalRefcountErrorFunc", "none_dealloc", "bool_dealloc", "notimplemented_dealloc")
_RETURNS = Pattern(r"\breturn\s+(?P<object>Py_None|Py_True|Py_False|Py_NotImplemented|Py_Ellipsis)\s*;")
_OWNS = r"Py_X?INCREF\s*\(\s*{}\s*\)|Py_X?NewRef\s*\(\s*{}\s*\)"
_MOST = 3


class BorrowedReturn(msgspec.Struct, frozen=True):
    """`function` returns `object` at `place`; `calls`: the lines of the program that call it."""

    function: str
    object: str
    place: str
    calls: tuple[str, ...]

    @property
    def summary(self) -> str:
        """Behind the headline."""
        calls = f", which {list_words(self.calls, _MOST)} calls," if self.calls else ""
        return f"{self.function}(){calls} returns {self.object} without a reference ({self.place})"

    @property
    def advice(self) -> str:
        """The change to make."""
        short = self.object.removeprefix("Py_").upper()
        macro = f"`Py_RETURN_{short};`" if short != "ELLIPSIS" else "`return Py_NewRef(Py_Ellipsis);`"
        return (
            f"Write {macro} at {self.place}, or Py_INCREF({self.object}) before it: {self.function}() gives away a "
            f"reference that it does not own, so that each call takes one from {self.object.removeprefix('Py_')}."
        )


def borrowed_return(view: ProcessView) -> BorrowedReturn | None:
    """The only one in the sources of the program's libraries; None where the interpreter noticed something else."""
    crash = view.crash
    if crash is None or not any(part in name for name in functions(view) for part in _NOTICED):
        return None
    found = {}
    for path in sorted({item.path for item in crash.images if is_own_path(item.path)}):
        for file, lines in sources_beside(path):
            text = "\n".join(lines)
            for match in _RETURNS.finditer(text):
                around = function_around(text, match.start())
                owns = re.compile(_OWNS.replace("{}", match["object"]))
                if around is not None and not owns.search(text, around.body, match.start()):
                    place = f"{os.path.basename(file)}:{text.count(chr(10), 0, match.start()) + 1}"
                    found[place] = (around.name, match["object"])
    if len(found) != 1:
        return None
    place, (function, thing) = found.popitem()
    files = program_files(view.process.snapshot, program_frames(view))
    calls = tuple(place_of(view, path, call.lineno) for path, _, call in calls_named(files, function))
    return BorrowedReturn(function, thing, place, calls)
