"""What is wrong with what a line passes to native code: memory that is a view with gaps, or a temporary; a callback.

C code that is given an address and sizes reads elements in a row. A tensor that is expanded, transposed or taken in
steps is not in a row, and the address of a flipped NumPy array is that of its last one. Tensors are read from the
recording; where an array came from, from the program's source: a line that may have made it so is a possible cause.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Iterator

import msgspec
from msgspec import structs

from pytracer._text import shortened, size_words
from pytracer.analyze.evidence.lifetime.variables import plain_expression, program_frames
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.operators.operator import shape_words
from pytracer.analyze.evidence.own_code.arrays import array_words, held_array
from pytracer.analyze.evidence.own_code.unheld_memory import unheld_memory
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.fresh_arrays import is_fresh
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import is_parameter, own_nodes
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument, HeldArray
from pytracer.report.job import PythonFrame

_QUOTED, _HOPS, _BETWEEN = 44, 12, 6
# Calls that make new memory, in a row: what was before does not matter.
_WHOLE = frozenset(
    {"contiguous", "ascontiguousarray", "copy", "clone", "tobytes", "array", "require", "tensor", "stack"}
)
_FLIPS = frozenset({"flip", "flipud", "fliplr", "rot90"})
_TURNS = frozenset({"transpose", "permute", "swapaxes", "moveaxis", "t", "movedim", "rollaxis"})
_EXPANDS = frozenset({"expand", "expand_as", "broadcast_to", "broadcast_arrays", "expand_dims_as"})
_SAME = frozenset(
    {"view", "reshape", "squeeze", "unsqueeze", "detach", "numpy", "asarray", "from_numpy", "cpu", "ravel"}
)
_OFFSET = 3  # its place among the arguments of frombuffer()
_MODULES = ("np", "numpy", "torch")
_ADDRESS = ("data_ptr", "ctypes")
_KINDS = {
    "flipped": "may be flipped ({}): its address is then near the end of its memory, and counting upwards leaves that",
    "turned": "may be transposed ({}): its elements are then in another order in memory",
    "stepped": "may be taken in steps or columns ({}): its elements then have gaps between them",
    "expanded": "may be expanded ({}): it then has less memory than elements",
    "later": "may begin in the middle of other memory ({})",
}


GAPS = ("flipped", "turned", "stepped", "expanded")
_KEEP = "Where C is given no strides, keep `{}` in a variable, and pass the address of that."


class MadeView(msgspec.Struct, frozen=True):
    """`name`, which the line passes, may be the view that `at` makes."""

    name: str
    kind: str
    at: PythonFrame
    text: str
    file: str | None
    numpy: bool

    @property
    def place(self) -> str:
        """`line 44`, with the file where it is another one."""
        return line_in(self.at.file, self.at.line, self.file)

    @property
    def fact(self) -> str:
        """`` `img` may be flipped (line 44: `img = img[::-1]`): ... ``"""
        return f"`{self.name}` {_KINDS[self.kind].format(f'{self.place}: `{shortened(self.text, _QUOTED)}`')}"

    @property
    def words(self) -> str:
        """The sentence, with what to pass."""
        whole = f"np.ascontiguousarray({self.name})" if self.numpy else f"{self.name}.contiguous()"
        return f"{self.fact}. {_KEEP.format(whole)}"


def memory_advice(view: ProcessView) -> str | None:
    """The first sentence that applies; None where ctypes called nothing, or nothing is known to be wrong."""
    if not called_by_ctypes(view) or passes_strides(view):
        return None
    gaps = tensor_with_gaps(view) or array_with_gaps(view)
    if gaps is not None:
        return gaps
    unheld = unheld_memory(view)
    if unheld is not None:
        return unheld.advice
    made = made_view(view)
    return made.words if made is not None else temporary(view)


def passes_strides(view: ProcessView) -> bool:
    """Whether the line gives C the strides as well."""
    frame = next(iter(program_frames(view)), None)
    return "stride" in (line_text(view.process.snapshot, frame) or "")


def called_by_ctypes(view: ProcessView) -> bool:
    """Whether the program's own line called C by ctypes or cffi, at the end."""
    frames = own_frames(view)
    names = [image_name(frame.image) for frame in frames]
    places = [at for at, name in enumerate(names) if name.startswith(("libffi.", "_cffi_backend."))]
    if not places:
        return any(name.startswith("_ctypes.") for name in names)
    callers = ("_ctypes.", "_cffi_backend.")
    return any(at > 0 and any(name.startswith(callers) for name in names[at : at + _BETWEEN]) for at in places)


