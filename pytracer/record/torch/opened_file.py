"""The file that a failed load, save or open was about: its path, what is there now, and what lies beside it.

The path is what the exception names, what a library's reading function was given, or the one file that the program's
line has open. A few bytes of a file are read, to know its kind; no content is recorded. Only strings, paths and file
objects of exactly Python's types are looked at: asking those runs no code of the program.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import io
import os
import pathlib
import re
import stat
import sys
import time
from collections.abc import Iterator
from types import FrameType, ModuleType, TracebackType

from pytracer._library_files import is_library_file
from pytracer.blackbox.redaction import redact_text
from pytracer.record.config import records_values
from pytracer.record.torch.descriptors import chain, errno_of, message_of
from pytracer.record.torch.open_writers import open_writers

_GIVEN = ("name_or_buffer", "filename", "file", "fname", "path", "filepath", "filepath_or_buffer", "fp", "f", "stream")
_READERS = re.compile(
    r"/(?:torch/(?:serialization|_weights_only_unpickler)|numpy/lib/|numpy/_?core/memmap|json/|codecs|pickle|zipfile|tarfile|gzip|lzma|bz2"
    r"|yaml/|tomllib/|configparser|csv|safetensors/|h5py/|PIL/|pandas/io/|torchvision/io/|torchaudio/|soundfile)"
)
_FILES = (io.BufferedReader, io.TextIOWrapper, io.BufferedRandom)
_WRITERS = (io.BufferedWriter, io.TextIOWrapper, io.BufferedRandom, io.FileIO)
_PATHS = (str, pathlib.PosixPath)
_MAPS = re.compile(r"/numpy/_?core/memmap\.py$")
# Types and messages of what reading or writing a file raises, beside OSError.
_OF_FILES = re.compile(
    r"EOFError|Unpickling|JSONDecode|UnicodeDecode|BadZip|ReadError|BadGzip|LZMAError|Safetensor|UnidentifiedImage"
    r"|PytorchStream|[Pp]arent directory|[Ww]eights only load failed|zip archive|unexpected EOF|[Ii]nvalid magic"
    r"|allow_pickle|pickled data|No data left in file|as a pickle|magic string|cannot reshape array|corrupt|truncated"
    r"|ParserError|ScannerError|state_dict|read all data|fully written"
    r"|Can't get attribute|ended before the end|not a gzip|mmap length|unexpected pos \d|iostream error"
    r"|[Uu]nable to (?:open|read)|mmap can only be used with files"
)
# Of a write that was refused.
_NO_ROOM = re.compile(r"PytorchStreamWriter|unexpected pos \d|iostream error|file write failed|[Nn]o space left")
_OF_ROOM = (errno.ENOSPC, errno.EDQUOT)
_LFS = b"version https://git-lfs"
_KINDS = (
    (b"PK\x03\x04", "zip"), (b"\x80", "pickle"), (_LFS, "lfs"), (b"\x89HDF", "hdf5"), (b"\x93NUMPY", "numpy"),
    (b"\x1f\x8b", "gzip"), (b"<", "html"), (b"{", "json"),
)  # fmt: skip
_END_OF_ZIP, _END_BYTES = b"PK\x05\x06", 22  # torch and NumPy write no comment behind it
_HEAD_BYTES = 256  # a pointer of Git LFS has fewer
_AWAY = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENOTCONN, errno.ENODEV, errno.EREMOTEIO)
_LONGEST, _MOST_ENTRIES, _MOST_LOCALS, _MOST_NAMED = 1024, 1024, 64, 4
_LIKE = 0.75
_FRESH_S = 600  # a file that was changed longer ago is not being written
_OF_LOADED = (KeyError, AttributeError)  # of what was loaded from a file: its name is enough
_SUFFIX = re.compile(r"\w\.\w{1,12}$")
_DIGITS = re.compile(r"\d+")


def opened_file(error: BaseException, trace: TracebackType | None) -> list[dict[str, str]]:
    """As the variables `file`, `file size`, `file kind` and so on; nothing where no file is known.

    `file of path`: for each variable of the program's frame that names a file that is there.
    """
    of_files = _is_of_files(error)
    if not records_values() or not (of_files or isinstance(error, _OF_LOADED)):
        return []
    frames = []
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    frames.reverse()
    own = next((item for item in frames if not is_library_file(item.f_code.co_filename)), None)
    found = [] if own is None else [{"name": f"file of {name}", "value": path} for name, path in _named(own, of_files)]
    refused = of_files and _is_refused_write(error)
    path, holder = _path(error, frames, own, written=refused) if of_files else (None, None)
    if path is None or _secret(path):
        return found
    facts = {"file": path, **({"file held by": holder} if holder is not None else {}), **_asked(frames)}
    for part in (_facts, _room, _alike) if refused else (_facts,):
        with contextlib.suppress(OSError, ValueError):
            facts |= part(path)
    return [*({"name": name, "value": value} for name, value in facts.items()), *found]


def held_file(frame: FrameType) -> str | None:
    """The path of the only file that a variable of a frame reads from."""
    path, _ = _held(frame, written=False)
    return None if path is None or _secret(path) else path


def _is_of_files(error: BaseException) -> bool:
    """Nothing is asked of a file system for others: a disk may not answer, and the process is to end."""
    if isinstance(error, OSError):
        return error.errno not in _AWAY
    message = error.args[0] if error.args and type(error.args[0]) is str else ""
    return _OF_FILES.search(f"{type(error).__name__} {message}") is not None


def _is_refused_write(error: BaseException) -> bool:
    """Whether it, or what it was raised for, may come of a file system that is full."""
    return any(errno_of(item) in _OF_ROOM or _NO_ROOM.search(message_of(item)) for item in chain(error))


def _path(
    error: BaseException, frames: list[FrameType], own: FrameType | None, *, written: bool
) -> tuple[str | None, str | None]:
    """And the variable of the program's frame whose file it is."""
    named = OSError.filename.__get__(error) if isinstance(error, OSError) else None
    if type(named) in _PATHS:
        return _text(named), None
    for frame in frames:
        if frame is own:
            return _held(frame, written=written)
        for name in _GIVEN if _READERS.search(frame.f_code.co_filename) else ():
            path = _text(frame.f_locals.get(name)) if name in frame.f_code.co_varnames else None
            if path is not None:
                return path, None
    return None, None


