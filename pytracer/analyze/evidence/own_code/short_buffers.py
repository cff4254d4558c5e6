"""A buffer that the program's own C fills up to a number of the same call, and that the program made shorter.

`while (k < n) out[k++] = last;` of `lib.rms(signal, len(signal), window, out)`, where `out` was made by
`np.empty(len(signal) - window + 1)`: by the numbers that are on record, else by these two expressions. So `out[y * w +
x] = e` in loops up to `h` and `w`, into an array that is recorded with fewer elements.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital, shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.c_text import closing, declared_name, split, without_comments
from pytracer.analyze.evidence.own_code.made_type import made_element, made_size
from pytracer.analyze.evidence.own_code.native_bounds import LOOP
from pytracer.analyze.evidence.own_code.own_allocations import sources_of
from pytracer.analyze.evidence.own_code.own_libraries import files_of_program, own_libraries
from pytracer.analyze.evidence.own_code.own_signature import Definition, Parameter, definitions, parameter
from pytracer.analyze.evidence.own_code.recorded_arrays import RecordedArrays
from pytracer.analyze.evidence.own_code.short_allocations import statement_end
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, without_ctype
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_WHILE = Pattern(r"\bwhile\s*\(\s*(?P<name>\w+)\s*<\s*(?P<bound>\w+)\s*\)")
_PLANE = Pattern(
    r"(?<![\w.>])(?P<name>\w+)\s*\[\s*\(?\s*(?P<row>\w+)\s*\)?\s*\*\s*(?P<width>\w+)\s*\+\s*(?P<column>\w+)\s*\]\s*=(?!=)"
)
_QUOTED = 60


class ShortBuffer(msgspec.Struct, frozen=True):
    """`line` of the C source has `text`, which writes `bound` elements of `name`. The call at `called` passes `count`
    for that, and `buffer`, which `made` made with `size` elements. `numbers`: both, where they are known. `shape`: that
    of `buffer`, as it is recorded; `only`: the test that the line which made it depends on, `self.out is None`.
    """

    function: str
    library: str
    called: LineWords
    line: LineWords
    text: str
    name: str
    bound: str
    count: str
    buffer: str
    size: str
    made: LineWords
    numbers: tuple[int, int] | None
    shape: str | None = None
    only: str | None = None

    @property
    def summary(self) -> str:
        """Behind `the first suspect is`."""
        return (
            f"{self.function}() of {self.library} ({self.called}), which writes {self._count} elements into "
            f"`{self.buffer}`{self._made}"
        )

    @property
    def _made(self) -> str:
        if self.shape is None or self.numbers is None:
            return f", made with {self._size} ({self.made})"
        return f" [{self.shape}], which has {self.numbers[1]}{self._once}"

    @property
    def _once(self) -> str:
        return f": {self.made} makes it only where `{self.only}`" if self.only is not None else ""

    @property
    def _room(self) -> str:
        if self.shape is None or self.numbers is None:
            return f"{self.made} made `{self.buffer}` with {self._size}"
        return f"`{self.buffer}` [{self.shape}] has {self.numbers[1]}{self._once}"

    @property
    def advice(self) -> str:
        """The change to make."""
        return (
            f"First suspect is {self.function}() of {self.library}, which {self.called} calls: its {self.line} "
            f"(`{shortened(self.text, _QUOTED)}`) writes up to `{self.bound}` elements of `{self.name}`. For "
            f"`{self.bound}` the call passes {self._count}, and {self._room}. "
            f"{capital(f'make `{self.buffer}` with `{self.count}` elements')}, or let {self.function}() stop at its "
            "size. The line that found the damage is not at fault."
        )

    @property
    def _count(self) -> str:
        return f"`{self.count}`{f' = {self.numbers[0]}' if self.numbers is not None else ''}"

    @property
    def _size(self) -> str:
        return f"`{self.size}`{f' = {self.numbers[1]}' if self.numbers is not None else ''}"


class _Fill(msgspec.Struct, frozen=True):
    """Line `line` of a function's body, from 0, writes elements of `buffer` up to the product of `bounds`."""

    buffer: str
    bounds: tuple[str, ...]
    line: int

    @property
    def bound(self) -> str:
        """`h * w`."""
        return " * ".join(self.bounds)


