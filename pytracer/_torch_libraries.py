"""Which libraries of hooks serve a torch: those of this package, or those that `pytracer build` made for it.

torch's C++ classes change between minor versions, and between a release and what was built before or after it. The
package has libraries for releases; for any other torch nothing is guessed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import stat
from pathlib import Path
from typing import NamedTuple

from pytracer import _paths as paths
from pytracer._errors import RecordingError
from pytracer._version import __version__

BUILD_COMMAND = "pytracer build"
_RELEASE = re.compile(r"(\d+\.\d+)\.\d+(\.post\d+)?(\+.*)?")


class Torch(NamedTuple):
    """A torch, by what its version.py says."""

    version: str
    git: str
    """The hash of the commit that it was built from; "" if its makers left it out."""

    @property
    def released_minor(self) -> str:
        """Such as "2.13", for 2.13.0 and 2.13.1+cu130; "" for a nightly, a candidate or a vendor's snapshot."""
        found = _RELEASE.fullmatch(self.version)
        return found[1] if found else ""

    @property
    def identity(self) -> str:
        """What a library that was built for this one torch says that it was built for."""
        return f"{self.version} {self.git}".strip()


class Libraries(NamedTuple):
    """The libraries of hooks for one torch."""

    directory: Path
    built_for: str
    """What they must say themselves: a minor version, or a torch's identity."""

    def path(self, name: str = "torch") -> Path:
        """The hooks of torch; `name` "cuda": those of its CUDA half, which may not exist."""
        return self.directory / f"libpytracer_{name}.so"


def in_directory(package: Path) -> Torch:
    """The torch whose package is there. An import would take seconds and CUDA's libraries.

    Raises:
        OSError: there is no version.py.
        ValueError, KeyError, SyntaxError: it is damaged.
    """
    said = runpy.run_path(os.fspath(package / "version.py"))
    return Torch(str(said["__version__"]), str(said.get("git_version") or ""))


def package_directory() -> Path | None:
    """Of the torch that this interpreter would import; None if there is none."""
    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def made(torch: Torch) -> Libraries:
    """Where `pytracer build` writes the libraries for a torch. They fit the core of one version of pytracer."""
    name = re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(filter(None, (torch.version, torch.git[:12]))))
    return Libraries(_cache() / __version__ / name, torch.identity)


def libraries(torch: Torch) -> Libraries:
    """The libraries for a torch: those that were built for it by its user, else those of the package.

    Raises:
        RecordingError: there are none, or somebody else could have written them.
    """
    own = made(torch)
    if own.path().is_file():
        _trust(own.path())
        return own
    minor = torch.released_minor
    shipped = Libraries(paths.torch_library(minor).parent, minor)
    if minor and shipped.path().is_file():
        return shipped
    built = paths.built_torches()
    have = f"pytracer has hooks for torch {_listed(built)}" if built else "pytracer was built without torch"
    raise RecordingError(f"{have}, this is torch {torch.version}", f"`{BUILD_COMMAND}` adds them for this one")


def installed() -> tuple[Torch, Libraries]:
    """The torch that this interpreter would import, and its libraries.

    Raises:
        RecordingError: there is no torch, or none that is whole, or there are no libraries for it.
    """
    package = package_directory()
    if package is None:
        raise RecordingError("there is no torch here", "install torch; pytracer needs no other build for it")
    try:
        torch = in_directory(package)
    except (OSError, ValueError, KeyError, SyntaxError) as error:
        raise RecordingError(f"{package} has no version that can be read: {error}", "install torch again") from error
    return torch, libraries(torch)


def _listed(versions: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(versions[:-1]), versions[-1])))


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "pytracer"


def _trust(path: Path) -> None:
    """A library of the cache runs in the job: only its user may have written it."""
    for place in (path, path.parent):
        found = place.stat()
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise RecordingError(
                f"{place} could have been written by somebody else",
                f"remove it, or: chmod go-w {place}",
            )
