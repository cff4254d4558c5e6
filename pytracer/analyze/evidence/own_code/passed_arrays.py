"""Recorded arrays and tensors that the program's line passes to its own native function, by their places."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from functools import cache, partial

import msgspec
from msgspec import structs

from pytracer._library_files import is_library_file
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames, python_frames
from pytracer.analyze.evidence.lifetime.where_made import line_that_made, own_line, place_of
from pytracer.analyze.evidence.own_code.listed_numbers import is_changed, listed_numbers
from pytracer.analyze.evidence.own_code.own_libraries import passed_in
from pytracer.analyze.evidence.own_code.own_signature import signature
from pytracer.analyze.evidence.own_code.recorded_arrays import RecordedArrays
from pytracer.analyze.evidence.preconditions.call import given_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, keyword_value, without_ctype
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of, statement_at
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument, HeldArray
from pytracer.report.job import PythonFrame

_HOPS, _QUOTED = 4, 60
_MODULES = ("np", "numpy", "torch")
_COPIES = frozenset(
    {"ascontiguousarray", "asarray", "array", "astype", "numpy", "from_numpy", "contiguous", "long", "int", "cpu"}
    | {"detach", "clone", "copy", "to", "as_tensor"}
)
_UNSET = ("empty", "empty_like", "new_empty")
_INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")


class PassedArray(msgspec.Struct, frozen=True):
    """`name` as the line writes it. `data`: of its first element; `low`, `high`: its numbers, where they were read.

    `node` at `spot`: the variable in the source. `base`: of a tensor's storage. `some`: of its numbers, where others
    were not read.
    """

    name: str
    node: ast.expr
    spot: Spot
    data: int
    sizes: tuple[int, ...]
    dtype: str
    nbytes: int
    low: int | None = None
    high: int | None = None
    base: int | None = None
    some: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """`` `ids` [512] ``."""
        return f"`{self.name}` [{', '.join(map(str, self.sizes))}]"

    @property
    def is_integer(self) -> bool:
        """Whether its elements may be indices."""
        return self.dtype in _INTEGERS

    @property
    def elements(self) -> int:
        """Of all dimensions."""
        return math.prod(self.sizes)


class PassedArrays:
    """What the calls on the program's innermost line pass."""

    def __init__(self, view: ProcessView) -> None:
        self._view = view
        self.back = Slice(view.process.snapshot, program_frames(view))
        self._signature = cache(partial(signature, view))
        self._spot = self.back.spot(0)
        self._recorded = RecordedArrays(view, self.back, self._sizes)
        self._frames = [item for item in python_frames(view) if not is_library_file(item.file)]

    def passed(self, function: str, parameters: tuple[str, ...], place: int) -> PassedArray | None:
        """For a parameter of a native function; None where its elements have gaps, or another size than it takes."""
        spot = self._spot
        call = self._call(function, len(parameters), spot) if spot is not None else None
        given = self._given(call, parameters[place], place) if call is not None else None
        found = self._of(given, call, spot, _HOPS) if given is not None and call is not None and spot else None
        taken = self._signature(function) if found is not None else None
        known = taken[place].nbytes if taken is not None and place < len(taken) and taken[place].element else 0
        return found if found is not None and known in (0, found.nbytes) else None

    def argument(self, function: str, parameters: tuple[str, ...], place: int) -> tuple[ast.expr, Spot] | None:
        """The expression that is passed for a parameter, without the type of ctypes around it, and where that is."""
        spot = self._spot
        call = self._call(function, len(parameters), spot) if spot is not None else None
        given = self._given(call, parameters[place], place) if call is not None else None
        return (without_ctype(given), spot) if given is not None and spot is not None else None

    def _given(self, call: ast.Call, parameter: str, place: int) -> ast.expr | None:
        starred = [n for n, item in enumerate(call.args[: place + 1]) if isinstance(item, ast.Starred)]
        if starred:
            return _unpacked(call, starred[0], place)
        given = keyword_value(call, parameter)
        return call.args[place] if given is None and place < len(call.args) else given

    def number(self, node: ast.expr, spot: Spot) -> int | None:
        """Of an expression, from what was recorded."""
        return self._recorded.number(node, spot)

    def _sizes(self, node: ast.expr, spot: Spot) -> tuple[int, ...] | None:
        """Of a tensor that a variable held."""
        frame = self._frames[spot.depth] if spot.depth is not None and spot.depth < len(self._frames) else None
        given = given_of(self._view, frame, node) if frame is not None else None
        if given is None or (given.tensor is not None and given.tensor.dimensions != len(given.tensor.sizes)):
            return None
        return given.tensor.sizes if given.tensor is not None else None

    def _call(self, function: str, count: int, spot: Spot) -> ast.Call | None:
        """Of that name; else the only one with so many arguments."""
        calls = calls_on(spot.tree, spot.line)
        named = [item for item in calls if called_name(item) == function]
        found = named or [item for item in calls if len(item.args) + len(item.keywords) == count > 1]
        return found[0] if len(found) == 1 else None

    def _of(self, node: ast.expr, call: ast.Call, spot: Spot, left: int) -> PassedArray | None:
        """Of `x`, `x.data_ptr()`, `pointer(x)`, or of a variable that is one of these."""
        if any(isinstance(item, ast.Subscript) for item in nodes_of(node)):
            return None  # another beginning, or another length
        for held in self._named(node, call):
            found = self._array(held, spot) or self._tensor(held, spot)
            if found is not None:
                return self._with_some(found)
        made = self.back.made(node, spot, calls=False) if isinstance(node, (ast.Name, ast.Attribute)) else None
        further = made is not None and made.node is not node and isinstance(made.node, ast.expr) and left > 0
        if made is not None and further and isinstance(made.node, ast.expr):
            return self._of(made.node, call, made.spot, left - 1)
        return None

    def _named(self, node: ast.expr, call: ast.Call) -> Iterator[ast.expr]:
        """The only variable that an argument hands on."""
        if isinstance(node, (ast.Name, ast.Attribute)) and _is_dotted(node):
            yield node
        held = {*passed_in([node])}
        if len(held) == 1:
            yield ast.parse(held.pop(), mode="eval").body
        if isinstance(node, ast.Call) and len(node.args) > 1 and self._is_pointer(node):
            yield node.args[0]
        inner = [item for item in nodes_of(node) if isinstance(item, ast.Attribute) and _is_dotted(item)]
        whole = [item for item in inner if not any(item is part.value for part in inner)]
        if isinstance(node, ast.Call) and len(whole) == 1 and variable(node.args[0] if node.args else node) is None:
            yield whole[0]  # `graph.indptr` of `pointer(graph.indptr)`

    def _is_pointer(self, call: ast.Call) -> bool:
        """`P(x, c_int)` of `P = lambda a, t: a.ctypes.data_as(POINTER(t))`, or of a function that does the same."""
        name, tree = variable(call.func), self._spot.tree if self._spot is not None else ast.Module([], [])
        body = [
            item.value if isinstance(item, ast.Assign) else item
            for item in tree.body
            if (isinstance(item, ast.FunctionDef) and item.name == name)
            or (isinstance(item, ast.Assign) and [variable(one) for one in item.targets] == [name])
        ]
        if len(body) != 1 or not isinstance(body[0], (ast.Lambda, ast.FunctionDef)) or not body[0].args.args:
            return False
        first = body[0].args.args[0].arg
        return any(
            isinstance(item, ast.Attribute) and item.attr in ("ctypes", "data_ptr") and variable(item.value) == first
            for item in nodes_of(body[0])
        )

    def _array(self, node: ast.expr, spot: Spot) -> PassedArray | None:
        item = self._recorded.array(node, spot)
        if item is None or item.dtype is None or item.element_bytes is None or item.in_a_row is not True:
            return None
        low, high = self._numbers(item)
        if low is None:
            low, high = self._copied_numbers(node, spot, item)
        return PassedArray(
            ast.unparse(node), node, spot, item.data, item.shape, item.dtype, item.element_bytes, low, high
        )

    def _numbers(self, item: HeldArray) -> tuple[int | None, int | None]:
        """The least and the largest; also where a tensor that is recorded has the same memory: `x` of `x.numpy()`."""
        if item.minimum is not None:
            return item.minimum, item.maximum
        elements = math.prod(item.shape)
        for tensor in self._view.crash.arguments if self._view.crash is not None else ():
            alike = (tensor.data, tensor.dtype, tensor.elements) == (item.data, item.dtype, elements)
            if alike and tensor.minimum is not None:
                return tensor.minimum, tensor.maximum
        return None, None

    def _copied_numbers(self, node: ast.expr, spot: Spot, item: HeldArray) -> tuple[int | None, int | None]:
        """The same of a tensor that the array is a copy of: `x` of `x.numpy().astype(np.int32)`."""
        name, made = variable(node), self.back.made(node, spot, calls=False)
        if name is None or made.node is node or is_changed(made.spot, name, made.line, made.line):
            return None, None
        inner: ast.AST | None = made.node
        for _ in range(_HOPS):
            inner = _copied(inner) if inner is not None else None
            tensor = self._tensor(inner, made.spot) if isinstance(inner, (ast.Name, ast.Attribute)) else None
            if tensor is not None and tensor.elements == math.prod(item.shape) and tensor.is_integer:
                return (tensor.low, tensor.high) if _holds(item.dtype, tensor) else (None, None)
        return None, None

    def _with_some(self, array: PassedArray) -> PassedArray:
        """With numbers of the list that it was made of, where its own were not read."""
        if array.low is not None or not array.is_integer or self._view.crash is None:
            return array
        return structs.replace(array, some=listed_numbers(self._view.crash.numbers, self.back, array.node, array.spot))

    def _tensor(self, node: ast.expr, spot: Spot) -> PassedArray | None:
        frame = self._frames[spot.depth] if spot.depth is not None and spot.depth < len(self._frames) else None
        given = given_of(self._view, frame, node) if frame is not None else None
        item = given.tensor if given is not None else None
        data, nbytes = (item.data, item.element_bytes) if item is not None else (None, None)
        if item is None or item.dtype is None or data is None or nbytes is None or not _in_a_row(item):
            return None
        return PassedArray(
            ast.unparse(node),
            node,
            spot,
            data,
            item.sizes,
            item.dtype,
            nbytes,
            item.minimum,
            item.maximum,
            item.base,
        )

    def expressions(self, array: PassedArray) -> Iterator[tuple[ast.AST, Spot]]:
        """The variable; of a tensor also what the line that allocated it binds."""
        yield array.node, array.spot
        storage = self._view.space.live_around(array.base) if array.base is not None else None
        frame = own_line(storage.allocated_by) if storage is not None and not storage.older else None
        tree = syntax_tree(self._view.process.snapshot, python_frame(frame)) if frame is not None else None
        if frame is None or frame.line is None or tree is None:
            return
        statement = statement_at(tree, frame.line)
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Return)) and statement.value is not None:
            yield statement.value, Spot(frame.file, tree, scope_of(tree, frame.line), frame.line)

    def is_unset(self, array: PassedArray) -> bool:
        """Whether `np.empty()` made it: what is not filled since holds any number."""
        made = self.back.made(array.node, array.spot, calls=False).node
        return isinstance(made, ast.Call) and called_name(made) in _UNSET

    def made_at(self, array: PassedArray) -> str | None:
        """`` line 46 (`self.rowptr = ...`) ``, of the line that made it, or that it was copied from."""
        node: ast.AST = array.node
        spot, line = array.spot, None
        for _ in range(_HOPS):
            made = self.back.made(node, spot, calls=False)
            if made.node is not node:
                line = (made.spot, made.line)
            inner = _copied(made.node)
            if inner is None:
                break
            node, spot = inner, made.spot
        name = variable(made.node)
        bound = [at for at, _ in lines_that_bind(made.spot.scope, name) if at <= made.spot.line] if name else []
        if bound:  # such as by a loop
            line = (made.spot, max(bound))
        if line is None:
            return line_that_made(self._view, array.base) if array.base is not None else None
        at = PythonFrame(function=None, file=line[0].file, line=line[1])
        text = " ".join((line_text(self._view.process.snapshot, at) or "").split())
        place = place_of(self._view, at.file, at.line)
        return f"{place} (`{shortened(text, _QUOTED)}`)" if text else place


