"""Ids that the program's own C uses as indices of a block with as many elements as a number of the same call.

`calloc(nparts, ...)` and `weight[part[v]]++`, while `part` reaches 6448 and `nparts` is 6000. The numbers of the array
are those on record, else what its line makes of recorded numbers: `np.arange(n) // (n // parts)` ends at a known one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital, shortened
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.c_text import closing, declared_name, split, without_comments
from pytracer.analyze.evidence.own_code.call_origins import native_functions_on
from pytracer.analyze.evidence.own_code.native_bounds import last_value
from pytracer.analyze.evidence.own_code.own_allocations import sources_of
from pytracer.analyze.evidence.own_code.own_libraries import own_libraries
from pytracer.analyze.evidence.own_code.own_signature import definitions
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArray, PassedArrays
from pytracer.analyze.evidence.own_code.recorded_arrays import RecordedArrays
from pytracer.analyze.evidence.own_code.row_ids import IdUse, row_uses
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values, without_ctype
from pytracer.analyze.evidence.syntax.changes import PURE, bound_in
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.naming import LineWords
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_COUNTED = (
    r"(?P<block>\w+)\s*=[^;=]*?\b(?:malloc|calloc|alloca)\s*\((?P<bytes>[^;]*)\)\s*;",
    r"(?P<block>\w+)\s*=\s*new\s+[\w:]+\s*\[(?P<new>[^\];]+)\]",
    r"\bvector\s*<[^;()]*>\s*(?P<block>\w+)\s*\((?P<vector>[^;]*)\)\s*;",
)
_CAST = Pattern(r"^\([\w\s]+\)\s*")
_KEEPS = frozenset({"astype", "copy", "clone", "contiguous", "long", "int", "numpy", "flatten", "ravel", "reshape"})
_WRAPS = frozenset({"ascontiguousarray", "asarray", "array", "from_numpy", "as_tensor", "repeat", "permutation"})
_IN_PLACE = frozenset({"sort", "fill", "put", "partition", "resize", "itemset", "byteswap", "setfield"})
_WRITES = frozenset({"put", "place", "putmask", "copyto", "put_along_axis", "fill_diagonal", "shuffle", "at"})
_MODULES = ("np", "numpy", "torch", "np.random")
_BITS = {"int8": 8, "uint8": 9, "int16": 16, "uint16": 17, "int32": 32, "uint32": 33, "int64": 64, "uint64": 65}
_MOST, _QUOTED = 8, 60


class LargeIds(msgspec.Struct, frozen=True):
    """`array` of the call reaches `largest`, where line `line` of the C source uses it as an index of `block`, which
    `count` elements were made for, by `made`. The call passes `passed` = `number` for that. `born`: made the array.
    """

    function: str
    library: str
    called: LineWords
    array: str
    least: int
    largest: int
    block: str
    line: LineWords
    text: str
    made: LineWords
    count: str
    passed: str
    number: int
    born: LineWords | None
    born_text: str | None
    places: tuple[Place, ...] = ()
    of_rows: bool = False

    @property
    def summary(self) -> str:
        """Behind `the first suspect is`."""
        of = "columns of rows of" if self.of_rows else "indices of"
        return (
            f"{self.function}() of {self.library} ({self.called}), which is given `{self.array}` "
            f"({self.least}..{self.largest}) as {of} {self.number} elements (`{self.passed}`)"
        )

    @property
    def advice(self) -> str:
        """What does not fit, and where it was made."""
        text = f" (`{self.born_text}`)" if self.born_text else ""
        born = f" {capital(self.born)}{text} makes it." if self.born is not None else ""
        if self.of_rows:
            return (
                f"First suspect is {self.line} (`{shortened(self.text, _QUOTED)}`) in {self.function}() of "
                f"{self.library}, which {self.called} calls: a row of `{self.block}` ({self.made}) has `{self.count}` "
                f"= {self.number} elements, and `{self.array}` ({self.least}..{self.largest}) is the column, which "
                f"nothing there checks: {self.largest} is in the next row, and of the last row behind the block.{born} "
                f"All of `{self.array}` must be less than `{self.passed}`: correct or leave out the others, or let "
                f"`{self.passed}` be {self.largest + 1} wherever it counts."
            )
        return (
            f"First suspect is {self.line} (`{shortened(self.text, _QUOTED)}`) in {self.function}() of {self.library}, "
            f"which {self.called} calls: `{self.block}` has `{self.count}` = {self.number} elements ({self.made}), and "
            f"`{self.array}` ({self.least}..{self.largest}) is the index, which nothing there checks.{born} All of "
            f"`{self.array}` must be less than `{self.passed}`: make it so, or pass {self.largest + 1}."
        )


def large_ids(view: ProcessView) -> LargeIds | None:
    """Of the program's innermost line, where that was calling the library; None where every number fits."""
    libraries, frame = own_libraries(view), next(iter(program_frames(view)), None)
    if libraries is None or frame is None or frame.line is None:
        return None
    arrays = PassedArrays(view)
    spot = arrays.back.spot(0)
    calls = native_functions_on(view, spot) if spot is not None else []
    for text, place in sources_of(view, libraries) if calls else ():
        for node, name in calls:
            found = _in_source(view, arrays, (node, name), spot, text) if spot is not None else None
            lines = [place(number) for number in found[2]] if found is not None else []
            if found is not None and lines[0] is not None and lines[1] is not None:
                library = libraries.names[0] if len(libraries.names) == 1 else "the program's own library"
                call = _Call(name, library, place_of(view, frame.file, node.lineno))
                return _of(view, call, found, (lines[0], lines[1]), text.splitlines()[found[2][0] - 1])
    return None


