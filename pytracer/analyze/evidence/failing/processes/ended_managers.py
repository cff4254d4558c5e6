"""A proxy whose multiprocessing.Manager had ended: with the block that made it, or with its last reference."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import spans
from pytracer.analyze.naming import LineWords

_GONE = ("FileNotFoundError", "ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError", "EOFError")
_MANAGERS, _CONNECTION = "multiprocessing/managers.py", "multiprocessing/connection.py"
_OF_SERVER = ("connect", "start")  # of BaseManager: it was not there, or ended as it began
_KEEP = "keep the Manager for as long as what it gave is used, also by workers"


def ended_manager(at: FailingLine) -> str | None:
    """By the line that ends it, where the program has one Manager."""
    if at.kind not in _GONE or not _is_asked(at):
        return None
    what = f"Line {at.line} uses an object of a multiprocessing.Manager, and that process did not answer"
    made = [*_managers(at)]
    if len(made) != 1:
        return f"{what}: it had ended. {capital(_KEEP)}, and look at its own end if it was killed."
    place, node, how = made[0]
    if how == "with":
        return (
            f"{what}: the `with` of {place} (`{short(source(node))}`) ends it where its block is left. Use the object "
            "inside of that block only, or make the Manager without `with` and keep it."
        )
    if how == "unnamed":
        return (
            f"{what}: the Manager that {place} makes (`{short(source(node))}`) has no name, and ends with what it gave "
            f"there, or with that process. Give it a name, {_KEEP}, and join() those before its process ends."
        )
    return (
        f"{what}: it ends by shutdown(), with the process that made it ({place}), or with its last reference. "
        f"{capital(_KEEP)}, and look at its own end if it was killed."
    )


def _is_asked(at: FailingLine) -> bool:
    """Whether a proxy could not ask; what its Manager answers with, an error of its object, is raised by the proxy."""
    own = [frame.function or "" for frame in at.stack if (frame.file or "").endswith(_MANAGERS)]
    if not own or any(name.rpartition(".")[2] in _OF_SERVER for name in own):
        return False
    return (at.stack[0].file or "").endswith(_CONNECTION)


def _is_inside(at: FailingLine, block: ast.With) -> bool:
    """Whether the program still was in that block."""
    return any(spans(block, frame.line or 0) for frame in at.frames)


def _managers(at: FailingLine) -> Iterator[tuple[LineWords, ast.expr, str]]:
    """The calls of `Manager()`, and what becomes of each."""
    for file, tree in at.files.items():
        nodes = [*nodes_of(tree)]
        blocks = [item for item in nodes if isinstance(item, ast.With) and not _is_inside(at, item)]
        entered = {id(part.context_expr) for item in blocks for part in item.items}
        used = {id(item.value): item for item in nodes if isinstance(item, ast.Attribute)}
        for item in nodes:
            if isinstance(item, ast.Call) and called_name(item) in ("Manager", "SyncManager"):
                how = "with" if id(item) in entered else "unnamed" if id(item) in used else "kept"
                yield at.in_file(file, item.lineno), used.get(id(item), item), how