def pointers(view: ProcessView) -> list[tuple[str, bool, ast.expr]]:
    """Variables whose address the crashed line takes: name, whether it is NumPy's, and the expression."""
    spot = Slice(view.process.snapshot, program_frames(view)).spot(0)
    found: dict[str, tuple[str, bool, ast.expr]] = {}
    for node in nodes_of(spot.tree) if spot is not None else ():
        on_line = spot is not None and getattr(node, "lineno", 0) <= spot.line <= getattr(node, "end_lineno", -1)
        if on_line and isinstance(node, ast.Attribute) and node.attr in _ADDRESS:
            name = variable(node.value) or (None if _view(node.value)[0] is None else ast.unparse(node.value))
            if name is not None:
                found.setdefault(name, (name, node.attr == "ctypes", node.value))
    return [*found.values()]


def tensor_with_gaps(view: ProcessView) -> str | None:
    """A recorded tensor of the line that is not in a row."""
    for name, numpy, _ in pointers(view):
        tensor = held_tensor(view, name)
        if tensor is None or numpy or not tensor.elements or not _has_gaps(tensor):
            continue
        strides = ", ".join(map(str, tensor.strides))
        row = f"`{name}` {shape_words(tensor)} has the strides ({strides}), so its elements are not in a row"
        nbytes = tensor.element_bytes
        if nbytes is not None and 0 in tensor.strides:
            span = 1 + sum((size - 1) * step for size, step in zip(tensor.sizes, tensor.strides, strict=True))
            row = (
                f"`{name}` {shape_words(tensor)} is expanded: {size_words(span * nbytes)} of memory lie behind it, and "
                f"in a row its elements would be {size_words(tensor.elements * nbytes)}"
            )
        return f"{row}. {_KEEP.format(f'{name}.contiguous()')}"
    return None


def array_with_gaps(view: ProcessView) -> str | None:
    """A recorded array of the line that is not in a row, with the line that may have made it so."""
    for name, numpy, _ in pointers(view):
        array = held_array(view, name) if numpy else None
        if array is None or not all(array.shape) or array.in_a_row is not False or _is_whole(view, array):
            continue
        strides = ", ".join(map(str, array.strides))
        row = f"{array_words(array)} has strides of ({strides}) bytes"
        if min(array.strides) < 0:
            row += ": it is flipped, and its address is near the end of its memory"
        else:
            row += ", so its elements are not in a row"
        made = made_view(view, GAPS, known=True)
        origin = f" ({made.place}: `{shortened(made.text, _QUOTED)}`)" if made is not None and made.name == name else ""
        return f"{row}{origin}. {_KEEP.format(f'np.ascontiguousarray({name})')}"
    return None


def _is_whole(view: ProcessView, array: HeldArray) -> bool:
    """Whether its elements only lie in another order, and none was set yet: `np.zeros((h, w), order="F")`.

    Whoever counts through them does not leave the memory, and finds no index there.
    """
    extent, frame = array.extent, next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    nbytes = math.prod(array.shape) * (array.element_bytes or 0)
    is_dense = extent is not None and min(array.strides) > 0 and extent[1] - extent[0] == nbytes
    if not is_dense or tree is None or frame is None or frame.line is None:
        return False
    return is_fresh(tree, array.expression, frame.line)


