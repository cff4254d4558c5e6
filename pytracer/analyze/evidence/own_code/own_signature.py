"""What the program's own native functions take, by their source: elements of which type each argument points at.

Of C: the pointers among the parameters. Of a torch extension: what a parameter's data_ptr() is cast to, which nothing
checks, unlike data_ptr<T>().
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.native.fault_function import is_own_frame
from pytracer.analyze.evidence.own_code.c_text import closing, declared_name, split
from pytracer.analyze.evidence.own_code.own_libraries import is_own_path
from pytracer.analyze.evidence.own_code.program_text import named_sources, program_sources
from pytracer.analyze.evidence.own_code.source_files import Source, source_levels, sources_before, sources_named
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

# Types whose elements are counted; `char` and `void` are any memory.
_BYTES = {
    "double": 8, "float": 4, "int64_t": 8, "uint64_t": 8, "long": 8, "long long": 8, "size_t": 8, "int": 4,
    "int32_t": 4, "uint32_t": 4, "unsigned int": 4, "unsigned": 4, "short": 2, "int16_t": 2, "uint16_t": 2,
    "unsigned short": 2, "unsigned long": 8,
}  # fmt: skip
_CTYPES = {
    "double": "c_double", "float": "c_float", "int64_t": "c_int64", "uint64_t": "c_uint64", "long": "c_long",
    "long long": "c_longlong", "size_t": "c_size_t", "int": "c_int", "int32_t": "c_int32", "uint32_t": "c_uint32",
    "unsigned int": "c_uint", "unsigned": "c_uint", "bool": "c_bool", "unsigned long": "c_ulong",
}  # fmt: skip
_KEYWORDS = r"(?:\*|\bconst\b|\b(?:__)?restrict(?:__)?\b|\s)*"
_POINTER = Pattern(rf"^(?P<type>[\w ]+?){_KEYWORDS}\*{_KEYWORDS}(?P<name>\w+)(?:\s*\[\s*\])?$")
_ARRAY = Pattern(r"^(?P<type>[\w ]+?)\s+(?P<name>\w+)\s*\[\s*\]$")
_QUALIFIERS = Pattern(r"\b(const|volatile|restrict|struct|std::|extern|static)\b")
_CAST = (
    r"(?:\((?:const\s+)?(?P<c>[\w ]+?)\s*\*\)|"
    r"(?:static|reinterpret)_cast<\s*(?:const\s+)?(?P<cpp>[\w: ]+?)(?:\s+const)?\s*\*\s*>\s*\()"
    r"\s*{}\s*\.\s*(?:mutable_|const_)?data_ptr\s*\(\s*\)"
)
_MOST_LINES, _HEAD_LINES = 200, 12


class Definition(msgspec.Struct, frozen=True):
    """A function that is written at `line` of `file`; `body`: its lines from there on."""

    place: str
    file: str
    line: int
    parameters: str
    body: str
    text: str = ""  # of the whole file


class Parameter(msgspec.Struct, frozen=True):
    """`double *out` of a function at `place`: `element` of `nbytes` bytes each; None where it points at none.

    `constant`: whether the function only reads there.
    """

    name: str
    element: str | None
    nbytes: int
    place: str
    constant: bool = False
    ctype: str | None = None  # of ctypes


def signature(view: ProcessView, function: str) -> tuple[Parameter, ...] | None:
    """Of the only function of that name in the sources of the program's libraries."""
    found = own_definition(view, function)
    if found is None:
        return None
    return tuple(parameter(item, found.place, found.body) for item in split(found.parameters))


def own_definition(view: ProcessView, function: str) -> Definition | None:
    """The only one in the sources of the program's libraries, or in those beside and below its Python files.

    Where none of these has it, in the C that the program itself has as text.
    """
    for level in levels_of(view, *libraries_and_folders(view)):
        found = {made.place: made for file, lines in level for made in definitions(file, lines, function)}
        if found:
            return next(iter(found.values())) if len(found) == 1 else None
    return None


class CalledDefinition(msgspec.Struct, frozen=True):
    """The source of the native function that a call of the program's innermost line calls, by its name."""

    call: ast.Call
    spot: Spot
    found: Definition