def _unpacked(call: ast.Call, first: int, place: int) -> ast.expr | None:
    """`dist.shape[1]` of `f(dist, *dist.shape)`: of what is unpacked last."""
    given = call.args[first]
    shape = given.value if isinstance(given, ast.Starred) and first == len(call.args) - 1 else None
    if not isinstance(shape, ast.Attribute) or shape.attr != "shape":
        return None
    return ast.copy_location(ast.Subscript(shape, ast.Constant(place - first), ast.Load()), given)


def _holds(dtype: str | None, tensor: PassedArray) -> bool:
    """Whether a type has room for the numbers of a tensor."""
    if dtype not in _INTEGERS or tensor.low is None or tensor.high is None:
        return False
    bits, signed = int(dtype.lstrip("uint")), dtype.startswith("int")
    return (-(1 << bits - 1) if signed else 0) <= tensor.low and tensor.high < 1 << (bits - signed)


def _copied(node: ast.AST) -> ast.expr | None:
    """What an expression has the numbers of: `x` of `np.ascontiguousarray(x, dtype)` and `x.numpy()`."""
    if not isinstance(node, ast.Call) or called_name(node) not in _COPIES:
        return None
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    if owner is not None and variable(owner) not in _MODULES:
        return owner
    return node.args[0] if node.args else None


def _is_dotted(node: ast.expr) -> bool:
    """`graph.indptr`, and no `x.ctypes`."""
    while isinstance(node, ast.Attribute) and node.attr not in ("ctypes", "data", "data_ptr", "data_as"):
        node = node.value
    return isinstance(node, ast.Name)


def _in_a_row(item: Argument) -> bool:
    rows = [math.prod(item.sizes[at + 1 :]) for at in range(len(item.sizes))]
    pairs = zip(item.sizes, item.strides, rows, strict=False)
    return item.dimensions == len(item.sizes) and all(step == row for size, step, row in pairs if size != 1)
