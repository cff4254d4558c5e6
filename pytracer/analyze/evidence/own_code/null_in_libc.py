"""A null pointer that the program's own C gave to a function of the C library, which does not ask.

`FILE *f = fopen(path, "r"); fgets(line, n, f);`. Read as text: only where one pointer alone of the call may be null,
and nothing but one other call sets it.
"""

from __future__ import annotations

import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.native.fault_function import is_own_frame
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.own_code.c_text import arguments_at, closing, function_around, statement_at
from pytracer.analyze.evidence.own_code.c_text import without_comments as plain
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.unchecked_result import UncheckedResult, returned_null
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

# Which argument of stdio.h's functions is the stream, and of dirent.h's the directory.
_STREAM = {
    "fprintf": 0, "vfprintf": 0, "fscanf": 0, "vfscanf": 0, "fgets": 2, "fputs": 1, "fputc": 1, "putc": 1, "fgetc": 0,
    "getc": 0, "fread": 3, "fwrite": 3, "fclose": 0, "pclose": 0, "fseek": 0, "fseeko": 0, "ftell": 0, "ftello": 0,
    "rewind": 0, "getline": 2, "getdelim": 3, "feof": 0, "ferror": 0, "fileno": 0, "setvbuf": 0, "setbuf": 0,
    "ungetc": 1, "readdir": 0, "closedir": 0,
}  # fmt: skip
_TEXT = (
    "strlen", "strcmp", "strncmp", "strcasecmp", "strcpy", "strncpy", "strcat", "strncat", "strdup", "strchr",
    "strrchr", "strstr", "atoi", "atol", "atoll", "atof", "strtol", "strtoul", "strtoll", "strtod", "strtof", "sscanf",
    "memcpy", "memmove", "memcmp", "memset",
)  # fmt: skip
_LOCKED = ("readdir", "closedir")  # of which the lock is written first
_CALLS = Pattern(rf"(?<![\w.>])(?:std\s*::\s*)?(?P<name>{'|'.join((*_STREAM, *_TEXT))})\s*\(")
_LIBC, _COPIES = Pattern(r"^libc[.-]"), Pattern(r"^_*(?:mem|str|wmem|wcs)")
_NAME = Pattern(r"^[A-Za-z_]\w*$")
_PARTS = Pattern(r"^(?P<called>strtok|strtok_r|strsep)\s*\(")
_ALSO_IN_LOOP = 2
_STEPPED = (1 << 64) - 64  # null - 1, from which a loop over a text goes on


def null_in_libc(view: ProcessView) -> UncheckedResult | None:
    """None where another pointer of the call may be null, or the function tests it."""
    frames, instruction = own_frames(view), view.instruction
    frame = next((item for item in frames if is_own_frame(item)), None)
    inner = frames[: frames.index(frame)] if frame is not None else []
    if not inner or not all(_LIBC.match(image_name(item.image)) for item in inner):
        return None
    source = own_source(frame) if frame is not None else None
    if frame is None or source is None or source[0].line is None or instruction is None:
        return None
    if instruction.base_value is None or 0 < instruction.base_value < _STEPPED:
        return None
    lines = frame.lines or []
    if source[0] not in lines or any(item.function not in _TEXT for item in lines[: lines.index(source[0])]):
        return None  # in a function that the compiler put into it, but for the C library's own
    file, number, text = source[0].file or "", source[0].line, plain("\n".join(source[1]))
    place = statement_at(text.split("\n"), number)
    access = view.fault.access if view.fault is not None else None
    name = _given(text, place, number, inner[0], access)
    if name is None:
        return None
    found = returned_null(view, frame, (file, _without_uses(text, name)), name, place, place, number)
    return found or _no_part_left(file, text, name, place, number)


def _no_part_left(file: str, text: str, name: str, place: int, number: int) -> UncheckedResult | None:
    """Of a variable that nothing but strtok() and the like sets, again in a loop, and that nothing asks for."""
    around = function_around(text, place)
    end = closing(text, around.body) if around is not None else None
    if around is None or end is None:
        return None
    own = rf"(?<![\w.>]){re.escape(name)}\b"
    sets = [*re.compile(rf"{own}\s*=(?!=)\s*(?P<value>[^;]*);").finditer(text, around.body, end)]
    calls = [_PARTS.match(item["value"].strip()) for item in sets]
    if len(sets) < _ALSO_IN_LOOP or not all(calls) or not around.body < sets[0].start() < place:
        return None
    rest = re.sub(rf"{own}\s*=(?!=)[^;]*;|\*\s*{own}\s*;", "", text[around.body : end])
    if re.search(own, re.sub(rf"\b(?:{'|'.join(_TEXT)})\s*\(\s*{own}", "", rest)) is not None:
        return None
    made, first = sets[-1], line_in(file, text.count("\n", 0, sets[0].start()) + 1, None)
    function = made["value"].partition("(")[0].strip()
    return UncheckedResult(
        name,
        " ".join(made["value"].split()),
        around.name,
        line_in(file, text.count("\n", 0, made.start()) + 1, None).then(f" (or {first}, of an empty text)"),
        line_in(file, number, None),
        when=f" {function}() returns null where the text has no further part: compare how many parts it has with how "
        "many are taken.",
    )


def _given(text: str, place: int, number: int, inner: NativeFrame, access: str | None) -> str | None:
    """The only pointer that the line gives to a function of the C library and that may be null.

    A stream is read first: what is written is what such a function fills, `fscanf(f, "%f", out)`.
    """
    lines, around = text.split("\n"), function_around(text, place)
    names = {match["name"] for match in _CALLS.finditer(lines[number - 1])}
    called = names.pop() if len(names) == 1 else None
    given = arguments_at(lines, number, called) if called is not None else None
    if called is None or given is None or around is None:
        return None
    if called in _STREAM:
        at, is_copy = _STREAM[called], _COPIES.match(inner.function or "") is not None
        fills = access == "write" and called not in _LOCKED
        return given[at] if not is_copy and not fills and at < len(given) and _NAME.match(given[at]) else None
    body = text[around.body : closing(text, around.body)]
    maybe = [item for item in given if not _is_known(item, body)]
    return maybe[0] if len(maybe) == 1 and _NAME.match(maybe[0]) else None


def _is_known(value: str, body: str) -> bool:
    """Whether an argument is no null pointer: a text, a number, the address of a variable, or a local array."""
    if value.startswith(('"', "'", "&", "sizeof")) or re.fullmatch(r"[\d.]+\w*", value):
        return True
    named = re.escape(value)
    declares = rf"\w\s+{named}\s*(?:\[|=|;|,)"  # `char line[80]`, `size_t n = 4`: without a star
    return bool(_NAME.match(value)) and re.search(declares, body) is not None


def _without_uses(text: str, name: str) -> str:
    """Without the pointer where it is given to these functions: none of them lets a null pointer pass."""
    parts, last = [], 0
    for match in _CALLS.finditer(text):
        end = closing(text, match.end() - 1)
        if end is None or match.start() < last or match["name"] not in _STREAM:
            continue
        hidden = re.sub(rf"(?<![\w.>]){re.escape(name)}\b", " " * len(name), text[match.end() : end])
        parts += [text[last : match.end()], hidden]
        last = end
    return "".join([*parts, text[last:]])