class _Call(msgspec.Struct, frozen=True):
    """Of a function of a library, at `at`."""

    function: str
    library: str
    at: LineWords


def _in_source(
    view: ProcessView, arrays: PassedArrays, call: tuple[ast.Call, str], spot: Spot, text: str
) -> tuple[IdUse, _Found, tuple[int, int]] | None:
    """The first use that does not fit, with the lines of the source where the index and the block are."""
    node, name = call
    for made in definitions("", text.splitlines(), name):
        names = tuple(declared_name(item) for item in split(made.parameters))
        for use in (*_uses(made.body, names), *row_uses(made.body, names)):
            found = _compared(view, arrays, node, spot, names, use)
            if found is not None:
                return use, found, (made.line - 1 + use.line, made.line - 1 + use.made)
    return None


def _uses(body: str, names: tuple[str, ...]) -> Iterator[IdUse]:
    """Blocks of a parameter's size, and parameters whose elements are indices of them, unchecked."""
    text = without_comments(body)
    for block, count, at in _blocks(text, names):
        for array in names:
            place = _indexed(text, block, array) if array != count else None
            if place is not None and not _is_checked(text, array, count):
                yield IdUse(array, block, count, text.count("\n", 0, place) + 1, text.count("\n", 0, at) + 1)


def _blocks(text: str, names: tuple[str, ...]) -> Iterator[tuple[str, str, int]]:
    """Each with the parameter that is its number of elements."""
    for pattern in _COUNTED:
        for match in re.finditer(pattern, text):
            groups = match.groupdict()
            size = groups.get("bytes") or groups.get("new") or groups.get("vector") or ""
            plain = re.sub(r"sizeof\s*\([^()]*\)|sizeof\s*\*?\s*\w+|\([\w\s]+\)\s*(?=\w)", "1", size)
            words = set(re.findall(r"[A-Za-z_]\w*", plain))
            if len(words) == 1 and words <= {*names} and re.search(r"[-+/%<>?]", plain) is None:
                yield match["block"], words.pop(), match.start("block")