def short_buffer(view: ProcessView) -> ShortBuffer | None:
    """The only such call in the program's files; None where all fit, or what they are given is not known."""
    libraries = own_libraries(view)
    if libraries is None:
        return None
    files = files_of_program(view)
    calls = [(file, tree, call) for file, tree in files.items() for call in _methods_called(tree)]
    arrays = RecordedArrays(view, Slice(view.process.snapshot, program_frames(view)))
    library = libraries.names[0] if len(libraries.names) == 1 else "the program's own library"
    found: dict[tuple[str, int], ShortBuffer] = {}
    for text, place in sources_of(view, libraries) if calls else ():
        for file, tree, call in calls:
            for made in definitions("", text.splitlines(), called_name(call) or ""):
                one = _of_call(view, arrays, made, Spot(file, tree, scope_of(tree, call.lineno), call.lineno), call)
                at = place(made.line + one[0].line) if one is not None else None
                if one is not None and at is not None:
                    fill, given = one
                    words = made.body.splitlines()[fill.line].strip()
                    found.setdefault((file, call.lineno), _told(view, library, (fill, at, words), given, call, file))
    return next(iter(found.values())) if len(found) == 1 else None


def _methods_called(tree: ast.Module) -> Iterator[ast.Call]:
    """`lib.fill(...)`, `self.lib.fill(...)`."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) > 1:
            yield node


class _Given(msgspec.Struct, frozen=True):
    """What a call passes for the number and the buffer; `made` at line `line`, of `size` elements as it is written."""

    count: str
    buffer: str
    size: str
    made: Spot
    line: int
    numbers: tuple[int, int] | None
    shape: str | None = None
    only: str | None = None


def _of_call(
    view: ProcessView, arrays: RecordedArrays, made: Definition, spot: Spot, call: ast.Call
) -> tuple[_Fill, _Given] | None:
    parameters = [parameter(item, made.place, made.body) for item in split(made.parameters)]
    if len(parameters) != len(call.args) or call.keywords or any(isinstance(x, ast.Starred) for x in call.args):
        return None
    passed = {declared_name(text): node for text, node in zip(split(made.parameters), call.args, strict=True)}
    elements = {item.name: item for item in parameters}
    depth = next((n for n, frame in enumerate(program_frames(view)) if spot.is_of(frame)), None)
    at = msgspec.structs.replace(spot, depth=depth)
    for fill in _fills(made.body, passed):
        given = _given(arrays, passed, fill, elements, at)
        if given is not None:
            return fill, given
    return None


def _fills(body: str, passed: Mapping[str, ast.expr]) -> Iterator[_Fill]:
    """Loops up to a parameter, whose counter is the index of what they write."""
    text = without_comments(body)
    loops = [match for match in LOOP.finditer(text) if match["how"] == "<"]
    for match in (*loops, *_WHILE.finditer(text)):
        bound, counter = match["bound"].strip(), re.escape(match["name"])
        head = closing(text, text.index("(", match.start()))
        if bound not in passed or head is None:
            continue
        inside = text[head + 1 : statement_end(text, head + 1) + 1]
        for write in re.finditer(rf"(?<![\w.>])(?P<name>\w+)\s*\[\s*{counter}\s*(?:\+\+)?\s*\]\s*=(?!=)", inside):
            if write["name"] in passed:
                yield _Fill(write["name"], (bound,), text.count("\n", 0, head + 1 + write.start()))
    yield from _planes(text, passed, loops)


def _planes(text: str, passed: Mapping[str, ast.expr], loops: Sequence[re.Match[str]]) -> Iterator[_Fill]:
    """`out[y * w + x] = e` in a loop of `y` up to a parameter and one of `x` up to `w`."""
    for write in _PLANE.finditer(text):
        around = {match["name"]: match["bound"].strip() for match in loops if _spans(text, match, write.start())}
        rows, columns = around.get(write["row"]), around.get(write["column"])
        if rows in passed and columns == write["width"] and columns in passed and write["name"] in passed:
            yield _Fill(write["name"], (rows or "", columns), text.count("\n", 0, write.start()))


def _spans(text: str, loop: re.Match[str], place: int) -> bool:
    """Whether a place is in the body of a loop."""
    head = closing(text, text.index("(", loop.start()))
    return head is not None and head < place <= statement_end(text, head + 1)


def _given(
    arrays: RecordedArrays, passed: Mapping[str, ast.expr], fill: _Fill, elements: Mapping[str, Parameter], spot: Spot
) -> _Given | None:
    """None where the buffer has as many elements, or its line does not show how many."""
    counts, held = [without_ctype(passed[item]) for item in fill.bounds], _held(passed[fill.buffer])
    name = ast.unparse(held) if isinstance(held, (ast.Name, ast.Attribute)) else None
    if name is None:
        return None
    count = " * ".join(ast.unparse(item) for item in counts)
    numbers = [arrays.number(item, spot) for item in counts]
    known = [item for item in numbers if item is not None]
    number = math.prod(known) if len(known) == len(numbers) else None
    made = arrays.back.made(held, spot, calls=True)
    recorded = arrays.held(held, spot)
    if recorded is not None and number is not None and recorded.element_bytes == elements[fill.buffer].nbytes:
        room = math.prod(recorded.shape)
        shape, line = ", ".join(map(str, recorded.shape)), _bound_at(spot, name)
        only = _depends_on(spot, name, line)
        return _Given(count, name, shape, spot, line, (number, room), shape, only) if number > room else None
    size, element = made_size(made.node), made_element(made.node, made.spot.tree)
    if variable(held) is None or size is None or element is None or element[1] != elements[fill.buffer].nbytes:
        return None
    own, text = arrays.number(size, made.spot), ast.unparse(size)
    if number is not None and own is not None:
        return _Given(count, name, text, made.spot, made.line, (number, own)) if number > own else None
    limited = len(counts) == 1 and _is_less(size, counts[0])
    return _Given(count, name, text, made.spot, made.line, None) if limited else None


def _bound_at(spot: Spot, name: str) -> int:
    """The last line of the function that makes it before the call; that of the call where another function does."""
    sets = (item for item in own_nodes(spot.scope) if isinstance(item, ast.Assign))
    lines = (item.lineno for item in sets if any(ast.unparse(target) == name for target in item.targets))
    return max((line for line in lines if line <= spot.line), default=spot.line)


def _depends_on(spot: Spot, name: str, line: int) -> str | None:
    """`self.out is None`: the test of the buffer itself below which a line makes it."""
    tests = (
        ast.unparse(item.test)
        for item in own_nodes(spot.scope)
        if isinstance(item, ast.If) and spans(item, line) and not spans(item, spot.line)
    )
    return next((text for text in tests if re.search(rf"(?<![\w.]){re.escape(name)}\b", text)), None)


def _held(node: ast.expr) -> ast.expr:
    """`out` of `out`, `out.ctypes.data`, `c_void_p(out.data_ptr())` and `out.ctypes.data_as(FLOATS)`."""
    node = without_ctype(node)
    while (isinstance(node, ast.Attribute) and node.attr in ("ctypes", "data")) or (
        isinstance(node, ast.Call) and called_name(node) in ("data_ptr", "data_as")
    ):
        node = node.value if isinstance(node, ast.Attribute) else node.func
        if isinstance(node, ast.Attribute) and node.attr in ("data_ptr", "data_as"):
            node = node.value
    return node


def _is_less(size: ast.expr, count: ast.expr) -> bool:
    """Whether an expression is the other one less something, whatever is added to that: `n - window + 1`, `n // 2`."""
    text, node = ast.unparse(count), size
    less = False
    while isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.FloorDiv)):
        less = less or isinstance(node.op, (ast.Sub, ast.FloorDiv))
        node = node.left
    return less and ast.unparse(node) == text


def _told(
    view: ProcessView, library: str, fill: tuple[_Fill, LineWords, str], given: _Given, call: ast.Call, file: str
) -> ShortBuffer:
    own, line, text = fill
    return ShortBuffer(
        called_name(call) or "",
        library,
        place_of(view, file, call.lineno),
        line,
        text,
        own.buffer,
        own.bound,
        given.count,
        given.buffer,
        given.size,
        place_of(view, given.made.file, given.line),
        given.numbers,
        given.shape,
        given.only,
    )
