"""Files of a program: those of its stack, and those that these import, as far as they lie beside them."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence

from pytracer._library_files import is_library_file
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_MOST = 24
_FOLDERS, _WORDS = 4, 3  # above the innermost file, and of the command line: where the first file is looked for


def program_files(snapshot: Snapshot, frames: Sequence[PythonFrame]) -> dict[str, ast.Module]:
    """By path, those of the stack first. Only files that are as they were when the process began."""
    found: dict[str, ast.Module] = {}
    begin = os.path.dirname(frames[-1].file or "") if frames else ""
    waiting = [frame.file for frame in frames if frame.file]
    seen = set(waiting)
    while waiting and len(found) < _MOST:
        file = waiting.pop(0)
        tree = syntax_tree(snapshot, PythonFrame(file=file, line=1)) if not is_library_file(file) else None
        if tree is None:
            continue
        found.setdefault(file, tree)
        new = dict.fromkeys(path for path in _imported(file, tree, begin) if path not in seen)
        seen |= {*new}
        waiting += [path for path in new if os.path.isfile(path)]
    return found


def files_with_script(snapshot: Snapshot, frames: Sequence[PythonFrame]) -> dict[str, ast.Module]:
    """The program's files, with its first one, which a deep stack has lost."""
    found = program_files(snapshot, frames)
    folder = os.path.dirname(frames[-1].file or "") if frames else ""
    for script in (word for word in snapshot.argv[:_WORDS] if word.endswith(".py")):
        for _ in range(_FOLDERS):
            frame = PythonFrame(file=os.path.join(folder, script), line=1)
            if syntax_tree(snapshot, frame) is not None:
                return {**program_files(snapshot, [frame]), **found}
            folder = os.path.dirname(folder)
    return found


def _imported(file: str, tree: ast.Module, begin: str) -> Iterator[str]:
    """Where the modules that a file imports may lie: beside it, or beside the program's first file."""
    beside = os.path.dirname(file)
    for item in ast.walk(tree):
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
