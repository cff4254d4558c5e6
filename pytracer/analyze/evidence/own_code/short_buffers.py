"""A buffer that the program's own C fills up to a number of the same call, and that the program made shorter.

`while (k < n) out[k++] = last;` of `lib.rms(signal, len(signal), window, out)`, where `out` was made by
`np.empty(len(signal) - window + 1)`: by the numbers that are on record, else by these two expressions.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital, shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.c_text import closing, declared_name, split, without_comments
from pytracer.analyze.evidence.own_code.made_type import made_element, made_size
from pytracer.analyze.evidence.own_code.native_bounds import LOOP
from pytracer.analyze.evidence.own_code.own_allocations import sources_of
from pytracer.analyze.evidence.own_code.own_libraries import allocating_frames, own_libraries
from pytracer.analyze.evidence.own_code.own_signature import Definition, Parameter, definitions, parameter
from pytracer.analyze.evidence.own_code.recorded_arrays import RecordedArrays
from pytracer.analyze.evidence.own_code.short_allocations import statement_end
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name, without_ctype
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_WHILE = Pattern(r"\bwhile\s*\(\s*(?P<name>\w+)\s*<\s*(?P<bound>\w+)\s*\)")
_QUOTED = 60


class ShortBuffer(msgspec.Struct, frozen=True):
    """`line` of the C source has `text`, which writes `bound` elements of `name`. The call at `called` passes `count`
    for that, and `buffer`, which `made` made with `size` elements. `numbers`: both, where they are known.
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

    @property
    def summary(self) -> str:
        """Behind `the first suspect is`."""
        return (
            f"{self.function}() of {self.library} ({self.called}), which writes {self._count} elements into "
            f"`{self.buffer}`, made with {self._size} ({self.made})"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        return (
            f"First suspect is {self.function}() of {self.library}, which {self.called} calls: its {self.line} "
            f"(`{shortened(self.text, _QUOTED)}`) writes up to `{self.bound}` elements of `{self.name}`. For "
            f"`{self.bound}` the call passes {self._count}, and {self.made} made `{self.buffer}` with {self._size}. "
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
    """Line `line` of a function's body, from 0, writes elements of `buffer` up to the number `bound`."""

    buffer: str
    bound: str
    line: int


def short_buffer(view: ProcessView) -> ShortBuffer | None:
    """The only such call in the program's files; None where all fit, or what they are given is not known."""
    libraries = own_libraries(view)
    if libraries is None:
        return None
    frames = program_frames(view)
    files = program_files(view.process.snapshot, frames or allocating_frames(view))
    calls = [(file, tree, call) for file, tree in files.items() for call in _methods_called(tree)]
    arrays = RecordedArrays(view, Slice(view.process.snapshot, frames))
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
    """What a call passes for the number and the buffer."""

    count: ast.expr
    buffer: str
    size: ast.expr
    made: Made
    numbers: tuple[int, int] | None


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
                yield _Fill(write["name"], bound, text.count("\n", 0, head + 1 + write.start()))


def _given(
    arrays: RecordedArrays, passed: Mapping[str, ast.expr], fill: _Fill, elements: Mapping[str, Parameter], spot: Spot
) -> _Given | None:
    """None where the buffer has as many elements, or its line does not show how many."""
    count, name = without_ctype(passed[fill.bound]), variable(_held(passed[fill.buffer]))
    if name is None:
        return None
    made = arrays.back.made(ast.parse(name, mode="eval").body, spot, calls=True)
    size, element = made_size(made.node), made_element(made.node, made.spot.tree)
    if size is None or element is None or element[1] != elements[fill.buffer].nbytes:
        return None
    number, own = arrays.number(count, spot), arrays.number(size, made.spot)
    if number is not None and own is not None:
        return _Given(count, name, size, made, (number, own)) if number > own else None
    return _Given(count, name, size, made, None) if _is_less(size, count) else None


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
        ast.unparse(given.count),
        given.buffer,
        ast.unparse(given.size),
        place_of(view, given.made.spot.file, given.made.line),
        given.numbers,
    )