def _indexed(text: str, block: str, array: str) -> int | None:
    """Where an element of the array is the index, itself or by a variable that was last given such an element."""
    element = re.compile(rf"(?:{re.escape(array)}\s*\[|\*\s*{re.escape(array)}\b)")
    for match in re.finditer(rf"(?<![\w.>]){re.escape(block)}\s*\[", text):
        end = closing(text, match.end() - 1)
        index = text[match.end() : end].strip() if end is not None else ""
        if re.fullmatch(r"[A-Za-z_]\w*", index):
            index = _CAST.sub("", last_value(text[: match.start()], index))
        if element.match(index) and ("[" not in index or closing(index, index.find("[")) == len(index) - 1):
            return match.start()
    return None


def _is_checked(text: str, array: str, count: str) -> bool:
    """Whether an element, or the variable that has it, is compared with the count, or cut to a range by it."""
    number, text = re.escape(count), _without_loops(text)
    names = {array, *re.findall(rf"\b(\w+)\s*=\s*(?:\([\w\s]+\)\s*)?\*?\s*{re.escape(array)}\b", text)}
    for name in sorted(names):
        one = rf"\b{re.escape(name)}\b(?:\s*\[[^;]*?\])?"
        if re.search(
            rf"{one}\s*(?:<|<=|>|>=|==|%)\s*(?:\([\w\s]+\)\s*)?{number}\b|\b{number}\s*(?:<|>)=?\s*{one}", text
        ):
            return True
    return False


def _without_loops(text: str) -> str:
    """Without the heads of its loops: `g < n` there bounds another `g`."""
    for match in re.finditer(r"\bfor\s*\(", text):
        end = closing(text, match.end() - 1)
        if end is not None:
            text = f"{text[: match.end()]}{' ' * (end - match.end())}{text[end:]}"
    return text


class _Found(msgspec.Struct, frozen=True):
    array: PassedArray
    least: int
    largest: int
    passed: str
    number: int
    line: int


def _compared(
    view: ProcessView, arrays: PassedArrays, call: ast.Call, spot: Spot, names: tuple[str, ...], use: IdUse
) -> _Found | None:
    """The numbers of the call, where the array's largest is no index of so many."""
    places = {name: place for place, name in enumerate(names)}
    array = arrays.passed(called_name(call) or "", names, places[use.array])
    given = keyword_value(call, use.count)
    place = places[use.count]
    given = call.args[place] if given is None and place < len(call.args) else given
    if array is None or not array.is_integer or given is None:
        return None
    inner = without_ctype(given)
    recorded = RecordedArrays(view, arrays.back)
    number, ends = recorded.number(inner, spot), _ends(array, recorded, arrays)
    if number is None or ends is None or ends[1] < number:
        return None
    return _Found(array, *ends[:2], ast.unparse(inner), number, ends[2])


def _ends(array: PassedArray, recorded: RecordedArrays, arrays: PassedArrays) -> tuple[int, int, int] | None:
    """The least and the largest number, and the line that makes them."""
    if array.low is not None and array.high is not None:
        return array.low, array.high, 0
    made = arrays.back.made(array.node, array.spot, calls=True)
    ends = Ends(recorded).of(array.node, array.spot)
    if ends is None or ends[1] >= 1 << (_BITS.get(array.dtype, 0) - 1):
        return None
    return (*ends, made.line)


def _is_changed(name: str, since: int, spot: Spot) -> bool:
    """Whether a line between these two may have changed the elements of an array."""
    for node in own_nodes(spot.scope):
        if not since < getattr(node, "lineno", 0) < spot.line:
            continue
        if name in bound_in([node]):
            return True
        if isinstance(node, ast.Call) and _may_change(node, name):
            return True
    return False


