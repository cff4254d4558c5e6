"""Whether a line that writes a file can mean the one that another line read: by what their sources have of the path."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import takewhile

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.opened import OpenedFile
from pytracer.analyze.evidence.failing.stored.paths import path_parts
from pytracer.analyze.evidence.lifetime.file_writers import names_file, texts_of
from pytracer.analyze.evidence.slicing.spots import Spot

_MOST_INPUTS = 64
_OF_PROCESS = Pattern(r"rank|environ|getenv|pid|hostname|argv|uuid|current_process|worker", re.IGNORECASE)


def is_same(at: FailingLine, file: OpenedFile, held: FailingLine, path: ast.expr, spot: Spot) -> bool:
    """Whether it can be the path that was read, by `held`; not one that is made of what each process has of its own."""
    return may_be_same(at, file, held, path, spot) and not _is_of_process(held, path, spot)


def may_be_same(at: FailingLine, file: OpenedFile, held: FailingLine, path: ast.expr, spot: Spot) -> bool:
    """By the name of the file, or as both lines make it; not one in another folder."""
    known = [*takewhile(lambda part: "{" not in part, path_parts(held.slice, path, spot)[::-1])][::-1]
    parts = tuple(part for part in file.path.split("/") if part)
    if tuple(known) != parts[len(parts) - len(known) :]:
        return False
    if is_known(held, path, spot):
        return True
    hit = names_file(texts_of(spot.tree, spot.line, [path])[0], file.path)
    if hit is not None and hit[1] is None:
        return True
    name = ast.unparse(path)
    if file.path == at.values.get(f"file of {name}") and (at.frame.file, at.frame.function) == _function(held, spot):
        return True
    own = at.slice.spot(0)
    written = path_parts(held.slice, path, spot)
    return own is not None and any(
        written and written[-1:] == path_parts(at.slice, ast.parse(read, mode="eval").body, own)[-1:]
        for read in read_names(at, file)
        if "{" not in written[-1]
    )


def is_known(held: FailingLine, path: ast.expr, spot: Spot) -> bool:
    """Whether the source has all of it."""
    parts = path_parts(held.slice, path, spot)
    return bool(parts) and not any("{" in part for part in parts)


def _is_of_process(held: FailingLine, path: ast.expr, spot: Spot) -> bool:
    """Whether a rank, the environment or the like is part of the path: another process has another one."""
    waiting: list[tuple[ast.AST, Spot]] = [(path, spot)]
    seen = 0
    while waiting and seen < _MOST_INPUTS:
        seen += 1
        made = held.slice.made(*waiting.pop(), calls=False)
        named = made.node.value if isinstance(made.node, ast.Subscript) else made.node
        if isinstance(named, (ast.Name, ast.Attribute)) and _OF_PROCESS.search(ast.unparse(named)):
            return True
        waiting += [(part, made.spot) for part in _inputs(made.node)]
    return bool(waiting)


def _inputs(node: ast.AST) -> Iterator[ast.AST]:
    """Of an item of a list its place alone; not the test of what other ranks have None of: these are sent it."""
    match node:
        case ast.IfExp(body=body, orelse=ast.Constant(value=None)):
            yield body
        case ast.Subscript(value=ast.Name() | ast.Attribute(value=ast.Name(id="self")), slice=index):
            yield index
        case _:
            for item in ast.iter_child_nodes(node):
                yield item.value if isinstance(item, ast.keyword) else item


def _function(held: FailingLine, spot: Spot) -> tuple[str | None, str | None]:
    frame = held.frames[spot.depth] if spot.depth is not None else None
    return (frame.file, frame.function) if frame is not None else (None, None)


def read_names(at: FailingLine, file: OpenedFile) -> list[str]:
    """The variables of the line's function that have its path."""
    begin = "file of "
    return [
        name.removeprefix(begin) for name, value in at.values.items() if name.startswith(begin) and value == file.path
    ]