def _asked(frames: list[FrameType]) -> dict[str, str]:
    """How many bytes of the file numpy.memmap() was to map, from its begin on (numpy 1.22 to 2.x)."""
    last = frames[0] if frames else None
    if last is None or not _MAPS.search(last.f_code.co_filename):
        return {}
    bounds = [last.f_locals.get(name) for name in ("start", "bytes")]
    sizes = [item for item in bounds if type(item) is int]
    return {"file asked size": str(sum(sizes))} if len(sizes) == len(bounds) else {}


def _held(frame: FrameType, *, written: bool) -> tuple[str | None, str | None]:
    """The only file that a variable reads from; or that it writes to."""
    held = list(frame.f_locals.items())[:_MOST_LOCALS]
    opened = [(name, item) for name, item in held if (_writes(item) if written else _reads(item))]
    return (_text(opened[0][1]), opened[0][0]) if len(opened) == 1 else (None, None)


def _reads(file: object) -> bool:
    return type(file) in _FILES and (type(file) is not io.TextIOWrapper or _mode(file) in ("r", "rt", "r+"))


def _writes(file: object) -> bool:
    return type(file) in _WRITERS and _mode(file) not in ("r", "rt", "rb")


def _mode(file: object) -> object:
    return getattr(file, "mode", None)  # of Python's own class


def _named(frame: FrameType, ask: bool) -> Iterator[tuple[str, str]]:
    """Variables with the path of a regular file; what looks like one, where the file system is not asked."""
    count = 0
    used = set(frame.f_code.co_names) if frame.f_code.co_name == "<module>" else None
    for name, value in list(frame.f_locals.items())[:_MOST_LOCALS]:
        if name.startswith("__") or (used is not None and name not in used) or type(value) not in _PATHS:
            continue
        path = _text(value)
        if path is None or ("." not in path and os.sep not in path) or "\n" in path or _secret(path):
            continue
        count += 1
        if not ask:
            if _SUFFIX.search(path):
                yield name, path
        else:
            with contextlib.suppress(OSError, ValueError):
                if stat.S_ISREG(os.stat(path).st_mode):
                    yield name, path
        if count == _MOST_NAMED:
            return


def _text(value: object) -> str | None:
    kind = type(value)
    if kind in _FILES or kind in _WRITERS:
        value = getattr(value, "name", None)  # of Python's own class; a number of an open descriptor is none
    elif kind is pathlib.PosixPath:
        value = str(value)
    return value if type(value) is str and 0 < len(value) <= _LONGEST and "\0" not in value else None


def _secret(path: str) -> bool:
    return bool(redact_text(path.encode("utf-8", "replace"))[1])


def _facts(path: str) -> dict[str, str]:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return _absent(path)
    if stat.S_ISDIR(status.st_mode):
        return {"file kind": "folder", **_newest(path)}
    if not stat.S_ISREG(status.st_mode):
        return {}
    age = max(0, int(time.time() - status.st_mtime))
    facts = {"file size": str(status.st_size), "file age": str(age)}
    with contextlib.suppress(OSError):
        facts |= _kind(path, status.st_size)
    with contextlib.suppress(OSError):
        facts |= _before(path, status)
    if age < _FRESH_S:
        with contextlib.suppress(OSError, ValueError):
            facts |= _written(path)
    return facts