def _may_change(call: ast.Call, name: str) -> bool:
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else None
    if owner == name:
        return (called_name(call) or "").endswith("_") or called_name(call) in _IN_PLACE
    into = keyword_value(call, "out")
    given = [item for item in passed_values(call) if ast.unparse(item) == name]
    if into is not None or owner in _MODULES:
        written = into is not None and ast.unparse(into) == name
        return written or (called_name(call) in _WRITES and bool(given))
    return bool(given) and called_name(call) not in PURE


class Ends:
    """The least and the largest number of an array, where its expression in the program leaves no doubt of both."""

    def __init__(self, recorded: RecordedArrays) -> None:
        self._recorded = recorded

    def of(self, node: ast.AST, spot: Spot, left: int = _MOST) -> tuple[int, int] | None:
        """None where a part is not known."""
        if left == 0:
            return None
        if isinstance(node, ast.Call):
            return self._of_call(node, spot, left) or self._of_own(node, spot, left)
        if isinstance(node, ast.BinOp):
            return self._of_operation(node, spot, left)
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return None
        made = self._recorded.back.made(node, spot, calls=True)
        steps = [*made.through, (made.node, made.spot)]
        for (one, at), (_, after) in pairwise(steps):
            name, since = variable(one), after.line if after.scope is at.scope else 0
            if name is not None and _is_changed(name, since, at):
                return None
        return self.of(made.node, made.spot, left - 1) if made.node is not node else None

    def _of_call(self, call: ast.Call, spot: Spot, left: int) -> tuple[int, int] | None:
        name = called_name(call) or ""
        if name == "arange" and 0 < len(call.args) <= 2:
            numbers = [self._recorded.number(item, spot) for item in call.args]
            start, stop = (0, numbers[0]) if len(numbers) == 1 else numbers
            return (start, stop - 1) if start is not None and stop is not None and start < stop else None
        if name in _KEEPS and isinstance(call.func, ast.Attribute):
            return self.of(call.func.value, spot, left - 1)
        if name in _WRAPS and call.args:
            return self.of(call.args[0], spot, left - 1)
        return None

    def _of_own(self, call: ast.Call, spot: Spot, left: int) -> tuple[int, int] | None:
        """Of a function of the program: what it returns."""
        made = self._recorded.back.made(call, spot, calls=True)
        return self.of(made.node, made.spot, left - 1) if made.node is not call else None

    def _of_operation(self, node: ast.BinOp, spot: Spot, left: int) -> tuple[int, int] | None:
        """Of an array and a number, by an operation that keeps the order of its elements."""
        ends, number = self.of(node.left, spot, left - 1), self._recorded.number(node.right, spot)
        if ends is None and isinstance(node.op, (ast.Add, ast.Mult)):
            ends, number = self.of(node.right, spot, left - 1), self._recorded.number(node.left, spot)
        if ends is None or number is None:
            return None
        if isinstance(node.op, ast.Add):
            return ends[0] + number, ends[1] + number
        if isinstance(node.op, ast.Sub):
            return ends[0] - number, ends[1] - number
        if isinstance(node.op, ast.Mult) and number > 0:
            return ends[0] * number, ends[1] * number
        if isinstance(node.op, ast.FloorDiv) and number > 0:
            return ends[0] // number, ends[1] // number
        return None


def _of(
    view: ProcessView,
    call: _Call,
    compared: tuple[IdUse, _Found, tuple[int, int]],
    at: tuple[LineWords, LineWords],
    text: str,
) -> LargeIds:
    use, found, _ = compared
    file = found.array.spot.file
    born = place_of(view, file, found.line) if found.line else None
    written = line_text(view.process.snapshot, PythonFrame(function=None, file=file, line=found.line))
    return LargeIds(
        call.function,
        call.library,
        call.at,
        found.array.name,
        found.least,
        found.largest,
        use.block,
        at[0],
        text.strip(),
        at[1],
        use.count,
        found.passed,
        found.number,
        born,
        shortened(written.strip(), _QUOTED) if written and born is not None else None,
        ((file, found.line),) if found.line else (),
        use.of_rows,
    )
