"""The native sources of the program's libraries: which files may have been compiled into them, the surest first.

Those that the debug information names; those beside the libraries and the program's Python files; those in the folders
below these Python files. Only files that are older than the library, and so may be what it was built from.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from pytracer.analyze.evidence.own_code.native_source import SUFFIXES, lines_before, lines_of
from pytracer.decode.symbols.unit_sources import unit_sources

Source = tuple[str, list[str]]  # path and lines
_HEADERS = (".h", ".hpp", ".cuh")
_MOST_FILES = 64  # of a folder
_MOST_BESIDE = 4096  # entries of a folder of which those below it are looked for
_MOST_ENTRIES = 400  # of all folders below one
_DEEPEST = 2
_NOT_OWN = ("__pycache__", "node_modules", "site-packages", "dist-packages", "venv", "env")


def source_levels(libraries: Sequence[str], folders: Iterable[str] = ()) -> Iterator[list[Source]]:
    """Files by how sure it is that they are of these libraries: a reader stops at the first level that has its answer.

    Args:
        libraries: Paths of the program's own libraries.
        folders: Of its Python files.
    """
    own = list(dict.fromkeys(folders))
    beside = list(dict.fromkeys([*map(os.path.dirname, libraries), *own]))
    named = [path for library in libraries for path in unit_sources(library)]
    yield _read(libraries, named)
    yield _read(libraries, [path for folder in beside for path in _sources_in(folder)])
    yield _read(libraries, [path for folder in own for path in _below(folder)])


def sources_beside(library: str, folders: Iterable[str] = ()) -> Iterator[Source]:
    """All of them, the surest first, each once. Of a library that names its sources, of the others the headers only."""
    met = set[str]()
    is_named = False
    for number, level in enumerate(source_levels([library], folders)):
        is_named = is_named or (number == 0 and bool(level))
        for path, lines in level:
            if path not in met and (number == 0 or not is_named or path.endswith(_HEADERS)):
                met.add(path)
                yield path, lines


def sources_before(began_ns: int, folders: Iterable[str]) -> list[Source]:
    """Those beside and below the program that are older than its process, which made a library of them that is gone."""
    own = list(dict.fromkeys(folders))
    paths = [path for folder in own for path in [*_sources_in(folder), *_below(folder)]]
    found = ((path, lines_before(began_ns, path)) for path in dict.fromkeys(paths))
    return [(path, lines) for path, lines in found if lines is not None]


def sources_named(began_ns: int, folders: Iterable[str], names: Iterable[str]) -> list[Source]:
    """Those of them that have such a name or path below one of the program's folders."""
    wanted = [name for name in names if not os.path.isabs(name)]
    paths = dict.fromkeys(os.path.normpath(os.path.join(folder, name)) for folder in folders for name in wanted)
    found = ((path, lines_before(began_ns, path)) for path in paths if path.startswith("/"))
    return [(path, lines) for path, lines in found if lines is not None]


def _read(libraries: Sequence[str], paths: Iterable[str]) -> list[Source]:
    found = []
    for path in dict.fromkeys(paths):
        lines = next((lines for library in libraries if (lines := lines_of(library, path)) is not None), None)
        if lines is not None:
            found.append((path, lines))
    return found


def _sources_in(folder: str) -> list[str]:
    try:
        names = sorted(os.listdir(folder)) if folder.startswith("/") else []
    except (OSError, ValueError):  # a path that no file system has, of a damaged recording
        return []
    return [os.path.join(folder, name) for name in names if name.endswith(SUFFIXES)][:_MOST_FILES]


def _below(folder: str) -> Iterator[str]:
    """In the folders below one, the nearest first; links are not followed."""
    waiting, left = [(folder, 0)] if folder.startswith("/") else [], _MOST_ENTRIES
    while waiting:
        at, depth = waiting.pop(0)
        try:
            with os.scandir(at) as found:
                inside = sorted(islice(found, left if depth else _MOST_BESIDE), key=lambda item: item.name)
        except (OSError, ValueError):
            continue
        left -= len(inside) if depth else 0
        yield from (item.path for item in inside if depth and item.name.endswith(SUFFIXES))
        waiting += [(item.path, depth + 1) for item in inside if depth < _DEEPEST and _may_be_own(item)]


def _may_be_own(item: os.DirEntry[str]) -> bool:
    """Whether a folder may have sources of the program."""
    hidden = item.name.startswith(".") or item.name in _NOT_OWN
    return not hidden and item.is_dir(follow_symlinks=False)
