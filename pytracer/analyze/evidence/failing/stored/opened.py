"""The file that a failed load, save or open was about: what was wrong with it when the exception was raised."""

from __future__ import annotations

import ast
import os
import re

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital, size_words
from pytracer.analyze.behind import places_in
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.slashed_names import with_slash
from pytracer.analyze.evidence.limits.kept_files import kept_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_CHARACTER = Pattern(r"\(char (\d+)\)$")
_PARENT = Pattern(r"^Parent directory .* does not exist")
_WRITES = Pattern(r"\b(?:save|dump|write)|[Ww]riter")
_WEB_PAGE = ("UnpicklingError", "JSONDecodeError", "BadZipFile", "UnidentifiedImageError")
_SHORT = Pattern(  # NumPy, gzip, PIL, torchvision, HDF5
    r"could only read \d|not fully written|ended before the end|image file is truncated|[Uu]nexpected EOF"
    r"|unable to (?:\w+ )?open file \(truncated file", re.IGNORECASE,
)  # fmt: skip
_MAPPED = "mmap length"
_GETTER = Pattern(r"\b__getitem__$")
_DECODED = Pattern(r"'([\w-]+)' codec can't decode byte 0x([0-9a-f]{2}) in position")
_BINARY = {"zip": "zip archive", "gzip": "gzip file", "pickle": "pickle", "hdf5": "HDF5 file", "numpy": "NumPy array"}
_NO_LETTER = 0xBF  # letters follow, in both
_DIGITS = Pattern(r"\d+")
_CHECKPOINT = Pattern(r"ckpt|check|epoch|step|iter|model|state|last|weight|\.(?:pt|pth|tar)$", re.IGNORECASE)
_NO_DIRECTORY = "failed finding central directory"
_HALF = 2
_OPENERS = ("open", "File", "memmap", "ZipFile", "open_memmap", "Reader", "Dataset")
_JUST_NOW = 60  # seconds