def held_tensor(view: ProcessView, name: str) -> Argument | None:
    """The tensor of a variable of the crashed line; None where several of its memory may be meant."""
    crash, frame = view.crash, next(iter(program_frames(view)), None)
    if crash is None or frame is None:
        return None
    held = {
        (item.base, item.elements)
        for item in crash.holders
        if item.frame is not None and plain_expression(item.expression) == name
        if (item.frame.file, item.frame.line, item.frame.function) == (frame.file, frame.line, frame.function)
    }
    if len(held) != 1:
        return None
    base, elements = next(iter(held))
    like = [item for item in crash.arguments if (item.base, item.elements) == (base, elements) and not item.undefined]
    found = [item for item in like if item.how == "held"] or like  # recorded once: of a reference on the stack as that
    shapes = {(item.offset, item.sizes, item.strides) for item in found}
    return found[0] if len(shapes) == 1 and base and len(found[0].strides) == found[0].dimensions else None


def _has_gaps(tensor: Argument) -> bool:
    """Not dense in any order of its dimensions, or not in the order of its sizes."""
    rows = [(size, step) for size, step in zip(tensor.sizes, tensor.strides, strict=True) if size != 1]
    expected = [math.prod(size for size, _ in rows[at + 1 :]) for at in range(len(rows))]
    return [step for _, step in rows] != expected


# ---- by the source


def made_view(view: ProcessView, kinds: Collection[str] = GAPS, *, known: bool = False) -> MadeView | None:
    """An array that may be such a view, by a line of the program that leads to it. `known`: also of recorded ones."""
    search = Slice(view.process.snapshot, program_frames(view))
    spot = search.spot(0)
    for name, numpy, node in pointers(view) if spot is not None else ():
        recorded = held_array(view, name) if numpy else held_tensor(view, name)
        if spot is None or (recorded is not None and kinds == GAPS and not known):
            continue
        found = next((item for item in _Views(search).of(node, spot) if item[0] in kinds), None)
        if found is not None:
            kind, at = found
            text = line_text(view.process.snapshot, at)
            if text is not None:
                return MadeView(name, kind, at, text, spot.file, numpy)
    return None


class _Views:
    """All that may have made a value, on any way: assignments above and in loops, callers, results of functions."""

    def __init__(self, search: Slice) -> None:
        self._search = search
        self._seen: set[tuple[int, int]] = set()

    def of(self, node: ast.AST, spot: Spot, left: int = _HOPS) -> Iterator[tuple[str, PythonFrame]]:
        """The views among them, the closest first."""
        key = (id(node), id(spot.scope))
        if left == 0 or key in self._seen:
            return
        self._seen.add(key)
        kind, inner = _view(node)
        if kind is not None:
            yield kind, PythonFrame(function=None, file=spot.file, line=getattr(node, "lineno", spot.line))
        if inner is not None:
            yield from self.of(inner, spot, left - 1)
        elif isinstance(node, ast.Name):
            yield from self._name(node.id, spot, left - 1)
        elif isinstance(node, ast.IfExp):
            yield from self.of(node.body, spot, left - 1)
            yield from self.of(node.orelse, spot, left - 1)
        elif isinstance(node, ast.Call) and called_name(node) not in _WHOLE:
            yield from self._results(node, spot, left - 1)

    def _name(self, name: str, spot: Spot, left: int) -> Iterator[tuple[str, PythonFrame]]:
        bound = [(line, value) for line, value in lines_that_bind(spot.scope, name) if line <= spot.line]
        for line, value in sorted(bound, key=lambda item: -item[0]):
            if value is not None and not isinstance(value, (ast.Tuple, ast.List)):
                yield from self.of(value, structs.replace(spot, line=line), left)
        if is_parameter(spot.scope, name) and not any(_always(spot.scope, line) for line, _ in bound):
            passed = self._search.argument(name, spot)
            if passed is not None:
                yield from self.of(passed[0], passed[1], left)

    def _results(self, call: ast.Call, spot: Spot, left: int) -> Iterator[tuple[str, PythonFrame]]:
        found = self._search.function(call, spot)
        if found is None:
            return
        function, at = found
        for item in own_nodes(function):
            if isinstance(item, ast.Return) and item.value is not None:
                inside = structs.replace(at, scope=function, line=item.lineno, depth=None, call=(call, spot))
                yield from self.of(item.value, inside, left)


