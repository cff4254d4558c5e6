"""Whether a process died inside of a call that writes a file, and which one it was writing.

torch.save() names the records of its archive after the file: `recipe_state/data/25` of recipe_state.pt. While a record
is written, that name lies in what the registers point to.
"""

from __future__ import annotations

import ast
import os
import re

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.lifetime.variables import python_frames
from pytracer.analyze.evidence.native.native_stack import functions
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.view import ProcessView

_OF_TORCH = "torch/serialization.py"
_WRITES = "writeRecord"
_OF_STREAM = "archive"  # what torch calls it where it is given no path, or one that is not ASCII
_RECORD = re.compile(rb"([\w.+@=,~ -]{1,200})/(?:data/\d+|data\.pkl|byteorder|version|\.data/serialization_id)")


def was_writing(view: ProcessView, file: str, call: ast.Call, path: str) -> bool:
    """Whether a crashed process was in that call: not in what makes its arguments, nor writing another archive."""
    if view.crash is None:
        return False
    frames = [*python_frames(view)]
    for place, frame in enumerate(frames):
        if frame.file == file and call.lineno <= (frame.line or 0) <= (call.end_lineno or call.lineno):
            inner = frames[place - 1].file or "" if place else None
            if inner is None:
                return True
            if not is_library_file(inner) or (_is_torchs(call) and not inner.endswith(_OF_TORCH)):
                return False
            name = _archive_name(view)
            return name is None or not _is_torchs(call) or name == _archive_of(path)
    return False


def has_its_name(view: ProcessView, call: ast.Call, path: str, texts: set[str]) -> bool:
    """Whether the archive that torch.save() was writing has the name of the file, where the source does not tell.

    `texts`: constants of the path, among them no folder that the file does not lie in.
    """
    elsewhere = any(item.startswith("/") and not path.startswith(item) for item in texts)
    return _is_torchs(call) and not elsewhere and _archive_name(view) == _archive_of(path)


def _archive_name(view: ProcessView) -> str | None:
    """Of the archive that the crashed thread was writing a record of; None where it is not known."""
    if view.crash is None or not any(_WRITES in name for name in functions(view)):
        return None
    found = {match[1] for item in view.crash.memory for match in _RECORD.finditer(item.content)}
    name = found.pop().decode("ascii", "replace") if len(found) == 1 else None
    return name if name != _OF_STREAM else None


def _archive_of(path: str) -> str:
    """`recipe_state` of `/data/recipe_state.pt`, as torch's writer names the archive."""
    return os.path.basename(path).rpartition(".")[0] or os.path.basename(path)


def _is_torchs(call: ast.Call) -> bool:
    func = call.func
    return called_name(call) == "save" and isinstance(func, ast.Attribute) and ast.unparse(func.value) == "torch"
