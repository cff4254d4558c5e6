"""The text that the program's own C++ took for a number: `std::stod(columns.at(2))`, the third column of a line.

libstdc++'s exception has the name of the function alone. The source shows which column of a line it was, how the line
is split, and which file that the program passes it was read from. Read as text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.native.aborts import cpp_exception
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import (
    arguments_at,
    calls_of,
    closing,
    defined,
    without_comments,
    without_parentheses,
)
from pytracer.analyze.evidence.own_code.native_bounds import assigned_value
from pytracer.analyze.evidence.own_code.passed_through import NAME, Level, given_for, levels
from pytracer.analyze.view import ProcessView

CONVERTERS = frozenset({"stoi", "stol", "stoul", "stoll", "stoull", "stof", "stod", "stold"})
_COLUMN = Pattern(r"^(?P<of>\w+)\s*(?:\.\s*at\s*\(|\[)\s*(?P<number>\d+)\s*[)\]]$")
_CALL = Pattern(r"^(?:\w+::)*(?P<by>\w+)\s*\((?P<given>.*)\)$")
_STREAM = r"\b(?:i?stringstream|istringstream)\s+(?P<stream>\w+)\s*[({{]\s*{}\s*[)}}]"
_OPENED = r"\bi?fstream\s+{}\s*[({{]\s*(?P<path>\w+)"
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_QUOTED = 60
_SOME = "some of its words"


class ConvertedText(msgspec.Struct, frozen=True):
    """`text` is given to `by`. `column`: of a line, from 0; `split`: at what, `white space` or `','`.

    `file`: what the line of Python passes for the name of the file that the line is read from, at `line`.
    """

    by: str
    text: str
    column: int | None
    split: str | None
    file: str | None
    line: str

    @property
    def _which(self) -> str:
        number = self.column or 0
        return f"{_ORDINALS[number]} column" if number < len(_ORDINALS) else f"column {number + 1}"

    @property
    def summary(self) -> str:
        """Behind the place."""
        at = f" (split at {self.split})" if self.split is not None else ""
        what = f"the {self._which} of a line" if self.column is not None else "a line"
        of = f" of the file `{self.file}`" if self.file is not None else ""
        return f"`{self.text}`, {what}{of}{at}, is no number"

    @property
    def advice(self) -> str:
        """Where to look, and what moves a column."""
        file = (
            f"the file that {self.line} passes (`{self.file}`)" if self.file is not None else "what the library reads"
        )
        if self.column is None:
            return f"Look for a line that is no number in {file}: an empty one, a heading, or a decimal comma."
        moved = ""
        if self.split is not None and self.column > 0:
            space = "a space" if self.split == "white space" else self.split
            moved = f", or {space} inside of a column before it, such as in a path or a name, which moves it"
        return (
            f"Look for a line whose {self._which} (`{self.text}`) is no number in {file}: a heading, a line of another "
            f"layout{moved}."
        )


def converted_text(view: ProcessView) -> ConvertedText | None:
    """None where the exception is another one, or the line has more than one such call."""
    exception = cpp_exception(view)
    if exception is None or exception.type != "std::invalid_argument" or exception.what not in CONVERTERS:
        return None
    frame = next(filter(is_of_own_image, own_frames(view)), None)
    way = [*levels(view, frame)] if frame is not None else []
    if not way or exception.what is None:
        return None
    _, lines, number = way[0]
    given = arguments_at(lines, number, exception.what)
    if not given:
        return None
    before = _before(way[0])
    text = given[0]
    value = assigned_value([before], text) if NAME.match(text) else None
    column = _COLUMN.match(value or text)
    line, split = _line_of(way[0], column["of"]) if column is not None else (text, None)
    file = _file(view, way, line) if line is not None else None
    if (split is None and file is None) or split == _SOME or (column is not None and _is_moved(way[0], column["of"])):
        return None
    shown = shortened(" ".join((value or text).split()), _QUOTED)
    index = int(column["number"]) if column is not None else None
    return ConvertedText(exception.what, shown, index, split, file, line_words(view))


def _before(level: Level) -> str:
    """The function up to its running line."""
    function, lines, number = level
    return without_comments("\n".join(lines[:number]))[function.body :]


def _line_of(level: Level, columns: str) -> tuple[str | None, str | None]:
    """The variable with the line that a container has the columns of, and what they are split at."""
    function, lines, _ = level
    text = without_comments("\n".join(lines))
    body = text[function.body : closing(text, function.body)]
    made = _CALL.match(" ".join((assigned_value([body], columns) or "").split()))
    if made is not None:
        inner = defined(text, made["by"])
        if len(inner) == 1:
            given = without_parentheses(made["given"].split(",")[0])
            inside = text[inner[0].body : closing(text, inner[0].body)]
            return (given if NAME.match(given) else None), _split_at(inside, None)
    streams = [*re.finditer(_STREAM.format(r"(?P<line>\w+)"), body)]
    if len(streams) != 1:
        return None, None
    return streams[0]["line"], _split_at(body, streams[0]["stream"])


def _is_moved(level: Level, columns: str) -> bool:
    """Whether items of a container may have got another place: `columns.erase(columns.begin())`."""
    own = re.escape(columns)
    return (
        re.search(
            rf"\b{own}\s*\.\s*(?:erase|insert|emplace|pop_front|push_front|swap|assign)\s*\("
            rf"|\b(?:erase|reverse|rotate|sort|swap|remove|unique)\w*\s*\([^;]*\b{own}\b",
            _before(level),
        )
        is not None
    )


def _split_at(body: str, stream: str | None) -> str | None:
    """Of a loop that takes one word after another from a stream; `_SOME` where it may leave one out."""
    name = re.escape(stream) if stream is not None else r"\w+"
    ends = [*re.finditer(rf"\bgetline\s*\(\s*{name}\s*,\s*\w+\s*,\s*(?P<mark>'(?:\\.|[^'])')\s*\)", body)]
    words = re.search(rf"\bwhile\s*\(\s*{name}\s*>>\s*\w+", body)
    split = ends[0] if len(ends) == 1 else words if not ends else None
    if split is None:
        return None
    kept = re.search(r"\b(?:push|emplace)_back\b", body[split.end() :])
    if re.search(r"\bif\b|\?", body[split.end() :][: kept.start() if kept is not None else None]):
        return _SOME
    return str(split["mark"]) if ends else "white space"


def _file(view: ProcessView, way: Sequence[Level], line: str) -> str | None:
    """What Python passes as the name of the file that getline() reads the line from, in this function or a caller."""
    name = line
    for number, level in enumerate(way):
        function, before = level[0], _before(level)
        reads = [given for _, given in calls_of(before, "getline") if len(given) == 2 and given[1] == name]
        if reads:
            opened = [*re.finditer(_OPENED.format(re.escape(reads[0][0])), before)]
            path = opened[0]["path"] if len(opened) == 1 else None
            given = given_for(view, way[number:], path) if path is not None else None
            return shortened(ast.unparse(_decoded(given)), _QUOTED) if given is not None else None
        place = function.place_of(name)
        outer = way[number + 1] if number + 1 < len(way) else None
        passed = arguments_at(outer[1], outer[2], function.name) if outer is not None and place is not None else None
        if passed is None or place is None or place >= len(passed) or not NAME.match(passed[place]):
            return None
        name = passed[place]
    return None


def _decoded(node: ast.expr) -> ast.expr:
    """`str(path)` of `str(path).encode()`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "encode":
        return node.func.value
    return node
