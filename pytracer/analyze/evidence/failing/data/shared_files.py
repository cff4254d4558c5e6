"""A file that a dataset opened before its workers were forked: they share one place in it, and move it for each other.

What one of them reads is then of another place: an archive or a format complains of damage that the file does not have.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.data.guarded_reads import read_under_lock
from pytracer.analyze.evidence.failing.data.opened_files import Opened, opened_file
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, is_parameter, own_nodes, spans_body

_DAMAGED_TYPE = Pattern(
    r"BadZipFile|BadGzipFile|UnpicklingError|ReadError|HeaderError|LZMAError|DatabaseError|EOFError"
)
_DAMAGED = Pattern(
    r"Bad CRC|Error -\d+ while decompressing|incorrect header check|invalid (?:block|stored|distance|code)|Bad magic"
    r"|[Uu]nexpected end|[Tt]runcated|unpack requires a buffer|malformed|cannot reshape array of size"
    r"|Can't (?:\w+ )?read data|filter returned failure|wrong B-tree|bad object header|addr overflow|MDB_\w+"
)
_LMDB, _READERS_FULL = "lmdb.open", Pattern(r"ReadersFull|MDB_READERS_FULL")
_MOST_STEPS = 4
_SPAWNED = Pattern(r"['\"](?:spawn|forkserver)['\"]")


def shared_file(at: FailingLine) -> str | None:
    """Of an error in what a DataLoader's worker read."""
    if at.dataset is None or not (_DAMAGED_TYPE.search(at.kind) or _DAMAGED.search(at.message)):
        return None
    found = _opened(at)
    if found is None or not _several_workers(at):
        return None
    name, opened = found
    if read_under_lock(at.files.values(), name):
        return None
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
    """The one attribute that the line reads, or takes its data from, and that was opened before the workers ran."""
    spot = at.slice.spot(0)
    names = _handles(at, at.statement or ast.Pass(), spot, _MOST_STEPS) if spot is not None else ()
    running = [item.scope for depth in range(len(at.frames)) if (item := at.slice.spot(depth)) is not None]
    found: dict[tuple[str | None, int], tuple[str, Opened]] = {}
    for name, place in names:
        opened = opened_file(at.files, at.slice, name, place) if place.depth != 0 or at.shape(name) is None else None
        if opened is not None and opened.kind != "perhaps a file" and _is_none_of(opened.made.spot.scope, running):
            found.setdefault((opened.made.spot.file, opened.made.line), (name, opened))
    return next(iter(found.values())) if len(found) == 1 else None


def _is_none_of(scope: Scope, running: list[Scope]) -> bool:
    return all(scope is not item for item in running)


def _handles(at: FailingLine, node: ast.AST, spot: Spot, steps: int) -> Iterator[tuple[str, Spot]]:
    """Attributes in an expression, and in what its variables were made by: assigned, by a `with`, or passed."""
    for item in nodes_of(node):
        name = variable(item) if isinstance(item, (ast.Name, ast.Attribute)) else None
        if name is None or name == "self":
            continue
        if name.startswith("self."):
            yield name, spot
        elif steps:
            yield from (pair for made in _made(at, name, spot) for pair in _handles(at, *made, steps - 1))


def _made(at: FailingLine, name: str, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
    """What a variable of that function is given before its line; of a parameter what the caller passes."""
    for item in own_nodes(spot.scope):
        if isinstance(item, ast.With) and spans_body(item.body, spot.line):
            held = (part for part in item.items if part.optional_vars is not None and holds(part.optional_vars, name))
            yield from ((part.context_expr, structs.replace(spot, line=item.lineno)) for part in held)
        elif isinstance(item, ast.Assign) and item.lineno < spot.line and any(holds(to, name) for to in item.targets):
            yield item.value, structs.replace(spot, line=item.lineno)
    passed = at.slice.argument(name, spot) if is_parameter(spot.scope, name) else None
    if passed is not None:
        yield passed


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