def called_definition(view: ProcessView) -> CalledDefinition | None:
    """None where the line calls none that a source of the program has, or more than one."""
    spot = Slice(view.process.snapshot, program_frames(view)).spot(0)
    calls = {name: item for item in calls_on(spot.tree, spot.line) if (name := called_name(item))} if spot else {}
    found = [(item, made) for name, item in calls.items() if (made := own_definition(view, name)) is not None]
    return CalledDefinition(found[0][0], spot, found[0][1]) if len(found) == 1 and spot is not None else None


def libraries_and_folders(view: ProcessView) -> tuple[list[str], list[str]]:
    """The program's own libraries that were loaded at the crash, and the folders of its Python files."""
    crash = view.crash
    own = {
        item.path
        for item in (crash.images if crash is not None else ())
        if item.path and is_own_path(item.path) and is_own_frame(NativeFrame(image=item.path))
    }
    return sorted(own), sorted({os.path.dirname(frame.file) for frame in program_frames(view) if frame.file})


def levels_of(view: ProcessView, libraries: list[str], folders: list[str]) -> Iterator[list[Source]]:
    """The sources of these libraries, the surest first, and at last the C that the program itself has as text.

    Where all of them are gone, as with a temporary folder, what lies beside the program and is older than its process:
    the files that the program's text names first, as its own call of the compiler does.
    """
    yield from source_levels(libraries, folders)
    if libraries and not any(map(os.path.isfile, libraries)):
        snapshot = view.process.snapshot
        trees = program_files(snapshot, program_frames(view)).values()
        yield sources_named(snapshot.created_wall_ns, folders, named_sources(trees))
        yield sources_before(snapshot.created_wall_ns, folders)
    yield program_sources(view, libraries)


def argtypes(parameters: Sequence[Parameter]) -> str | None:
    """`[c_void_p, c_long]`; None where one of them has no equivalent that is known."""
    names = [item.ctype for item in parameters]
    return f"[{', '.join(name for name in names if name)}]" if all(names) else None


def definitions(file: str, lines: Sequence[str], function: str) -> Iterator[Definition]:
    """Those of that name, with a body."""
    head = re.compile(rf"^[A-Za-z_][\w:<>*&\s\"]*[\s*&]{re.escape(function)}\s*\(")
    for number, text in enumerate(lines):
        match = head.match(text)
        if match is None:
            continue
        whole = " ".join(lines[number : number + _HEAD_LINES])
        start = match.end() - 1
        end = closing(whole, start)
        if end is not None and whole[end + 1 :].lstrip().startswith("{"):
            name = os.path.basename(file)
            yield Definition(
                f"{name}:{number + 1}", name, number + 1, whole[start + 1 : end], _body(lines, number), "\n".join(lines)
            )


def _body(lines: Sequence[str], number: int) -> str:
    end = next((at for at in range(number + 1, len(lines)) if lines[at].startswith("}")), len(lines))
    return "\n".join(lines[number : min(end, number + _MOST_LINES)])


def parameter(text: str, place: str, body: str) -> Parameter:
    """Of a function at `place`, by its declaration, and by what its body casts it to."""
    plain = " ".join(_QUALIFIERS.sub(" ", text).split())
    match = _POINTER.match(plain) or _ARRAY.match(plain)
    if match is not None:
        element = " ".join(match["type"].split())
        known = element if element in _BYTES and plain.count("*") <= 1 else None
        constant = "const" in text.split("*")[0]
        return Parameter(match["name"], known, _BYTES.get(element, 0), place, constant, "c_void_p")
    name = declared_name(plain)
    casts = {
        (item["c"] or item["cpp"]).replace("std::", "").strip()
        for item in re.finditer(_CAST.replace("{}", re.escape(name)), body)
    }
    cast = casts.pop() if len(casts) == 1 else None
    ctype = _CTYPES.get(plain.rpartition(" ")[0])
    return Parameter(name, cast if cast in _BYTES else None, _BYTES.get(cast or "", 0), place, ctype=ctype)
