"""Paths: the core beside this package, run directories, file systems that must not hold a recording.

Every traced process imports this file; `launcher/run_directory.py` is for the launcher.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from pytracer._errors import RecordingError

RUNS = "runs"
LATEST = "latest"
_PACKAGE = Path(__file__).resolve().parent
# On these, a page fault of a mapped file would wait for a network or a user-space server, or the file would not survive
# SIGKILL.
_REMOTE = r"(nfs\d*|lustre|fuse.*|9p|virtiofs|cifs|smb\d*|ceph|afs|gpfs|beegfs\w*|orangefs|pvfs2|glusterfs|wekafs)"


def install_again() -> str:
    """What to do about a missing or damaged library."""
    if (_PACKAGE.parent / "csrc").is_dir():
        return "run `make build`, or `pip install --no-build-isolation -e .`"
    return "`pip install --force-reinstall WHEEL`, the file that it was installed from"


def built_core() -> Path:
    """The core beside this package.

    Raises:
        RecordingError: it was not built.
    """
    path = _PACKAGE / "libpytracer_core.so"
    if not path.is_file():
        raise RecordingError(f"the recorder is not built: {path} does not exist", install_again())
    return path


def sources() -> Path:
    """The C++ sources of the hooks: in an installed package, or in the tree.

    Raises:
        RecordingError: they are missing.
    """
    for path in (_PACKAGE / "_sources", _PACKAGE.parent / "csrc"):
        if (path / "hooks").is_dir():
            return path
    raise RecordingError(f"{_PACKAGE / '_sources'} does not exist", install_again())


def torch_library(minor: str, name: str = "torch") -> Path:
    """Where the hooks for a minor version of torch are, if they were built; `name` "cuda": its CUDA half."""
    return _PACKAGE / "_torch" / minor / f"libpytracer_{name}.so"


def built_torches() -> list[str]:
    """The minor versions of torch whose hooks were built."""
    found = _PACKAGE.glob("_torch/*/libpytracer_torch.so")
    return sorted((path.parent.name for path in found), key=lambda minor: [int(n) for n in re.findall(r"\d+", minor)])


def command_word(command: Sequence[str]) -> str:
    """One word that identifies a run: the script or module, else the program."""
    word = Path(command[0]).name
    for position, argument in enumerate(command[1:], 1):
        if argument.endswith(".py"):
            word = Path(argument).stem
            break
        if argument == "-m" and position + 1 < len(command) and "torch.distributed" not in command[position + 1]:
            word = command[position + 1]
            break
        if argument == "-c":
            break
    return re.sub(r"[^A-Za-z0-9._]+", "_", word).strip("._")[:40] or "run"


def file_system(path: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> str:
    """Type of the file system that holds `path` (which need not exist yet), e.g. "ext4"; "" if unknown.

    Source: the last line of /proc/self/mountinfo whose mount point is the longest prefix (proc(5)).
    """
    target = os.path.realpath(path)
    best, kind = -1, ""
    try:
        text = mountinfo.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    for line in text.splitlines():
        head, separator, tail = line.partition(" - ")
        fields = head.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        inside = point == "/" or target == point or target.startswith(point + "/")
        if inside and len(point) >= best:
            best, kind = len(point), tail.split(" ")[0]
    return kind


def is_remote(kind: str) -> bool:
    """Whether recordings must not be mapped on a file system of this type."""
    return re.fullmatch(_REMOTE, kind) is not None


def point_latest(directory: Path) -> str:
    """Points `runs/latest` to a directory below `runs/`; returns a note if it could not."""
    if directory.parent.name != RUNS:
        return ""
    link = directory.parent / LATEST
    aside = directory.parent / f".{LATEST}.{os.getpid()}"
    try:
        if os.path.lexists(link) and not link.is_symlink():
            return f"{link} is not a link of ours and was left alone"
        aside.unlink(missing_ok=True)
        aside.symlink_to(directory.name)
        os.replace(aside, link)
    except OSError as error:
        aside.unlink(missing_ok=True)
        return f"{link} could not be set: {error.strerror}"
    return ""
