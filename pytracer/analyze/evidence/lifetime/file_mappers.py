"""The line of the program that mapped a file: `np.load(mmap_mode="r")`, `np.memmap()`, `torch.load(mmap=True)`.

Of several lines, the one whose arguments name the file; nothing where that is more than one.
"""

from __future__ import annotations

import ast
import os

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.file_writers import names_file, texts_of
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.path_ends import may_be
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Storage
from pytracer.report.job import PythonFrame

_OPTIONS = ("mmap_mode", "mmap", "memory_map")
_MAPS = ("memmap", "open_memmap", "from_file", "mmap", "memory_map")
# Libraries that map whatever they open, of files with that end: given the file, or the folder that it lies in.
_OF_FOLDER = {"from_pretrained": ".safetensors", "load_from_disk": ".arrow"}
_OF_FILE = {"load_file": ".safetensors", "safe_open": ".safetensors"}
_READ_ONLY = ("ACCESS_READ", "PROT_READ", "'r'")
_SHARES = ("from_numpy", "as_tensor", "frombuffer", "asarray", "from_dlpack")
_QUOTED = 60
_PERMISSIONS = {"r": "r--s", "r+": "rw-s", "w+": "rw-s", "c": "rw-p"}  # numpy 2.x, _core/memmap.py


class FileMapper(msgspec.Struct, frozen=True):
    """`call` maps the file at `place` (`line 13`). `mode`: what makes it read-only, as it is written."""

    call: ast.Call
    place: str
    text: str
    mode: str | None

    @property
    def option(self) -> str | None:
        """`mmap=True`: without which nothing is mapped."""
        given = next((item for item in self.call.keywords if item.arg in _OPTIONS), None)
        return ast.unparse(given) if given is not None else None


def file_mapper(view: ProcessView, path: str) -> FileMapper | None:
    """None where no line of the program does, or more than one may."""
    found = _mapping(view, path)
    if len(found) > 1:
        found = [item for item in found if _names(item[1], item[2], _meant(item[2], path))]
    if len(found) != 1:
        return None
    file, _, call = found[0]
    text = line_text(view.process.snapshot, PythonFrame(file=file, line=call.lineno)) or ""
    return FileMapper(call, place_of(view, file, call.lineno), shortened(text, _QUOTED), _mode(call))


def mapping_calls(view: ProcessView, path: str) -> list[tuple[str, ast.Call]]:
    """All lines of the program that may have mapped it as it was mapped where the process crashed, by their files."""
    mapping = view.place.mapping if view.place is not None else None
    permissions = mapping.permissions if mapping is not None else None
    return [(file, call) for file, _, call in _mapping(view, path) if _fits(call, permissions)]


def _mapping(view: ProcessView, path: str) -> list[tuple[str, ast.Module, ast.Call]]:
    return [
        (file, tree, node)
        for file, tree in program_files(view.process.snapshot, program_frames(view)).items()
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and (_maps(node) or _opens(node, path))
        if not node.args or may_be(tree, node, node.args[0], _meant(node, path))
    ]


def _fits(call: ast.Call, permissions: str | None) -> bool:
    """Whether NumPy maps a file so in this mode; `r--s` is mode="r"."""
    given = next((item.value for item in call.keywords if item.arg in ("mode", "mmap_mode")), None)
    mode = given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else ""
    return permissions is None or _PERMISSIONS.get(mode.removesuffix("b"), permissions) == permissions


def _maps(call: ast.Call) -> bool:
    given = {item.arg: item.value for item in call.keywords if item.arg in _OPTIONS}
    none = all(isinstance(item, ast.Constant) and item.value in (None, False) for item in given.values())
    return called_name(call) in _MAPS or (bool(given) and not none)


def _opens(call: ast.Call, path: str) -> bool:
    name = called_name(call) or ""
    end = _OF_FOLDER.get(name) or _OF_FILE.get(name)
    return end is not None and path.endswith(end)


def _meant(call: ast.Call, path: str) -> str:
    """What the call is given for the file to be mapped: it, or its folder."""
    return os.path.dirname(path) if called_name(call) in _OF_FOLDER else path


def _mode(call: ast.Call) -> str | None:
    """`mmap_mode='r'`, `access=mmap.ACCESS_READ`; None where it may be written."""
    for item in (*call.keywords, *call.args[1:]):
        value = item.value if isinstance(item, ast.keyword) else item
        if ast.unparse(value).rpartition(".")[2] in _READ_ONLY:
            return ast.unparse(item) if isinstance(item, ast.keyword) else ast.unparse(value)
    return None


def _names(tree: ast.Module, call: ast.Call, path: str) -> bool:
    texts, _ = texts_of(tree, call.lineno, passed_values(call))
    return names_file(texts, path) is not None


def copied_instead(view: ProcessView, storage: Storage) -> tuple[str, str] | None:
    """`line 20` and `torch.from_numpy(self.features[index].copy())`: a tensor of its own, where one shares memory."""
    site = storage.allocated_by.place
    frame = PythonFrame(file=site.file, line=site.line) if site is not None else None
    own = frame is not None and not is_library_file(frame.file)
    text = line_text(view.process.snapshot, frame) if own and frame is not None else None
    try:
        tree = ast.parse((text or "").strip())
    except (SyntaxError, ValueError):
        return None
    calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call) and called_name(item) in _SHARES]
    if len(calls) != 1 or len(calls[0].args) != 1 or frame is None:
        return None
    if called_name(calls[0]) == "from_dlpack":  # what it is given need not have copy()
        return place_of(view, frame.file, frame.line), f"{ast.unparse(calls[0])}.clone()"
    given = ast.unparse(calls[0].args[0])
    return place_of(view, frame.file, frame.line), f"{ast.unparse(calls[0].func)}({given}.copy())"
