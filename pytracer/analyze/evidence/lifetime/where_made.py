"""The line that made a tensor: where its storage was allocated, or where memory of others became a tensor.

A reader who is told that a value of a tensor is wrong asks next where that tensor came from. The line is the program's
own; where only a library's was recorded, nothing is said.
"""

from __future__ import annotations

from pytracer._library_files import is_library_file
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.origins import is_borrowed
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import CallSite, PythonFrame, Storage

_QUOTED = 70
_OWNERS = {"NUMPY": "a NumPy array", "BUFFER": "a buffer", "DLPACK": "another library (DLPack)"}


def place_of(view: ProcessView, file: str | None, line: int | None) -> LineWords:
    """`line 12`; with its file where that is not the one of the failing line."""
    own = next(iter(program_frames(view)), None)
    return line_in(file, line, own.file if own is not None else "")


def line_that_made(view: ProcessView, base: int, *, also_failing: bool = False, quote: bool = True) -> LineWords | None:
    """`` line 11 in prune (`mapping = torch.full(...)`) ``; None where that is not known.

    `also_failing`: also where it is the line that fails. `quote`: with its text.
    """
    storage = view.space.live_around(base)
    frame = own_line(storage.allocated_by) if storage is not None and not storage.older else None
    failing = next(iter(program_frames(view)), None)
    if frame is None:
        return None
    if not also_failing and failing is not None and (frame.file, frame.line) == (failing.file, failing.line):
        return None
    text = line_text(view.process.snapshot, python_frame(frame)) if quote else None
    quoted = f" (`{shortened(text, _QUOTED)}`)" if text else ""
    return place_of(view, frame.file, frame.line).then(f" in {frame.function}{quoted}")


def made_words(view: ProcessView, base: int, name: str) -> str | None:
    """A sentence: what the memory of `name` is, and since which line. `name`: as the sentence begins."""
    storage, line = view.space.live_around(base), line_that_made(view, base)
    if storage is None or line is None:
        return None
    owner = _owner(storage)
    if owner is None:
        return f"The memory of {name} was allocated at {line}."
    return f"{name} has the memory of {owner} since {line}: its values are those that were put there, before or since."


def made_briefly(view: ProcessView, base: int) -> str:
    """` (made at line 25 in unpack)` or ` (made by SelectBackward0)`, of a storage without a name; else nothing."""
    storage, line = view.space.live_around(base), line_that_made(view, base, quote=False)
    if line is not None:
        return f" (made at {line})"
    node = storage.allocated_by.node if storage is not None and not storage.older else None
    return f" (made by {node})" if node else ""


def is_shared_with_others(view: ProcessView, base: int) -> bool:
    """Whether something that is not torch may write into the tensor's memory."""
    storage = view.space.live_around(base)
    return storage is not None and _owner(storage) is not None


def _owner(storage: Storage) -> str | None:
    return _OWNERS.get(storage.origin or "") if is_borrowed(storage) else None


def own_line(site: CallSite) -> PythonFrame | None:
    """The program's line of an allocation or free; None where only a library's is on record."""
    known = (site.caller, site.python, *site.stack)
    return next((item for item in known if item is not None and item.line and not is_library_file(item.file)), None)
