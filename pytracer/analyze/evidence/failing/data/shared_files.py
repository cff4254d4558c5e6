"""A file that a dataset opened before its workers were forked: they share one place in it, and move it for each other.

What one of them reads is then of another place: an archive or a format complains of damage that the file does not have.
"""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.data.opened_files import Opened, opened_file
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_DAMAGED_TYPE = Pattern(
    r"BadZipFile|BadGzipFile|UnpicklingError|ReadError|HeaderError|LZMAError|DatabaseError|EOFError"
)
_DAMAGED = Pattern(
    r"Bad CRC|Error -\d+ while decompressing|incorrect header check|invalid (?:block|stored|distance|code)|Bad magic"
    r"|[Uu]nexpected end|[Tt]runcated|unpack requires a buffer|malformed|cannot reshape array of size"
    r"|Can't (?:\w+ )?read data|filter returned failure|wrong B-tree|bad object header|addr overflow|MDB_\w+"
)
_LMDB, _READERS_FULL = "lmdb.open", Pattern(r"ReadersFull|MDB_READERS_FULL")
_SPAWNED = Pattern(r"['\"](?:spawn|forkserver)['\"]")


def shared_file(at: FailingLine) -> str | None:
    """Of an error in what a DataLoader's worker read."""
    if at.dataset is None or not (_DAMAGED_TYPE.search(at.kind) or _DAMAGED.search(at.message)):
        return None
    found = _opened(at)
    if found is None or not _several_workers(at):
        return None
    name, opened = found
    made, opener = opened.made, getattr(opened.made.spot.scope, "name", None)
    opens = f"{at.place(made.spot, made.line)}: `{source(opened.call)}`"
    by = f"{opener}() opened" if opener is not None else "was opened"
    if ast.unparse(opened.call.func) == _LMDB:
        return _of_lmdb(at, name, opens, by)
    return (
        f"The workers share the open file of `{name}` ({opens}), which {by} before they were forked: one "
        "may have moved its place while another read, so that the file itself may be whole (num_workers=0 shows it). "
        "Open it in each worker (worker_init_fn, or in __getitem__() once for each os.getpid()), or read all of it in "
        "__init__()."
    )


def _of_lmdb(at: FailingLine, name: str, opens: str, by: str) -> str:
    """LMDB reads by a mapping, not at a place that moves; it belongs to the process that opened it."""
    full = _READERS_FULL.search(at.kind) or _READERS_FULL.search(at.message)
    slots = (
        "each of their read transactions takes a slot of its table of readers (`max_readers`, 126 if not given) in the "
        "name of the parent, which is never given back. "
        if full
        else ""
    )
    delays = " A larger max_readers only delays the error." if full else ""
    return (
        f"The workers use the LMDB environment `{name}` ({opens}), which {by} before they were forked: {slots}LMDB "
        "allows that only in the process that opened it. Open it in each worker, at the first __getitem__() or in a "
        f"worker_init_fn; where nobody writes, `lock=False` will do.{delays}"
    )


def _opened(at: FailingLine) -> tuple[str, Opened] | None:
    """The one attribute that the line reads and that `__init__()` has opened, or what that calls or is given."""
    spot = at.slice.spot(0)
    read = {variable(item) for item in nodes_of(at.statement or ast.Pass()) if isinstance(item, ast.Attribute)}
    names = sorted(name for name in read if name is not None and name.startswith("self.") and at.shape(name) is None)
    opened = [(name, opened_file(at.files, at.slice, name, spot)) for name in names] if spot is not None else []
    found = [
        (name, item)
        for name, item in opened
        if item is not None and item.kind != "perhaps a file" and item.made.spot.scope is not at.scope
    ]
    return found[0] if len(found) == 1 else None


def _several_workers(at: FailingLine) -> bool:
    """Unless a loader of the program says that it has one, or starts them anew."""
    for tree in at.files.values():
        if _SPAWNED.search(ast.unparse(tree)):
            return False
        for item in nodes_of(tree):
            if isinstance(item, ast.Call) and called_name(item) == "DataLoader":
                told = keyword_value(item, "num_workers")
                if isinstance(told, ast.Constant) and told.value == 1:
                    return False
    return True
