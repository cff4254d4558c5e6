"""Numbers that C source reads from a file, and the line of the Python program that writes a file of that name.

`fscanf(f, "%d", head + i)` of `f = fopen(p, "r")`, where `p` was printed from `"%s/train2id.txt"`. Read as text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.failing.stored.paths import path_parts
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.c_text import Function, closing, split
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_READS = Pattern(r"\b(?P<by>fscanf|fread)\s*\(")
_PRINTS = r"\b(?:snprintf|sprintf|strcpy|strcat|strncat|strncpy)\s*\(\s*{}\s*,(?P<rest>[^;]*);"
_STRING = Pattern(r'"((?:\\.|[^"\\\n])*)"')
_FILE_NAME = Pattern(r"^[^/%\\]+\.\w+$")
_OF_PATH = frozenset({"savetxt", "tofile", "to_csv", "save", "writetext"})
_OWNERS = frozenset({"write_text", "write_bytes"})
_OPENS, _WRITES, _QUOTED = "open", Pattern(r"[wax+]"), 60


class ReadNumbers(msgspec.Struct, frozen=True):
    """Line `line` of the source reads them, from `file` (`train2id.txt`); None where its name is not shown."""

    line: int
    by: str
    file: str | None


class WritingLine(msgspec.Struct, frozen=True):
    """`text`, the call at `line` that writes the file."""

    line: LineWords
    text: str


def numbers_read(text: str, around: Function, place: int, name: str) -> ReadNumbers | None:
    """Of a variable or an array, by the only call of its function that reads it, before a place; None if by others.

    Args:
        text: The source, without its comments.
        around: The function that the place is in.
        place: An offset.
        name: `head` of `fscanf(f, "%d", head + i)` and `&head[i]`.
    """
    calls = [(match, _given(text, match)) for match in _READS.finditer(text, around.body, place)]
    found = [item for item in calls if any(_is_of(into, name) for into in _into(item[0]["by"], item[1]))]
    if len(found) != 1 or _is_changed(text[around.body : place], name):
        return None
    match, given = found[0]
    stream = given[0] if match["by"] == "fscanf" else given[-1]
    file = _file(text[around.body : match.start()], stream) if re.fullmatch(r"\w+", stream) else None
    return ReadNumbers(text.count("\n", 0, match.start()) + 1, match["by"], file)


def writing_line(view: ProcessView, file: str) -> WritingLine | None:
    """The only call of the program's files that writes a file of that name."""
    frames = program_frames(view)
    back = Slice(view.process.snapshot, frames)
    found = [
        (path, node)
        for path, tree in program_files(view.process.snapshot, frames).items()
        for node in nodes_of(tree)
        if isinstance(node, ast.Call)
        and (target := _target(node)) is not None
        and path_parts(back, target, Spot(path, tree, scope_of(tree, node.lineno), node.lineno))[-1:] == (file,)
    ]
    if len(found) != 1:
        return None
    path, node = found[0]
    return WritingLine(place_of(view, path, node.lineno), shortened(ast.unparse(node), _QUOTED))


def _is_changed(body: str, name: str) -> bool:
    """Whether the function computes with what it read, or sets an element itself."""
    own, changes = re.escape(name), r"(?:[-+*/%&|^]|<<|>>)"
    return re.search(rf"(?<![\w.>]){own}\s*(?:\[[^\]]*\]\s*{changes}?|{changes})=(?!=)", body) is not None


def _given(text: str, call: re.Match[str]) -> tuple[str, ...]:
    end = closing(text, call.end() - 1)
    return split(text[call.end() : end]) if end is not None else ()


def _into(by: str, given: tuple[str, ...]) -> tuple[str, ...]:
    """What a call reads into."""
    return given[2:] if by == "fscanf" else given[:1]


def _is_of(text: str, name: str) -> bool:
    own = re.escape(name)
    return re.fullmatch(rf"(?:\([^()]*\)\s*)?(?:&\s*{own}(?:\s*\[.*\])?|{own}(?:\s*\+.*)?)", text.strip()) is not None


def _file(before: str, stream: str) -> str | None:
    """By the last fopen() for a stream."""
    opens = list(re.finditer(rf"(?<![\w.>]){re.escape(stream)}\s*=\s*fopen\s*\(", before))
    end = closing(before, opens[-1].end() - 1) if opens else None
    given = split(before[opens[-1].end() : end]) if end is not None else ()
    if not given:
        return None
    texts = [given[0]]
    if re.fullmatch(r"\w+", given[0]):
        printed = list(re.finditer(_PRINTS.replace("{}", re.escape(given[0])), before[: opens[-1].start()]))
        texts = [printed[-1]["rest"]] if printed else []
    names = [item.rpartition("/")[2] for text in texts for item in _STRING.findall(text)]
    known = [item for item in names if _FILE_NAME.match(item)]
    return known[0] if len(known) == 1 else None


def _target(call: ast.Call) -> ast.expr | None:
    """The path that a call writes to."""
    name = called_name(call)
    if name in _OWNERS and isinstance(call.func, ast.Attribute):
        return call.func.value
    first = next(iter(call.args), None)
    if first is None or isinstance(first, ast.Starred):
        return None
    if name == _OPENS:
        return first if _has_mode(call) else None
    return first if name in _OF_PATH else None


def _has_mode(call: ast.Call) -> bool:
    """Whether `open()` is told to write."""
    given = [item for item in (*call.args[1:2], keyword_value(call, "mode")) if item is not None]
    modes: Iterator[object] = (item.value for item in given if isinstance(item, ast.Constant))
    return any(isinstance(item, str) and _WRITES.search(item) for item in modes)
