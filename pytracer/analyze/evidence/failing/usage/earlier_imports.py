"""Imports that ran before the line that failed, of the files on its stack."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

Import = ast.Import | ast.ImportFrom


class Imported(msgspec.Struct, frozen=True):
    """A statement of a file. `surely`: no branch, loop or `try` decides on whether it ran."""

    file: str
    statement: Import
    surely: bool

    def takes(self, module: str) -> bool:
        """Whether it imports that module of the top level, or something of it."""
        return module in tops(self.statement)


def tops(statement: Import) -> list[str]:
    """The first parts of the modules that are imported absolutely."""
    if isinstance(statement, ast.ImportFrom):
        return [(statement.module or "").partition(".")[0]] if statement.level == 0 else []
    return [item.name.partition(".")[0] for item in statement.names]


def earlier_imports(snapshot: Snapshot, stack: Sequence[PythonFrame]) -> Iterator[Imported]:
    """Of each frame's function and of its module, above the line that the frame is at; the outermost frame first."""
    running = {item.file for item in stack if item.function == "<module>"}  # not at their ends yet
    seen: set[tuple[str, int]] = set()
    for frame in stack[::-1]:
        tree = syntax_tree(snapshot, frame)
        if tree is None or frame.file is None or frame.line is None:
            continue
        scope = tree if frame.function == "<module>" else scope_of(tree, frame.line)
        scopes: list[tuple[ast.AST, int | None]] = [(scope, frame.line)]
        if scope is not tree and frame.file not in running:
            scopes.insert(0, (tree, None))
        for around, line in scopes:
            surely = {id(item) for item in _in_order(getattr(around, "body", []), line)}
            for item in own_nodes(around):
                if not isinstance(item, Import) or (line is not None and item.lineno >= line):
                    continue
                if (frame.file, item.lineno) not in seen:
                    seen.add((frame.file, item.lineno))
                    yield Imported(frame.file, item, id(item) in surely)


def _in_order(body: object, line: int | None) -> Iterator[ast.stmt]:
    """Statements that have run when a line of these is reached, or their end."""
    for item in body if isinstance(body, list) else []:
        if line is not None and spans(item, line):
            if isinstance(item, (ast.If, ast.With, ast.AsyncWith, ast.For, ast.While, ast.Try)):
                blocks = [getattr(item, name, []) for name in ("body", "orelse", "finalbody")]
                blocks += [part.body for part in getattr(item, "handlers", [])]
                for block in blocks:
                    if any(spans(part, line) for part in block):
                        yield from _in_order(block, line)
            return
        yield item
        if isinstance(item, (ast.With, ast.AsyncWith)):
            yield from _in_order(item.body, None)