class OpenedFile(msgspec.Struct, frozen=True):
    """As it was at the exception. `before`: the newest file of a like name that is older, with its size.

    `holder`: the variable that reads from it, where no function of a library was given it. `writer_pids`: processes
    that had it open for writing then.
    """

    path: str
    kind: str | None
    size: int | None
    age_seconds: int | None
    before: tuple[str, int] | None
    whole_size: int | None
    holder: str | None
    writer_pids: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Without its folders."""
        return os.path.basename(self.path.rstrip("/")) or self.path


def opened(values: dict[str, str]) -> OpenedFile | None:
    """From what the recorder wrote beside the variables of the line."""
    path = values.get("file")
    if path is None:
        return None
    before, before_size = values.get("file before"), number_of(values, "file before size")
    return OpenedFile(
        path,
        values.get("file kind"),
        number_of(values, "file size"),
        number_of(values, "file age"),
        (before, before_size) if before is not None and before_size is not None else None,
        number_of(values, "file whole size"),
        values.get("file held by"),
        tuple(int(pid) for pid in values.get("file written by", "").split(",") if pid.isascii() and pid.isdecimal()),
    )


def number_of(values: dict[str, str], name: str) -> int | None:
    """What the recorder counted."""
    text = values.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() else None


def broken_file(at: FailingLine) -> str | None:
    """One that is there, and is not what was to be read."""
    file, what = opened(at.values), file_subject(at)
    if file is None or what is None or file.kind == "folder":
        return None
    if file.kind == "absent":
        return (
            f"{file.name} was incomplete: most likely its writer was ended half way, or had no room. Go back to the "
            "one before it; write to another name, and os.replace() it when whole."
        )
    if file.kind == "lfs":
        return (
            f"{what}: a clone without Git LFS has only these. Run `git lfs install` and "
            f"`git lfs pull` there, or download {file.name} itself and compare its size."
        )
    if file.kind == "html":
        return (
            f"The file that line {at.line} reads begins with '<': it is a web page or XML, as a download saves a login "
            "page or an error under that name. Open it in a text editor; delete it, and download the file itself anew."
        )
    since = (
        f", changed {file.age_seconds} s ago" if file.age_seconds is not None and file.age_seconds < _JUST_NOW else ""
    )
    back = "Delete it, and write it anew"
    samples = at.dataset is not None or any(_GETTER.search(frame.function or "") for frame in at.frames)
    if samples:
        back = "Write or download it anew, or leave it out of the dataset's list"
    elif (
        _CHECKPOINT.search(file.name)
        and file.before is not None
        and file.before[1] > (file.size or 0) // _HALF
        and file.before[1]
    ):
        back = f"Delete it, and go back to {file.before[0]} beside it ({size_words(file.before[1])})"
    return (
        f"{file.name} has {size_words(file.size or 0)}{since}: most likely its writer was ended half way, or had no "
        f"room. {back}; write such files to another name, and os.replace() them when whole."
    )


def file_subject(at: FailingLine) -> str | None:
    """What the headline says of it; None where nothing is known to be wrong with it."""
    file = opened(at.values)
    if file is None or at.message.startswith("[Errno") or any(_WRITES.search(item.function or "") for item in at.stack):
        return None
    if file.holder is not None and (at.node is None or file.holder not in names_in(at.node)):
        return None
    size = size_words(file.size or 0)
    if at.kind == "UnicodeDecodeError":
        return None
    if file.kind == "empty":
        return f"{file.name} is empty (0 bytes)"
    if file.kind == "cut zip":
        return f"{file.name} is cut off ({size}, without the end of its zip archive)"
    if file.kind == "zeros" and file.size:
        return f"{file.name} begins with zeros ({size}): its content never reached the disk"
    if file.kind == "lfs":
        whole = f" of {size_words(file.whole_size)}" if file.whole_size is not None else ""
        return f"{file.name} ({size}) is a pointer of Git LFS, not the file{whole}"
    if file.kind == "html" and at.kind in _WEB_PAGE:
        return f"{file.name} is a web page or XML"
    if file.kind == "absent" and _NO_DIRECTORY in at.message:  # a temporary folder, removed since
        return f"{file.name} ends too early (its zip archive has no central directory)"
    found = _CHARACTER.search(at.message)
    mapped = file.kind == "numpy" and _MAPPED in at.message  # its header has the shape; other files have none
    if file.kind not in (None, "absent", "folder") and (mapped or _SHORT.search(at.message)):
        return f"{file.name} is cut off ({size})"
    if at.kind == "JSONDecodeError" and found is not None and file.size is not None and int(found[1]) >= file.size:
        return f"{file.name} is cut off after {size}"
    return None


def folder_for_file(at: FailingLine) -> str | None:
    """A folder where a file is wanted."""
    path, inside, count = (at.values.get(name) for name in ("file", "file inside", "file folder entries"))
    if at.kind != "IsADirectoryError" or path is None:
        return None
    call = at.only(ast.Call)
    given = call.args[0] if call is not None and call.args else None
    called = called_name(call) if call is not None else None
    if called in ("remove", "unlink", "replace", "rename", "move", "link", "symlink"):  # of two, which one is not known
        return None
    two = called in ("copyfile", "copy")  # the second may be meant
    name = f"`{source(given)}`{at.came(ast.unparse(given))}" if given is not None and not two else path
    there = f" with {count} files, the newest '{inside}'" if inside is not None and count != "1" else ""
    there = f" with one file, '{inside}'" if inside is not None and count == "1" else there or " without files"
    return f"{name} is a folder{there}, and a file is wanted: give the path of the file in it."


def absent_file(at: FailingLine) -> str | None:
    """One that is not there: the first part of its path that is missing, and a name like it."""
    part, folder, path = (at.values.get(name) for name in ("file missing part", "file folder", "file"))
    if part is None or folder is None or path is None:
        return None
    if at.kind != "FileNotFoundError" and not _PARENT.search(at.message):
        return None
    joined = _made_folder(at, path, folder, part)
    if joined is not None:
        return joined
    if part.rstrip() != part:
        return (
            f"The path ends with {part[len(part.rstrip()) :]!r}{_names(at, path)}, and {folder} may have the rest: a "
            "line that is read from a file keeps its line break. Take it away where the name is read, by .strip()."
        )
    like = _other_name(at, part)
    count = at.values.get("file folder entries")
    if like is not None:
        return (
            f"{folder} has '{like}' and no '{part}'{_names(at, path)}: correct the name where the path is made, or "
            "rename the file."
        )
    if _PARENT.search(at.message):
        return (
            f"{folder} has no '{part}'{_names(at, path)}, and what line {at.line} calls makes no folder: call "
            "os.makedirs(os.path.dirname(path), exist_ok=True) before it, with the path that is written."
        )
    if count == "0":
        named = "The current folder" if folder == "." else folder
        return f"{named} is empty{_names(at, path)}: nothing has been written to it, or another folder is meant."
    return None


def absent_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    part, folder = (at.values.get(name) for name in ("file missing part", "file folder"))
    if part is None or folder is None or (at.kind != "FileNotFoundError" and not _PARENT.search(at.message)):
        return None
    slash = with_slash(at, at.values.get("file", ""), folder, part)
    if slash is not None:
        return f"`{slash[0]}` has a '/' in it, '{slash[1]}'"
    if part.rstrip() != part:
        return f"the path ends with {part[len(part.rstrip()) :]!r}, as a line of a file does"
    like = _other_name(at, part)
    return f"{folder} has '{like}', and no '{part}'" if like is not None else None


def _other_name(at: FailingLine, part: str) -> str | None:
    """A name like the missing one, which is no other number of a row."""
    like = at.values.get("file like it")
    return like if like is not None and _DIGITS.sub("#", like) != _DIGITS.sub("#", part) else None


def no_text(at: FailingLine) -> str | None:
    """A file that is read as text in another encoding than it has."""
    found, file = _DECODED.search(at.message), opened(at.values)
    if at.kind != "UnicodeDecodeError" or found is None or file is None:
        return None
    name = file.name
    if file.kind in _BINARY:
        return (
            f"{name} is no text but a {_BINARY[file.kind]}: open it by what reads that, or with mode 'rb'. If a loop "
            "over a folder came to it, select files by their suffix."
        )
    if found[1] not in ("utf-8", "ascii"):
        return None
    byte = int(found[2], 16)
    if found[1] == "ascii":
        return (
            f"{name} has bytes that are no ASCII, and line {at.line} reads it as the locale asks: pass "
            "encoding='utf-8' where it is opened, or set PYTHONUTF8=1 (a container without a locale has ASCII)."
        )
    letter = bytes([byte]).decode("latin-1")
    meant = f" (0x{byte:02x} is '{letter}' in Latin-1 and Windows-1252)" if byte > _NO_LETTER else ""
    return (
        f"{name} is not UTF-8{meant}: open it with the encoding that it has, such as encoding='cp1252', or save it as "
        "UTF-8. errors='replace' shows where the odd bytes are."
    )


def text_file_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    file = opened(at.values) if no_text(at) is not None else None
    if file is None:
        return None
    return f"{file.name} is a {_BINARY[file.kind]}" if file.kind in _BINARY else f"{file.name} has another encoding"


def kept_open(at: FailingLine) -> str | None:
    """Too many open files, by a line that keeps each."""
    if not at.message.startswith("[Errno 24]"):
        return None
    holder = keeper(at)
    if holder is None:
        files = kept_files(at.snapshot, at.frames)
        here = files is not None and (at.frame.file, at.line) in places_in([files.place, files.opener.place])
        how = "Raise `ulimit -n` only if so many are meant to be open at once."
        return f"{capital(files.words)}. {files.advice} {how}" if files is not None and here else None
    value = at.value(holder)
    held = f" ({value} by now)" if value is not None and " of " in value else ""
    return (
        f"Line {at.line} keeps each file that it opens in `{source(holder)}`{held}: more are open "
        "than `ulimit -n` allows. Open each by `with` where it is read, close the oldest when there are many, or raise "
        "the limit."
    )


def keeper(at: FailingLine) -> ast.expr | None:
    """What the line puts the file into that it opens: `self.files` of `self.files[path] = open(path)`."""
    holder: ast.expr | None = None
    statement = at.statement
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
        holder = statement.targets[0].value
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        holder = function.value if isinstance(function, ast.Attribute) and function.attr == "append" else None
    opens = [
        item
        for item in (nodes_of(statement) if holder is not None and statement is not None else ())
        if isinstance(item, ast.Call) and called_name(item) in _OPENERS
    ]
    return holder if opens else None


def _names(at: FailingLine, path: str) -> str:
    """The variable with the path, and its line."""
    call = at.only(ast.Call)
    given = call.args[0] if call is not None and call.args else None
    return f" (`{source(given)}`{at.came(given.id)})" if isinstance(given, ast.Name) and path else ""


def _made_folder(at: FailingLine, path: str, folder: str, part: str) -> str | None:
    """A name with a slash in it, which makes a folder of the path: `f"{run}.pt"` of 'org/model'."""
    found = with_slash(at, path, folder, part)
    if found is None:
        return None
    name, text = found
    return (
        f"`{name}`{at.came(name)} is '{text}': its '/' makes a folder '{part}' of the file's name, which does "
        f"not exist. Use `{name}.replace('/', '_')` in the name, or make it (os.makedirs(os.path.dirname(...)))."
    )


def loaded_from(at: FailingLine, name: str) -> str | None:
    """`model_best.pth`, of a variable that a call loaded from a path of this function."""
    made = at.made(name)
    if made is None or not isinstance(made.node, ast.Call) or made.spot.depth != 0:
        return None
    if "load" not in (called_name(made.node) or "") or not made.node.args:
        return None
    path = at.values.get(f"file of {ast.unparse(made.node.args[0])}")
    return os.path.basename(path) if path is not None else None
