"""A program in two files: its definitions move to `parts_<name>.py`, and each line keeps its number."""

from __future__ import annotations

import ast
from pathlib import Path

_DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
_CONSTANTS = (ast.Assign, ast.AnnAssign)
_IMPORTS = (ast.Import, ast.ImportFrom)
_ENTRIES = ("main", "run", "train", "worker", "job", "launch", "cli")


def split_program(program: Path, folder: Path) -> Path:
    """The main file of both, in `folder`. A number is that of a line of one of them only, besides imports.

    Raises:
        ValueError: Where nothing can move.
    """
    text = program.read_text(encoding="utf-8")
    tree = ast.parse(text)
    moved = _moved(tree)
    rest = [item for item in tree.body if item not in moved and not isinstance(item, _IMPORTS)]
    names = {name for item in moved for name in _bound(item)}
    needed = sorted(names & {name for item in rest for name in _read(item)})
    if not needed or not any(isinstance(item, _DEFINITIONS) for item in moved):
        raise ValueError(f"{program.name} has nothing that can move")
    gone, stays = _lines(moved), _lines(rest)
    if gone & stays:
        raise ValueError(f"{program.name} has two statements in one line")
    lines = text.split("\n")
    first = ["" if number in gone else line for number, line in enumerate(lines, 1)]
    first[min(gone) - 1] = f"from parts_{program.stem} import {', '.join(needed)}"
    second = ["" if number in stays else line for number, line in enumerate(lines, 1)]
    (folder / f"parts_{program.stem}.py").write_text("\n".join(second), encoding="utf-8")
    main = folder / program.name
    main.write_text("\n".join(first), encoding="utf-8")
    return main


def _moved(tree: ast.Module) -> list[ast.stmt]:
    """Definitions and plain constants that need nothing of what stays."""
    last = tree.body[-1]
    entries = {name for name in _read(last) if name in _ENTRIES}
    bound = [name for item in tree.body for name in _stored(item)]
    shared = {name for item in ast.walk(tree) if isinstance(item, ast.Global) for name in item.names}
    kept = entries | shared | {name for name in bound if bound.count(name) > 1}
    moved: list[ast.stmt] = [
        item
        for item in tree.body
        if (isinstance(item, _DEFINITIONS) or (isinstance(item, _CONSTANTS) and not _runs(item)))
        and not kept & _bound(item)
        and "__file__" not in _read(item)
        and not any(isinstance(part, ast.Global) for part in ast.walk(item))
    ]
    imported = {name for item in tree.body if isinstance(item, _IMPORTS) for name in _bound(item)}
    top = {*bound} - imported
    while True:
        names = {name for item in moved for name in _bound(item)}
        fitting = [item for item in moved if not (_read(item) & top) - names]
        if len(fitting) == len(moved):
            return moved
        moved = fitting


def _runs(item: ast.stmt) -> bool:
    """A value that is computed by a call may depend on what ran before."""
    return any(isinstance(part, ast.Call) for part in ast.walk(item))


def _read(item: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(item) if isinstance(part, ast.Name)}


def _bound(item: ast.stmt) -> set[str]:
    return {*_stored(item)}


def _stored(item: ast.stmt) -> list[str]:
    if isinstance(item, (*_DEFINITIONS, ast.AsyncFunctionDef)):
        return [item.name]
    if isinstance(item, _IMPORTS):
        return [part.asname or part.name.partition(".")[0] for part in item.names]
    return [part.id for part in ast.walk(item) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]


def _lines(items: list[ast.stmt]) -> set[int]:
    found: set[int] = set()
    for item in items:
        begin = min([item.lineno, *(part.lineno for part in getattr(item, "decorator_list", []))])
        found |= {*range(begin, (item.end_lineno or item.lineno) + 1)}
    return found
