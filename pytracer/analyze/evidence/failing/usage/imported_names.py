"""A name that a module does not have: files that import each other, names like it, and the version of a package."""

from __future__ import annotations

import ast
import difflib
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.naming import short_file
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

LIKE = 0.75  # of difflib: `IterableDatset`, `lossess`
_MOST_NAMES = 4
_LOOKED_AT = 4096  # files of a folder: that of a script may hold its data


def is_older(snapshot: Snapshot, file: Path) -> bool:
    """Whether a file is there as it was when the process began."""
    try:
        return file.is_file() and file.stat().st_mtime_ns <= snapshot.created_wall_ns
    except OSError:
        return False


def entries(folder: Path) -> Iterator[Path]:
    """What is in a folder, of a large one the first part; nothing of one that cannot be read."""
    try:
        with os.scandir(folder) as found:
            yield from (Path(item.path) for item in itertools.islice(found, _LOOKED_AT))
    except OSError:
        return


def circle(at: FailingLine, name: str, path: str) -> str | None:
    """Two files that import each other, where the first one has not come to the name yet."""
    outer = next((item for item in at.stack if item.file == path and item.function == "<module>"), None)
    tree = syntax_tree(at.snapshot, outer)
    if outer is None or outer.line is None or tree is None or is_library_file(path):
        return None
    inner = at.in_file(at.frame.file, at.line) if at.frame.file == path else f"{short_file(at.frame.file)}:{at.line}"
    defined = next(_lines_of(tree, name), None)
    if defined is None or defined <= outer.line:
        return None
    return (
        f"{short_file(path)}:{outer.line} imports {_imported(tree, outer)} before line {defined} defines `{name}`, and "
        f"{inner} imports `{name}` from there: a circle. Move `{name}` into a file that imports neither, or the import "
        f"of {inner} into the function that needs it."
    )


def _imported(tree: ast.Module, frame: PythonFrame) -> str:
    """What the line of a frame imports."""
    for item in nodes_of(tree):
        if isinstance(item, ast.Import) and item.lineno == frame.line:
            return f"`{item.names[0].name}`"
        if isinstance(item, ast.ImportFrom) and item.lineno == frame.line:
            return f"`{'.' * item.level}{item.module or ''}`"
    return "the other"


def _lines_of(tree: ast.Module, name: str) -> Iterator[int]:
    """Where a file itself defines a name."""
    for item in tree.body:
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and item.name == name:
            yield item.lineno
        elif isinstance(item, (ast.Assign, ast.AnnAssign)):
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            if any(isinstance(part, ast.Name) and part.id == name for part in targets):
                yield item.lineno


class Names(msgspec.Struct, frozen=True):
    """What a module binds: `at_top` what can be imported from it, `anywhere` also in its functions and classes."""

    at_top: frozenset[str] = frozenset()
    anywhere: frozenset[str] = frozenset()


def names_in(at: FailingLine, file: Path) -> Names:
    """With the modules beside the file of a package; nothing of a file that is newer."""
    try:
        tree = ast.parse(file.read_bytes()) if is_older(at.snapshot, file) else None
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if tree is None:
        return Names()
    beside = {item.stem for item in entries(file.parent) if file.name == "__init__.py" and item.suffix == ".py"}
    top, all_ = ({*beside, *_bound(nodes)} - {"__init__", "*"} for nodes in (own_nodes(tree), nodes_of(tree)))
    return Names(frozenset(top), frozenset(all_))


def near_name(names: Names, name: str, module: str) -> str | None:
    """A name like it that the module has."""
    near = difflib.get_close_matches(name, names.at_top, 1, LIKE) if name not in names.anywhere else []
    return f"`{module}` has no `{name}`, but `{near[0]}`: correct the name." if near else None


def absent_name(names: Names, name: str, module: str, path: str) -> str | None:
    """What a module has in its place; of a package its version, where it is known."""
    if not names.anywhere or name in names.anywhere:
        return None
    if is_library_file(path):
        installed = _version(module.partition(".")[0], path)
        return (
            f"`{name}` is not in {module} of {installed}, which is installed: it is elsewhere in it, "
            "was removed, or is newer. Look up where its documentation has it, or install the version that the line "
            "was written for."
            if installed is not None
            else None
        )
    public = sorted(item for item in names.at_top if not item.startswith("_"))
    some = f", but {', '.join(public[:_MOST_NAMES])}{', ...' if len(public) > _MOST_NAMES else ''}" if public else ""
    return f"{short_file(path)} defines no `{name}`{some}: correct the name, or define it there."


def _bound(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for item in nodes:
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield item.name
        elif isinstance(item, (ast.Import, ast.ImportFrom)):
            yield from (part.asname or part.name for part in item.names)
        elif isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
            yield item.id


def _version(top: str, path: str) -> str | None:
    """`torchvision 0.28.0`, by the folder of its metadata beside the package."""
    site = path[: path.find(f"/{top}/")] if f"/{top}/" in path else str(Path(path).parent)
    for item in entries(Path(site)):
        found = re.fullmatch(r"([\w.]+)-([\w.+!]+)\.dist-info", item.name)
        if found is not None and _plain(found[1]) == _plain(top):
            return f"{top} {found[2]}"
    return None


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()
