"""Files of a program: those of its stack, its first one, and what these import, as far as it lies beside them."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

MOST_FILES = 24
_FOLDERS, _WORDS = 4, 3  # above the innermost file, and of the command line: where the first file is looked for


def program_files(snapshot: Snapshot, frames: Sequence[PythonFrame]) -> dict[str, ast.Module]:
    """By path, those of the stack first, then the program's first one. Only files that are as the process began.

    The stack of another thread has no line of that one, and a deep stack has lost it.
    """
    found: dict[str, ast.Module] = {}
    first = first_file(snapshot, frames)
    begin = os.path.dirname(first or "")
    waiting = [file for file in dict.fromkeys([*(frame.file for frame in frames), first]) if file]
    seen = set(waiting)
    while waiting and len(found) < MOST_FILES:
        file = waiting.pop(0)
        tree = syntax_tree(snapshot, PythonFrame(file=file, line=1)) if not is_library_file(file) else None
        if tree is None:
            continue
        found.setdefault(file, tree)
        new = dict.fromkeys(path for path in _imported(file, tree, begin) if path not in seen)
        seen |= {*new}
        waiting += [path for path in new if os.path.isfile(path)]
    return found


def first_file(snapshot: Snapshot, frames: Sequence[PythonFrame]) -> str | None:
    """The one that the command line names, or else the stack's outermost. A relative path begins above that one's."""
    outermost = frames[-1].file if frames else None
    if frames and frames[-1].function == "<module>" and not is_library_file(outermost):
        return outermost  # the main thread's whole stack
    for script in (word for word in snapshot.argv[:_WORDS] if word.endswith(".py")):
        folder = os.path.dirname(outermost or "")
        for _ in range(_FOLDERS):
            path = os.path.normpath(os.path.join(folder, script))
            if os.path.isabs(path) and os.path.isfile(path):
                return path
            folder = os.path.dirname(folder)
    return outermost


def _imported(file: str, tree: ast.Module, begin: str) -> Iterator[str]:
    """Where the modules that a file imports may lie: beside it, or beside the program's first file."""
    beside = os.path.dirname(file)
    for item in nodes_of(tree):
        if isinstance(item, ast.Import):
            names, folders = [part.name for part in item.names], [beside, begin]
        elif isinstance(item, ast.ImportFrom):
            own = item.module or ""
            names = [own, *(f"{own}.{part.name}".lstrip(".") for part in item.names)]
            folders = [beside, begin] if item.level == 0 else [_above(beside, item.level - 1)]
        else:
            continue
        for name in filter(None, names):
            for folder in folders:
                path = os.path.join(folder, *name.split("."))
                yield from (f"{path}.py", os.path.join(path, "__init__.py"))


def _above(folder: str, levels: int) -> str:
    for _ in range(levels):
        folder = os.path.dirname(folder)
    return folder
