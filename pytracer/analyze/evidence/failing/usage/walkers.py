"""RecursionError below a library that walks through data: what nests that deep, and the line that adds a level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

from pytracer._library_files import is_library_file
from pytracer._text import shortened
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.recursions import begin
from pytracer.analyze.evidence.native.grown_trees import rounds_words
from pytracer.analyze.evidence.native.nesting import (
    JSON,
    PICKLE,
    Nesting,
    link_words,
    linking_line,
    of_python,
    only_wrap,
)
from pytracer.analyze.evidence.own_code.own_libraries import frames_that_allocated
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.wraps import wraps_of_library
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, PythonFrame

_OFTEN = 3  # times that a function is on the stack
_QUOTED = 60
_MESSAGES = (("while pickling an object", PICKLE), ("while encoding a JSON object", JSON))
_SAVE = "torch/serialization.py"
_WALKS_MODULES = frozenset(
    {"train", "_apply", "apply", "named_modules", "modules", "state_dict", "load", "zero_grad", "__repr__", "to"}
)
_MODULE_CYCLE = (
    "nn.Module goes through its children here and comes to the same ones again: most likely a module that is set as an "
    "attribute of its own child (`self.parent = parent`), which makes it a child of that. Keep such a link out of "
    "sight: `self.parent = [parent]`, a weakref, or object.__setattr__(self, 'parent', parent)."
)
_DELAYS = "A higher recursion limit only delays it."


def walked_too_deep(at: FailingLine) -> str | None:
    """As too_deep()."""
    return too_deep(at.snapshot, at.exception, at.stack)


def too_deep(snapshot: Snapshot, exception: ExceptionReport, stack: Sequence[PythonFrame]) -> str | None:
    """Of a RecursionError that struck in a library, below a line of the program or too deep for one to be recorded."""
    if (exception.type or "").rpartition(".")[2] != "RecursionError":
        return None
    above = [*takewhile(lambda frame: is_library_file(frame.file), stack)]
    counts = Counter((frame.file, frame.function) for frame in above)
    often = [frame for frame in above if counts[frame.file, frame.function] >= _OFTEN]
    frames = [frame for frame in stack if not is_library_file(frame.file)] or frames_that_allocated(snapshot)
    walker = _walker(exception, above, often)
    shown = next((frame.file for frame in stack if not is_library_file(frame.file)), None)
    if walker is not None:
        return _of_walker(snapshot, walker, frames, shown)
    return _of_objects(snapshot, often, frames, shown)


def _walker(exception: ExceptionReport, above: Sequence[PythonFrame], often: Sequence[PythonFrame]) -> Nesting | None:
    message = exception.message or ""
    told = next((item for words, item in _MESSAGES if message.endswith(words)), None)
    if told is not None or often:
        return told or of_python(often)
    saves = any((frame.file or "").endswith(_SAVE) and frame.function == "_save" for frame in above)
    return PICKLE if saves else None


def _of_walker(snapshot: Snapshot, walker: Nesting, frames: Sequence[PythonFrame], shown: str | None) -> str | None:
    files = program_files(snapshot, frames)
    link, wrap = linking_line(files, walker), only_wrap(files)
    if link is not None and (wrap is None or link.owner is not None):
        words = link_words(walker, link, _place(link.file, link.line, shown))
        return f"{words}{rounds_words(files, link, shown, brief=True)}. {_DELAYS}"
    if wrap is not None:
        file, line = wrap
        text = line_text(snapshot, PythonFrame(file=file, line=line)) or ""
        return (
            f"{walker.words}, and {_place(file, line, shown)} may add one in each round of a loop: "
            f"`{shortened(text, _QUOTED)}`. {walker.advice()}. {_DELAYS}"
        )
    if walker == PICKLE:
        return None  # that is a known crash
    return f"{walker.words}, deeper than the recursion limit. {walker.advice()}. {_DELAYS}"


def _of_objects(
    snapshot: Snapshot, often: Sequence[PythonFrame], frames: Sequence[PythonFrame], shown: str | None
) -> str | None:
    """Objects of a class of the library, put around each other by the program: Subset, Sequential."""
    names = {function.partition(".")[0] for frame in often if "." in (function := frame.function or "")}
    files = program_files(snapshot, frames)
    found = {(name, wrap) for name in names for wrap in wraps_of_library(files, [name])}
    if not found and often and all(_walks_modules(frame) for frame in often):
        return _MODULE_CYCLE
    if len(found) != 1:
        return None
    name, wrap = found.pop()
    place = _place(wrap.file, wrap.line, shown)
    return (
        f"{name} is nested in itself, and {place} adds a level {wrap.when}. {begin(place)} "
        f"(`{shortened(wrap.text, _QUOTED)}`) puts one around the last: make one of all the parts (a flat list, the "
        f"indices of the first one), or keep the first one apart and wrap that each time. {_DELAYS}"
    )


def _walks_modules(frame: PythonFrame) -> bool:
    """train(), to(), state_dict() and others that go through the children of a module."""
    name = (frame.function or "").rpartition(".")[2]
    return (frame.file or "").endswith("torch/nn/modules/module.py") and name in _WALKS_MODULES


def _place(file: str, line: int, shown: str | None) -> str:
    return line_in(file, line, shown)
