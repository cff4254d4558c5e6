"""A file that a dataset opened before its workers were forked: they share one place in it, and move it for each other.

What one of them reads is then of another place: an archive or a format complains of damage that the file does not have.
"""

from __future__ import annotations

import ast
import re

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import class_around, class_named

_DAMAGED_TYPE = re.compile(
    r"BadZipFile|BadGzipFile|UnpicklingError|ReadError|HeaderError|LZMAError|DatabaseError|EOFError"
)
_DAMAGED = re.compile(
    r"Bad CRC|Error -\d+ while decompressing|incorrect header check|invalid (?:block|stored|distance|code)|Bad magic"
    r"|[Uu]nexpected end|[Tt]runcated|unpack requires a buffer|malformed|cannot reshape array of size"
    r"|Can't (?:\w+ )?read data|filter returned failure|wrong B-tree|bad object header|addr overflow|MDB_\w+"
)
_OPENS = re.compile(
    r"^(?:(?:np|numpy)\.load|(?:io\.|gzip\.|bz2\.|lzma\.|codecs\.)?open|h5py\.File|(?:zipfile\.)?ZipFile|tarfile\.open"
    r"|(?:tarfile\.)?TarFile|sqlite3\.connect|lmdb\.open|rasterio\.open|netCDF4\.Dataset|cv2\.VideoCapture)$"
)
_SPAWNED = re.compile(r"['\"](?:spawn|forkserver)['\"]")


def shared_file(at: FailingLine) -> str | None:
    """Of an error in what a DataLoader's worker read."""
    if at.dataset is None or not (_DAMAGED_TYPE.search(at.kind) or _DAMAGED.search(at.message)):
        return None
    found = _opened(at)
    if found is None or not _several_workers(at):
        return None
    name, line, text = found
    return (
        f"The workers share the open file of `{name}` ({at.here(line)}: `{text}`), which __init__() opened before they "
        "were forked: one may have moved its place while another read, so that the file itself may be whole "
        "(num_workers=0 shows it). Open it in each worker, at the first __getitem__(), or read all of it in __init__()."
    )


def _opened(at: FailingLine) -> tuple[str, int, str] | None:
    """The one attribute that the line reads and that __init__() alone has opened."""
    owner = class_around(at.tree, at.scope) or class_named(at.tree, at.dataset or "")
    methods = [item for item in owner.body if isinstance(item, ast.FunctionDef)] if owner is not None else []
    read = {variable(item) for item in ast.walk(at.statement or ast.Pass()) if isinstance(item, ast.Attribute)}
    found = []
    for name in sorted(name for name in read if name is not None and name.startswith("self.")):
        made = [(method.name, line, value) for method in methods for line, value, _ in bindings_of(method, name)]
        if len(made) != 1 or made[0][0] != "__init__" or at.shape(name) is not None:
            continue
        _, line, value = made[0]
        if isinstance(value, ast.Call) and _OPENS.match(ast.unparse(value.func)):
            mapped = any(item.arg in ("mmap_mode", "driver") for item in value.keywords)
            found += [] if mapped else [(name, line, source(value))]
    return found[0] if len(found) == 1 else None


def _several_workers(at: FailingLine) -> bool:
    """Unless a loader of the program says that it has one, or starts them anew."""
    for tree in at.files.values():
        if _SPAWNED.search(ast.unparse(tree)):
            return False
        for item in ast.walk(tree):
            if isinstance(item, ast.Call) and called_name(item) == "DataLoader":
                told = keyword_value(item, "num_workers")
                if isinstance(told, ast.Constant) and told.value == 1:
                    return False
    return True