def _written(path: str) -> dict[str, str]:
    """Which processes have it open for writing, itself perhaps among them."""
    pids = open_writers(path)[:_MOST_NAMED]
    return {"file written by": ",".join(map(str, pids))} if pids else {}


def _room(path: str) -> dict[str, str]:
    """Of the file system that it is on, or would be: bytes and files that this user may still have."""
    folder = path if os.path.lexists(path) else os.path.dirname(path) or "."
    status = os.statvfs(folder)
    facts = {
        "file system size": str(status.f_blocks * status.f_frsize),
        "file system free": str(status.f_bavail * status.f_frsize),
    }
    if status.f_files:  # some count none
        facts["file system files left"] = str(status.f_favail)
    return facts


def _alike(path: str) -> dict[str, str]:
    """How many files beside it, itself among them, have its name but for numbers, and their bytes."""
    files = [entry for entry in _entries_like(path) if entry.is_file(follow_symlinks=False)]
    sizes = [entry.stat(follow_symlinks=False).st_size for entry in files]
    return {"files alike": str(len(sizes)), "files alike size": str(sum(sizes))} if len(sizes) > 1 else {}


def _newest(folder: str) -> dict[str, str]:
    """Of the files in it."""
    files = [(item.stat().st_mtime, item.name) for item in _entries(folder) or () if item.is_file()]
    return {"file inside": max(files)[1], "file folder entries": str(len(files))} if files else {}


def _kind(path: str, size: int) -> dict[str, str]:
    if size == 0:
        return {"file kind": "empty"}
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        head = os.pread(descriptor, _HEAD_BYTES, 0)
        end = os.pread(descriptor, _END_BYTES, max(0, size - _END_BYTES))
    finally:
        os.close(descriptor)
    kind = next((name for begin, name in _KINDS if head.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(begin)), "other")
    if not head.strip(b"\0"):
        kind = "zeros"
    if kind == "zip" and not end.startswith(_END_OF_ZIP):
        kind = "cut zip"
    whole = re.search(rb"\nsize (\d{1,15})", head) if kind == "lfs" else None
    return {"file kind": kind, **({"file whole size": whole[1].decode()} if whole is not None else {})}


def _before(path: str, own: os.stat_result) -> dict[str, str]:
    """The newest file of the same kind of name that is older."""
    best: tuple[float, str, int] | None = None
    for entry in _entries_like(path):
        if entry.name == os.path.basename(path):
            continue
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(status.st_mode) and status.st_mtime <= own.st_mtime and (best or (0.0,))[0] < status.st_mtime:
            best = (status.st_mtime, entry.name, status.st_size)
    return {} if best is None else {"file before": best[1], "file before size": str(best[2])}


def _entries_like(path: str) -> list[os.DirEntry[str]]:
    """What lies beside it with its name but for numbers, itself among them; nothing among very many."""
    folder, name = os.path.split(path)
    found = _entries(folder or ".") or []
    return [entry for entry in found if _DIGITS.sub("#", entry.name) == _DIGITS.sub("#", name)]


def _entries(folder: str) -> list[os.DirEntry[str]] | None:
    """None for very many."""
    found: list[os.DirEntry[str]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if len(found) == _MOST_ENTRIES:
                return None
            found.append(entry)
    return found


def _absent(path: str) -> dict[str, str]:
    """The part of the path that is the first one missing, the folder that is there, and names in it like that one."""
    folder, name = os.path.split(path.rstrip(os.sep))
    while folder and folder != os.sep and not os.path.lexists(folder):
        folder, name = os.path.split(folder)
    facts = {"file kind": "absent", "file missing part": name, "file folder": folder or "."}
    with contextlib.suppress(OSError):
        entries = _entries(folder or ".")
        if entries is not None:
            names = [entry.name for entry in entries]
            lower = {item.lower(): item for item in names}
            like = difflib.get_close_matches(name.lower(), list(lower), 1, _LIKE) if len(name) < 100 else []
            facts["file folder entries"] = str(len(names))
            if like:
                facts["file like it"] = lower[like[0]]
    return {**facts, **_elsewhere(path)}


def _elsewhere(path: str) -> dict[str, str]:
    """Of a relative path: another folder from which it leads to something, and the current one.

    The shell of the start knew its folder as PWD: where that is another one, the process has left it.
    """
    if os.path.isabs(path):
        return {}
    here, module = os.getcwd(), sys.modules.get("__main__")
    main = module.__dict__.get("__file__") if type(module) is ModuleType else None  # runs no __getattr__() of it
    begun, script = os.environ.get("PWD", ""), os.path.dirname(os.path.abspath(main)) if type(main) is str else ""
    for folder in (begun, script, os.path.dirname(script)):
        if os.path.isabs(folder) and os.path.realpath(folder) != here and os.path.exists(os.path.join(folder, path)):
            left = {"file folder left": folder} if folder == begun else {}
            return {"file in folder": folder, "file current folder": here, **left}
    return {}
