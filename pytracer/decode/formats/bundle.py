"""A bundle: one run in one file, with the report as it was made where the run lay (docs/guide/sharing.md).

A ZIP archive, compressed by LZMA, which Python, 7z and libarchive open:

    manifest.json           {"schema": "pytracer-bundle", "version": 1, ...}
    report.json             the report, with the names and lines that only that machine could resolve
    run/...                 the files of the run directory, as they were; absent from a redacted bundle

Recordings are mostly zero bytes, which are not stored in a run directory either: they are written with holes again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytracer._errors import InputError
from pytracer.decode.files import MIB, regular_file
from pytracer.decode.formats.plain_json import load_json

SUFFIX = ".pytracer"
SCHEMA, VERSION = "pytracer-bundle", 1
_MANIFEST, _REPORT, _RUN = "manifest.json", "report.json", "run/"
_MAGIC = b"PK\x03\x04"
# Names of a run directory, one folder deep at most: nothing that leads anywhere else.
_MEMBER = re.compile(r"(?:boxes/|gpu-cores/)?[A-Za-z0-9_%+=@,:-][A-Za-z0-9_.%+=@,:-]*")
_TASK_FILE = re.compile(r"run\.\d{1,9}\.json")  # of each further task of srun or mpirun
_LARGEST_REPORT = 256 * MIB
_LARGEST_MEMBER = 1 << 32
_MOST_MEMBERS = 1 << 17
_MOST_CONTENT = 1 << 34  # bytes other than zero, of all files: what unpacking may write
_MOST_IN_ALL = 1 << 38  # bytes, zeros included: what unpacking may read
_AT_ONCE = MIB
_PAGE = 4096
_DAMAGE: tuple[type[Exception], ...] = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, MemoryError)
_compression = zipfile.ZIP_DEFLATED
with contextlib.suppress(ImportError):  # a Python that was built without it writes and reads bundles without it
    import lzma

    _DAMAGE = (*_DAMAGE, lzma.LZMAError)
    _compression = zipfile.ZIP_LZMA  # halves what deflate leaves of a recording


@dataclass(frozen=True)
class Bundle:
    """What is known of a bundle without its recordings."""

    path: str
    manifest: Mapping[str, object]
    report: bytes

    @property
    def redacted(self) -> bool:
        """Whether the recordings were left out, because nothing in them can be redacted."""
        return self.manifest.get("redacted") is True


def is_bundle(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a ZIP archive, as bundles are; directories and recordings are none."""
    try:
        with regular_file(path, follow=True) as file:
            return os.pread(file, len(_MAGIC), 0) == _MAGIC
    except OSError:
        return False


