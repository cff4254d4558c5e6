"""A file of another kind than the function reads that was given it: by how it begins, and the line that chose it."""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import size_words
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.opened import OpenedFile, opened
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_READS = {  # kinds as the recorder names them; a pickle may be older than any magic number
    "torch.load": ("zip", "pickle"),
    "pickle.load": ("pickle",),
    "json.load": ("json",),
}
_KINDS = {
    "json": ("JSON text", "json.load()"),
    "gzip": ("a gzip file", "gzip.open()"),
    "hdf5": ("an HDF5 file", "h5py.File()"),
    "numpy": ("a NumPy array", "np.load()"),
    "zip": ("a zip archive", "torch.load() or zipfile"),
    "pickle": ("a pickle", "pickle.load() or torch.load()"),
}
_UNPACKERS = ("gzip", "bz2", "lzma", "zipfile", "tarfile", "zstandard", "codecs")
_TYPES = ("UnpicklingError", "JSONDecodeError", "UnicodeDecodeError")


class _OtherKind(msgspec.Struct, frozen=True):
    """`reader`: `torch.load`. `given`: what it was passed."""

    file: OpenedFile
    reader: str
    given: ast.expr


def other_kind(at: FailingLine) -> str | None:
    """Which file it was, where that came from, and what reads it."""
    found = _found(at)
    if found is None:
        return None
    own = _KINDS[found.file.kind or ""][1]
    return (
        f"{_subject(found)}. See what makes `{source(found.given)}`{at.came(found.given)}: choose the files by their "
        f"suffix where a folder has several kinds; if this one is meant, read it by {own}."
    )


def other_kind_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _found(at)
    return _subject(found) if found is not None else None


def _subject(found: _OtherKind) -> str:
    what, size = _KINDS[found.file.kind or ""][0], size_words(found.file.size or 0)
    return f"{found.file.name} ({size}) begins as {what}, which {found.reader}() does not read"


def _found(at: FailingLine) -> _OtherKind | None:
    file = opened(at.values) if at.kind in _TYPES and at.node is not None else None
    if file is None or at.node is None or file.kind not in _KINDS:
        return None
    if file.holder is not None and file.holder not in names_in(at.node):
        return None
    calls = [item for item in nodes_of(at.node) if isinstance(item, ast.Call) and ast.unparse(item.func) in _READS]
    if len(calls) != 1 or not calls[0].args:
        return None
    reader = ast.unparse(calls[0].func)
    if not _reads_from_begin(at, file, reader, calls[0].args[0]):
        return None
    return _OtherKind(file, reader, calls[0].args[0]) if file.kind not in _READS[reader] else None


def _reads_from_begin(at: FailingLine, file: OpenedFile, reader: str, given: ast.expr) -> bool:
    """Whether it is given the path, or what open() made of it, and nothing of it was read before: no gzip.open()."""
    name = variable(given)
    opens = given if isinstance(given, ast.Call) else _opener(at, name)
    if opens is None or called_name(opens) != "open":  # of torch.load(), which may be given a path
        return file.holder is None and reader == "torch.load"
    if ast.unparse(opens.func).rpartition(".")[0] in _UNPACKERS:
        return False
    used = [item for item in nodes_of(at.scope) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load)]
    return not any(item.id == name and opens.lineno <= item.lineno < at.line for item in used)


def _opener(at: FailingLine, name: str | None) -> ast.Call | None:
    """The last call above that the variable was set to, by `=` or `with`."""
    bound = lines_that_bind(at.scope, name) if name is not None else []
    calls = [value for _, value in bound if isinstance(value, ast.Call) and value.lineno <= at.line]
    return max(calls, key=lambda item: item.lineno, default=None)