def _always(scope: ast.AST, line: int) -> bool:
    """Whether a line of a function runs whenever it is passed: it is in no branch."""
    return any(getattr(item, "lineno", 0) == line for item in getattr(scope, "body", ()))


def is_flipped(node: ast.AST) -> bool:
    """`x[:, ::-1]`, `np.flip(x)`: a view of NumPy's with a negative stride."""
    return _view(node)[0] == "flipped"


def _view(node: ast.AST) -> tuple[str | None, ast.AST | None]:
    """What an expression makes of another one: the kind of view, if it may have gaps, and the other one."""
    if isinstance(node, ast.Subscript):
        return _of_slice(node.slice), node.value
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT", "H"):
        return "turned", node.value
    if not isinstance(node, ast.Call):
        return None, None
    name, func = called_name(node), node.func
    owner = func.value if isinstance(func, ast.Attribute) else None
    module = variable(owner) if owner is not None else None
    inner = (node.args[0] if node.args else None) if module in _MODULES or owner is None else owner
    if name in _FLIPS:  # torch's copies
        return ("flipped", inner) if module in ("np", "numpy") else (None, None)
    if name in _TURNS:
        return "turned", inner
    if name == "narrow" or (name == "frombuffer" and (len(node.args) > _OFFSET or _has(node, "offset"))):
        return "later", inner if name == "narrow" else None
    if name in _EXPANDS:
        return "expanded", inner
    return (None, inner) if name in _SAME else (None, None)


def _has(call: ast.Call, keyword: str) -> bool:
    return any(item.arg == keyword for item in call.keywords)


def _of_slice(node: ast.expr) -> str | None:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    steps = [_number(part.step) for part in parts if isinstance(part, ast.Slice)]
    if any(step is not None and step < 0 for step in steps):
        return "flipped"
    if any(step is not None and step > 1 for step in steps):
        return "stepped"
    later = [part for part in parts[1:] if not (isinstance(part, ast.Slice) and part.lower is part.upper is None)]
    sliced = isinstance(parts[0], ast.Slice) and bool(later)
    if sliced and all(isinstance(part, ast.Slice) or _number(part) is not None for part in later):
        return "stepped"
    return "later" if isinstance(parts[0], ast.Slice) and parts[0].lower is not None else None


def _number(node: ast.expr | None) -> int | None:
    text = ast.unparse(node) if node is not None else ""
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def temporary(view: ProcessView) -> str | None:
    """The address of a new array that nothing keeps: it is freed before C sees the address."""
    spot = Slice(view.process.snapshot, program_frames(view)).spot(0)
    kept = {
        id(node.value)
        for node in nodes_of(spot.tree if spot is not None else ast.Module([], []))
        if isinstance(node, ast.Attribute) and node.attr in ("data_as", "_as_parameter_")
    }  # NumPy keeps the array with what these return
    for node in nodes_of(spot.tree) if spot is not None else ():
        if not isinstance(node, ast.Attribute) or node.attr not in _ADDRESS or not isinstance(node.value, ast.Call):
            continue
        if called_name(node.value) not in _MAKES or _has(node.value, "copy") or id(node) in kept:
            continue
        text = shortened(ast.unparse(node.value), _QUOTED)
        return (
            f"Line {node.lineno} takes the address of `{text}`, a temporary that nothing keeps: its memory is freed as "
            "soon as the address is taken. Keep it in a variable for as long as native code may use the address."
        )
    return None


# Calls that always return new memory.
_MAKES = frozenset(
    {"astype", "copy", "clone", "tensor", "array", "zeros", "ones", "empty", "full", "rand", "randn", "arange"}
)