def read_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Reads manifest and report.

    Raises:
        InputError: it is no bundle, damaged, or of a newer version.
    """
    with _opened(path) as archive:
        manifest = _manifest(archive, os.fspath(path))
        return Bundle(os.fspath(path), manifest, _content(archive, _REPORT, _LARGEST_REPORT))


def unpack_bundle(path: str | os.PathLike[str], directory: Path) -> None:
    """Writes the run directory of a bundle into an empty directory.

    Raises:
        InputError: it is no bundle, damaged, redacted, or its content is too large.
    """
    with _opened(path) as archive:
        manifest = _manifest(archive, os.fspath(path))
        members = [item for item in archive.infolist() if item.filename.startswith(_RUN)]
        if manifest.get("redacted") is True or not members:
            raise InputError(f"{path} was redacted: it holds a report and no recordings", "`pytracer inspect` shows it")
        if len(members) > _MOST_MEMBERS or sum(item.file_size for item in members) > _MOST_IN_ALL:
            raise InputError(f"{path} announces more than a run has: it is not unpacked", "ask for another bundle")
        left = _MOST_CONTENT
        for item in members:
            name = item.filename[len(_RUN) :]
            if not _MEMBER.fullmatch(name) or item.file_size > _LARGEST_MEMBER:
                raise InputError(f"{path} holds a file that no run directory has", "ask for another bundle")
            target = directory / name
            target.parent.mkdir(mode=0o700, exist_ok=True)
            with _member(archive, item) as source, open(target, "xb") as file:
                left = _copy_sparse(iter(lambda: source.read(_AT_ONCE), b""), file.fileno(), left)
            if left < 0:
                raise InputError(f"{path} has too much content: it is not unpacked", "ask for another bundle")


def write_bundle(
    target: str | os.PathLike[str],
    report: bytes,
    manifest: Mapping[str, object],
    files: Iterable[tuple[str, Path | bytes]] = (),
) -> None:
    """Writes a bundle.

    Args:
        target: the file, which is created or overwritten.
        report: as JSON.
        manifest: more keys for the manifest.
        files: name in the run directory and content, or the file that has it.

    Raises:
        OSError: a file cannot be read, or the bundle not be written.
    """
    with zipfile.ZipFile(target, "w", _compression) as archive:
        archive.writestr(_MANIFEST, json.dumps({"schema": SCHEMA, "version": VERSION, **manifest}, indent=1) + "\n")
        archive.writestr(_REPORT, report)
        for name, content in files:
            if isinstance(content, bytes):
                archive.writestr(_RUN + name, content)
                continue
            with regular_file(content) as file, archive.open(_RUN + name, "w", force_zip64=True) as out:
                offset, nbytes = 0, os.fstat(file).st_size
                while offset < nbytes and (part := os.pread(file, min(_AT_ONCE, nbytes - offset), offset)):
                    out.write(part)
                    offset += len(part)


def run_files(directory: Path) -> Iterator[tuple[str, Path]]:
    """The files of a run directory that a bundle takes, by name; others, and links, are somebody else's."""
    for folder, prefix in ((directory, ""), (directory / "boxes", "boxes/"), (directory / "gpu-cores", "gpu-cores/")):
        if not folder.is_dir() or folder.is_symlink():
            continue
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda item: item.name):
                if entry.is_file(follow_symlinks=False) and _is_of_a_run(prefix, entry.name):
                    yield prefix + entry.name, Path(entry.path)


def _is_of_a_run(prefix: str, name: str) -> bool:
    if not _MEMBER.fullmatch(prefix + name):
        return False
    if prefix:
        return name.endswith(".blackbox" if prefix == "boxes/" else ".nvcudmp")
    if _TASK_FILE.fullmatch(name):
        return True
    return name in ("run.json", "hang.json") or name.startswith("counters.") or name.endswith(".blackbox")


def _manifest(archive: zipfile.ZipFile, path: str) -> Mapping[str, object]:
    try:
        manifest = load_json(_content(archive, _MANIFEST, MIB))
    except (KeyError, ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise InputError(f"{path} is no bundle of a run", "`pytracer pack RUN` makes one")
    version = manifest.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise InputError(
            f"{path} is a bundle of version {version}, this pytracer reads {VERSION}", "install a newer pytracer"
        )
    return manifest


def _content(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    item = archive.getinfo(name)
    if item.file_size > most:
        raise ValueError("too large")
    with _member(archive, item) as file:
        return file.read(most)


@contextlib.contextmanager
def _member(archive: zipfile.ZipFile, item: zipfile.ZipInfo) -> Iterator[zipfile.ZipExtFile]:
    if item.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA):
        raise zipfile.BadZipFile(f"{item.filename} is compressed in another way")
    with archive.open(item) as file:
        yield file  # type: ignore[misc]


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[zipfile.ZipFile]:
    name = os.fspath(path)
    try:
        with (
            regular_file(name, follow=True) as file,
            os.fdopen(os.dup(file), "rb") as stream,
            zipfile.ZipFile(stream) as archive,
        ):
            yield archive
    except FileNotFoundError:
        raise InputError(f"{name} does not exist", "check the path") from None
    except (RuntimeError, NotImplementedError) as error:  # also: a Python without lzma
        raise InputError(f"{name} cannot be read by this Python: {error}", "use another Python") from None
    except _DAMAGE as error:
        raise InputError(f"{name} is damaged: {error}", "copy it again") from None


def _copy_sparse(parts: Iterator[bytes], file: int, left: int) -> int:
    """Writes content with holes for pages of zeros; returns what is left of `left`, negative if that was too little."""
    offset = 0
    for part in parts:
        for at in range(0, len(part), _PAGE):
            page = part[at : at + _PAGE]
            if page.count(0) != len(page):
                left -= len(page)
                if left < 0:
                    return left
                os.pwrite(file, page, offset + at)
        offset += len(part)
    os.ftruncate(file, offset)
    return left
