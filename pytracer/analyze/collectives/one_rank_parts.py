"""Of what only some ranks call: the function that all have to call, and the lines in it that one rank alone may run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from pytracer._text import list_words
from pytracer.analyze.collectives.ways import quoted
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import rank_branch
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans, withs_around
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_WRITES = frozenset(
    {
        "save",
        "dump",
        "save_file",
        "save_model",
        "savez",
        "savetxt",
        "save_image",
        "savefig",
        "write_text",
        "write_bytes",
    }
    | {"to_csv", "to_json", "to_parquet", "save_pretrained"}
)
_MOST = 2


def called_there(snapshot: Snapshot, at: PythonFrame, inside: Sequence[PythonFrame]) -> str | None:
    """The function of the program that the line of a branch calls, on the way to the collective.

    Args:
        snapshot: Of the process.
        at: The line.
        inside: The frames that it led to, the outermost first.
    """
    tree = syntax_tree(snapshot, at)
    name = (inside[0].function or "").rpartition(".")[2] if inside else None
    if tree is None or at.line is None or name is None:
        return None
    return name if any(called_name(item) == name for item in calls_on(tree, at.line)) else None


def property_there(snapshot: Snapshot, at: PythonFrame, inside: Sequence[PythonFrame]) -> str | None:
    """`trainer.metrics`: the property of the program that the line of a branch reads. As called_there()."""
    tree, own = syntax_tree(snapshot, at), syntax_tree(snapshot, inside[0]) if inside else None
    if tree is None or own is None or at.line is None or inside[0].line is None:
        return None
    scope = scope_of(own, inside[0].line)
    if not isinstance(scope, ast.FunctionDef) or not any(
        (last_name(item) or "").endswith("property") for item in scope.decorator_list
    ):
        return None
    read = {ast.unparse(item) for item in own_nodes(scope_of(tree, at.line))
            if isinstance(item, ast.Attribute) and item.attr == scope.name and spans(item, at.line)}  # fmt: skip
    return read.pop() if len(read) == 1 else None


def writing_lines(snapshot: Snapshot, branch: ast.If, at: PythonFrame, inside: Sequence[PythonFrame]) -> str | None:
    """`line 45 (`torch.save(state, path)`)`: what writes a file after the collective; None of none, and of many.

    Before it `the printing of its result`, where the branch prints after that line.

    Args:
        snapshot: Of the process.
        branch: Around the line.
        at: The line.
        inside: The frames that it led to.
    """
    found = [line_words for frame in (at, *inside) for line_words in _lines(snapshot, frame, at, branch)]
    if not 0 < len(found) <= _MOST:
        return None
    calls = (item for item in nodes_of(branch) if isinstance(item, ast.Call) and item.lineno > (at.line or 0))
    printed = any(called_name(item) == "print" for item in calls)
    return list_words([*(["the printing of its result"] if printed else []), *found])


def _lines(snapshot: Snapshot, frame: PythonFrame, at: PythonFrame, branch: ast.If) -> Iterator[str]:
    tree = syntax_tree(snapshot, frame)
    if tree is None or frame.line is None:
        return
    nodes = own_nodes(scope_of(tree, frame.line))
    last = (branch.end_lineno or 0) if frame is at else None
    lines = {_whole(tree, item) for item in nodes if isinstance(item, ast.Call) and called_name(item) in _WRITES}
    for line in sorted(lines):
        is_after = frame.line < line and (last is None or line <= last)
        if not is_after or (frame is not at and rank_branch(tree, line) is not None):
            continue
        yield f"{line_in(frame.file, line, at.file)} ({quoted(snapshot, frame, line)})"


def _whole(tree: ast.Module, write: ast.Call) -> int:
    """The line of the `with open(...)` around it, or its own."""
    around = (item for item in withs_around(tree, write.lineno) if any(_opens(part) for part in item.items))
    return next((item.lineno for item in around), write.lineno)


def _opens(part: ast.withitem) -> bool:
    return isinstance(part.context_expr, ast.Call) and called_name(part.context_expr) == "open"
