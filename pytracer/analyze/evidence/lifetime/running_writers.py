"""Whether a process died inside of a call that writes a file, and which one it was writing.

torch.save() names the records of its archive after the file: `recipe_state/data/25` of recipe_state.pt. While a record
is written, that name lies in what the registers point to.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Sequence

from pytracer.analyze.address_space.regions import mapping_at
from pytracer.analyze.evidence.lifetime.variables import python_frames
from pytracer.analyze.evidence.native.native_stack import functions
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import spans, statement_at
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Mapping, PythonFrame

_TORCHS = "torch/serialization.py"
# What is written in Python has a frame of its own: where its file lies, and its name where it is another one.
_WRITTEN = {
    "save": "numpy/lib/", "savez": "numpy/lib/", "memmap": "numpy/", "open_memmap": "numpy/lib/", "open": "/pathlib",
    "write_bytes": "/pathlib", "write_text": "/pathlib", "copy": "/shutil.py", "copyfile": "/shutil.py",
    "copy2": "/shutil.py", "copytree": "/shutil.py", "File": "/h5py/", "save_file": "/safetensors/",
    "write_feather": "/pyarrow/", "write_table": "/pyarrow/", "to_feather": "/pandas/", "to_parquet": "/pandas/",
}  # fmt: skip
_MADE_BY = {"memmap": "__new__", "File": "__init__"}
_COMPUTES = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript)
_OF_PATH = ("join", "Path", "str", "fspath")  # read no memory that is mapped
_WRITES = "writeRecord"
_OF_STREAM = "archive"  # what torch calls it where it is given no path, or one that is not ASCII
_RECORD = re.compile(rb"([\w.+@=,~ -]{1,200})/(?:data/\d+|data\.pkl|byteorder|version|\.data/serialization_id)")


def was_writing(view: ProcessView, tree: ast.Module, file: str, call: ast.Call, path: str) -> bool:
    """Whether a crashed process was in that call: not in what makes its arguments, nor writing another archive."""
    if view.crash is None:
        return False
    frames = [*python_frames(view)]
    for place, frame in enumerate(frames):
        if frame.file == file and spans(call, frame.line or 0):
            inner = [item for item in frames[:place] if not (item.file or "").startswith("<")]
            if not (_is_frame_of(call, inner[-1]) if inner else _runs_in_c(tree, call)):
                return False
            name = _archive_name(view)
            return name is None or not _is_torchs(call) or name == _archive_of(path)
    return False


def _is_frame_of(call: ast.Call, frame: PythonFrame) -> bool:
    """Whether it is that of the function that the call is of, not of one that makes its arguments."""
    name = called_name(call) or ""
    written = _TORCHS if _is_torchs(call) else _WRITTEN.get(name)
    function = (frame.function or "").rpartition(".")[2]
    return written is not None and written in (frame.file or "") and function in (name, _MADE_BY.get(name, name))


def _runs_in_c(tree: ast.Module, call: ast.Call) -> bool:
    """Whether nothing but the call, or a method of the file that it opens, can have run: no argument is made first."""
    if not _is_c(call):
        return False
    opens = called_name(call) == "open"
    around = statement_at(tree, call.lineno)
    body = {id(part) for item in getattr(around, "body", ()) for part in nodes_of(item)}
    for item in nodes_of(around) if around is not None else ():
        if id(item) in body or item is call or not isinstance(item, _COMPUTES):
            continue
        of_opened = opens and isinstance(item, ast.Call) and any(part is call for part in nodes_of(item.func))
        if not of_opened and not (isinstance(item, ast.Call) and called_name(item) in _OF_PATH):
            return False
    return True


def _is_c(call: ast.Call) -> bool:
    func = call.func
    name = called_name(call)
    return name in ("tofile", "truncate") or (name == "open" and isinstance(func, ast.Name))


def has_its_name(view: ProcessView, call: ast.Call, path: str) -> bool:
    """Whether the archive that torch.save() was writing has the name of the file, where the source does not tell."""
    return _is_torchs(call) and _archive_name(view) == _archive_of(path)


def _archive_name(view: ProcessView) -> str | None:
    """Of the archive that the crashed thread was writing a record of; None where it is not known."""
    if view.crash is None or not any(_WRITES in name for name in functions(view)):
        return None
    found = {
        match[1]
        for item in view.crash.memory
        for match in _RECORD.finditer(item.content)
        if not _is_of_file(view.crash.mappings, item.addr + match.start())  # an archive that was read
    }
    name = found.pop().decode("ascii", "replace") if len(found) == 1 else None
    return name if name != _OF_STREAM else None


def _is_of_file(mappings: Sequence[Mapping], addr: int) -> bool:
    mapping = mapping_at(mappings, addr)
    return mapping is not None and mapping.path.startswith("/")


def _archive_of(path: str) -> str:
    """`recipe_state` of `/data/recipe_state.pt`, as torch's writer names the archive."""
    return os.path.basename(path).rpartition(".")[0] or os.path.basename(path)


def _is_torchs(call: ast.Call) -> bool:
    func = call.func
    return called_name(call) == "save" and isinstance(func, ast.Attribute) and ast.unparse(func.value) == "torch"
