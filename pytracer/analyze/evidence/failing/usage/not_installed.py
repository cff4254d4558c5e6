"""A package that the Python of the process has not, and another Python of this machine may have.

By command line and PATH of the process, and by the folders as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.imported_names import entries
from pytracer.decode.types.snapshot import Snapshot

_PYTHON = Pattern(r"^python(?:3(?:\.\d+)?)?t?$")
_LIBRARIES = Pattern(r"^python3(?:\.\d+)?t?$")
# Import names whose package is named otherwise.
_PACKAGES = {
    "cv2": "opencv-python-headless",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
    "hydra": "hydra-core",
    "git": "gitpython",
    "faiss": "faiss-cpu",
    "umap": "umap-learn",
    "dotenv": "python-dotenv",
    "absl": "absl-py",
    "bs4": "beautifulsoup4",
    "fitz": "pymupdf",
    "Crypto": "pycryptodome",
    "docx": "python-docx",
    "dateutil": "python-dateutil",
    "pytorch_lightning": "pytorch-lightning",
}


def not_installed(at: FailingLine, name: str) -> str | None:
    """Which Python has it not, and how that one gets it; None where the Python of the process is not known here."""
    python, top = _interpreter(at.snapshot), name.partition(".")[0]
    own = list(_packages_of(python.parent.parent)) if python is not None else []
    if python is None or not own or any(_has(folder, top) for folder in own):
        return None  # it is there now, and was not or was broken then
    package = _PACKAGES.get(top, top)
    how = f"`{python} -m pip install {package}`"
    if package == top:
        how += ", if its package has that name"
    others = (folder for folder in _elsewhere(at.snapshot, python) if folder not in own and _has(folder, top))
    other = next(others, None)
    if other is not None:
        start = sys.executable if other.is_relative_to(sys.prefix) else "the other one"
        return (
            f"The Python of this process, {python}, has no `{top}`, which is installed in {other}: start the program "
            f"with {start}, or {how}."
        )
    return (
        f"`{top}` is not installed for the Python of this process, {python}: {how}. If it is a module of your own, put "
        "the folder that holds it on PYTHONPATH."
    )


def _interpreter(snapshot: Snapshot) -> Path | None:
    """The Python that was started, by its first word; not what a link leads to: a virtual environment is a link."""
    first = snapshot.argv[0] if snapshot.argv else ""
    if _PYTHON.match(Path(first).name) is None:
        return None
    if "/" in first:
        return Path(first) if first.startswith("/") and Path(first).is_file() else None
    return next((file for folder in _path(snapshot) if (file := folder / first).is_file()), None)


def _path(snapshot: Snapshot) -> list[Path]:
    """The folders of PATH."""
    return [Path(item) for item in snapshot.environment.get("PATH", "").split(":") if item.startswith("/")]


def _packages_of(prefix: Path) -> Iterator[Path]:
    """The folders of packages of an installation or environment."""
    for library in entries(prefix / "lib"):
        if _LIBRARIES.match(library.name) is not None:
            yield from (folder for folder in (library / "site-packages", library / "dist-packages") if folder.is_dir())


def _elsewhere(snapshot: Snapshot, python: Path) -> Iterator[Path]:
    """Folders of packages of other Pythons: on PATH, the one that reads this, beside the process's, the system's."""
    beside = [*(folder.parent for folder in _path(snapshot)), Path(sys.prefix)]
    system = (Path.home() / ".local", Path("/usr/local"), Path("/usr"))
    for prefix in dict.fromkeys((*beside, python.resolve().parent.parent, *system)):
        yield from _packages_of(prefix)


def _has(folder: Path, top: str) -> bool:
    return (folder / top).is_dir() or (folder / f"{top}.py").is_file() or any(folder.glob(f"{top}.*.so"))
