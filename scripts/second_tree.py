"""Copies the sources and tests to a second tree, to be built there for another torch or a sanitizer.

    python scripts/second_tree.py build/cuda-tree

Copies changed files, with their times, and removes deleted ones; build outputs there are kept.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDED = (
    *("csrc", "pytracer", "scripts", "tests", "examples"),
    *("CMakeLists.txt", "CMakePresets.json", "setup.py", "pyproject.toml", "README.md"),
)
BUILT = (".so", ".pyc")
BUILT_NAMES = ("_helper",)


def main(target: Path) -> None:
    """Brings `target` up to date."""
    wanted = {path.relative_to(ROOT) for name in NEEDED for path in files(ROOT / name)}
    for relative in {path.relative_to(target) for name in NEEDED for path in files(target / name)} - wanted:
        (target / relative).unlink()
    for relative in sorted(wanted):
        source, copy = ROOT / relative, target / relative
        if copy.is_file() and copy.stat().st_mtime_ns == source.stat().st_mtime_ns:
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, copy)


def files(path: Path) -> Iterator[Path]:
    """The files at and below `path` that are not build outputs."""
    found = [path] if path.is_file() else path.rglob("*")
    return (item for item in found if item.is_file() and item.suffix not in BUILT and item.name not in BUILT_NAMES)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
