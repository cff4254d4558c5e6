"""An array or tensor whose elements have another type than the program's own function takes them to have.

ctypes hands on addresses, and data_ptr() without a type is one: the function counts elements of its own type, and
leaves an array of smaller ones. Floats that it reads as whole numbers are huge as lengths and indices.
"""

from __future__ import annotations

import ast
import struct
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import count_words, list_words, shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames, python_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.fault_function import entered_function
from pytracer.analyze.evidence.operators.operator import shape_words
from pytracer.analyze.evidence.own_code.arrays import array_words, held_array
from pytracer.analyze.evidence.own_code.element_uses import leads_to_memory
from pytracer.analyze.evidence.own_code.made_type import made_element
from pytracer.analyze.evidence.own_code.own_libraries import own_libraries, passed_in
from pytracer.analyze.evidence.own_code.own_signature import Parameter, own_definition, signature
from pytracer.analyze.evidence.own_code.pointer_arguments import is_converted, pointed_at, pointer_arguments
from pytracer.analyze.evidence.preconditions.call import given_of
from pytracer.analyze.evidence.slicing.bindings import last_binding
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.bindings import binding
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import PythonFrame
from pytracer.report.job import PythonFrame as Place

_QUOTED = 70
_WHOLE = Pattern(r"(?:self\.)?\w+")
_TORCH_TYPES = {"double": "float64", "float": "float32", "int": "int32", "long": "int64", "short": "int16"}
_FLOATS = {"float32": "<f", "float64": "<d"}
_CONVERTS = {"int32": "int()", "int64": "long()", "int16": "short()"}


class UnfitMemory(msgspec.Struct, frozen=True):
    """`words`: `` `returns` [70] float32 ``, of elements of `nbytes` bytes, passed by `line` for `parameter`.

    `made`: the line that bound the variable, with its text. `misread`: the type of floats that the function reads as
    whole numbers, by which it counts or indexes. `others`: variables of the same call that do not fit alike. `data`:
    the address of its first element. `pointed`: the line that takes its address.
    """

    function: str
    parameter: Parameter
    name: str
    words: str
    nbytes: int
    line: int
    made: str | None
    misread: str | None = None
    of_numpy: bool = False
    others: tuple[str, ...] = ()
    dtype: str | None = None
    data: int | None = None
    pointed: int | None = None
    file: str | None = None

    @property
    def takes_floats(self) -> bool:
        """Whether floats are read as floats of another size."""
        return self.dtype in _FLOATS and self.parameter.element in ("float", "double")

    @property
    def _is_cast(self) -> bool:
        """Whether astype() gives what is wanted."""
        return self.of_numpy and self.takes_floats

    @property
    def summary(self) -> str:
        """What the headline ends with."""
        if self.misread is not None:
            of = f", for `{self.parameter.name}`" if self.parameter.name != self.name else ""
            return (
                f"{self.words}, which line {self.line} passes, is read as {self.parameter.element} by "
                f"{self.function}() ({self.parameter.place}){of}, where 1.0 is {self._one}"
            )
        return (
            f"{self.words}, which line {self.line} passes, has elements of {self.nbytes} bytes, and {self.function}() "
            f"({self.parameter.place}) takes {self.parameter.element}, of {self.parameter.nbytes}, for "
            f"`{self.parameter.name}`"
        )

    def advice(self, view: ProcessView) -> str:
        """What to change."""
        wanted = _TORCH_TYPES.get(self.parameter.element or "", (self.parameter.element or "").removesuffix("_t"))
        made = f" at {self.made}" if self.made is not None else f" before line {self.pointed or self.line}"
        refuse = "np.ctypeslib.ndpointer(dtype) in argtypes, or data_ptr<T>() in C++, refuses another type"
        if self.misread is not None:
            dtype = self._dtype
            how = f"astype(np.{dtype})" if self.of_numpy else _CONVERTS.get(dtype, f"to(torch.{dtype})")
            return (
                f"Make `{self.name}` {dtype} (`.{how}`){made}: {self.function}() ({self.parameter.place}) takes its "
                f"bits for whole numbers, by which it counts or indexes. Nothing checks that: {refuse}."
            )
        names = list_words([f"`{item}`" for item in (self.name, *self.others)], 4)
        how = f" (`.astype(np.{wanted})`, kept in a variable until the call has returned)" if self._is_cast else ""
        return (
            f"Make {names} {wanted}{how}{made}, or let {self.function}() ({self.parameter.place}) take elements of "
            f"{self.nbytes} bytes. Nothing checks that: {refuse}."
        )

    @property
    def _dtype(self) -> str:
        """Of NumPy and torch, for the type in C."""
        element = self.parameter.element or ""
        found = _TORCH_TYPES.get(element, element.removesuffix("_t"))
        return found if found in ("int16", "int32", "int64") else f"int{8 * self.parameter.nbytes}"

    @property
    def _one(self) -> int:
        """What the first whole number of 1.0 that is not 0 is."""
        packed = struct.pack(_FLOATS[self.misread or "float32"], 1.0)
        step = min(self.parameter.nbytes, len(packed))
        parts = (int.from_bytes(packed[at : at + step], "little") for at in range(0, len(packed), step))
        return next(part for part in parts if part)


def unfit_memory(view: ProcessView, *, before: bool = False) -> UnfitMemory | None:
    """Of the call that runs; `before`: of those of the running functions that may have returned."""
    running = entered_function(view)
    if running is None and not before:
        return None
    for frame in python_frames(view):
        if is_library_file(frame.file) or frame.line is None:
            continue
        tree = syntax_tree(view.process.snapshot, python_frame(frame))
        if tree is None:
            return None
        for call in _calls(tree, frame.line, None if before else running):
            found = next(iter(_unfit(view, frame, tree, call)), None)
            if found is not None and (not before or _may_damage(found.parameter)):
                return found
        if not before:
            return None
    return _by_source(view) if before else None


def unfit_arguments(view: ProcessView) -> list[UnfitMemory]:
    """All of the call that runs."""
    running = entered_function(view)
    frame = next((item for item in python_frames(view) if not is_library_file(item.file)), None)
    tree = syntax_tree(view.process.snapshot, python_frame(frame)) if frame is not None else None
    if running is None or frame is None or frame.line is None or tree is None:
        return []
    return [item for call in _calls(tree, frame.line, running) for item in _unfit(view, frame, tree, call)]


def _by_source(view: ProcessView) -> UnfitMemory | None:
    """Of a function of the program that has returned: by the line that made the variable. The only such call."""
    libraries = own_libraries(view)
    trees = program_files(view.process.snapshot, program_frames(view)) if libraries is not None else {}
    found = []
    for call in libraries.calls if libraries is not None else ():
        tree, line = trees.get(call.at.file or ""), call.at.line or 0
        nodes = [node for node in nodes_of(tree or ast.Module([], [])) if isinstance(node, ast.Call)]
        for node in nodes:
            if tree is not None and node.lineno == line and called_name(node) == call.function:
                found += [*_unfit_by_source(view, call.at, tree, node)]
    return found[0] if len(found) == 1 else None


def _unfit_by_source(view: ProcessView, at: Place, tree: ast.Module, call: ast.Call) -> Iterator[UnfitMemory]:
    name = called_name(call) or ""
    taken = signature(view, name)
    if taken is None or any(isinstance(item, ast.Starred) for item in call.args):
        return
    for parameter, argument in zip(taken, call.args, strict=False):
        held = list(passed_in([argument]))
        if parameter.element is None or parameter.constant or len(held) != 1:
            continue
        bound = last_binding(scope_of(tree, call.lineno), held[0], call.lineno)
        made = made_element(bound[1], tree) if bound is not None and bound[1] is not None and bound[2] is None else None
        if bound is not None and made is not None and made[1] < parameter.nbytes:
            text = line_text(view.process.snapshot, Place(function=None, file=at.file, line=bound[0])) or ""
            where = f"line {bound[0]} (`{text.strip()}`)"
            yield UnfitMemory(name, parameter, held[0], f"`{held[0]}` of {made[0]}", made[1], call.lineno, where)


def _calls(tree: ast.Module, line: int, running: str | None) -> Iterator[ast.Call]:
    """Those on the line that call `running`; without it, all of the function up to the line, the latest first."""
    nodes = [item for item in own_nodes(scope_of(tree, line)) if isinstance(item, ast.Call) and item.lineno <= line]
    for node in sorted(nodes, key=lambda item: -item.lineno):
        if running is None or (called_name(node) == running and line <= (node.end_lineno or node.lineno)):
            yield node


def _unfit(view: ProcessView, frame: PythonFrame, tree: ast.Module, call: ast.Call) -> list[UnfitMemory]:
    """The arguments that do not fit, each with the names of those that do not fit alike."""
    found = [*_unfits(view, frame, tree, call)]
    return [structs.replace(item, others=_alike(item, found)) for item in found]


def _alike(item: UnfitMemory, found: list[UnfitMemory]) -> tuple[str, ...]:
    kind = (item.dtype, item.parameter.element, item.misread)
    names = (other.name for other in found if (other.dtype, other.parameter.element, other.misread) == kind)
    return tuple(dict.fromkeys(name for name in names if name != item.name))


def _unfits(view: ProcessView, frame: PythonFrame, tree: ast.Module, call: ast.Call) -> Iterator[UnfitMemory]:
    name = called_name(call)
    arguments = pointer_arguments(tree, call) if name is not None and isinstance(call.func, ast.Attribute) else []
    taken = signature(view, name) if name is not None and any(map(_held_names, arguments)) else None
    if taken is None or name is None:
        return
    for parameter, argument in zip(taken, arguments, strict=False):
        held = _held_names(argument)
        if parameter.element is None or len(held) != 1 or is_converted(argument):
            continue
        item = _held(view, frame, held[0])
        misread = item.dtype if item is not None and _is_misread(view, name, parameter, item.dtype) else None
        if item is not None and (
            item.nbytes < parameter.nbytes or misread is not None or _is_cut(view, name, parameter, item.dtype)
        ):
            made = _made(view, frame, tree, held[0])
            yield UnfitMemory(
                name, parameter, held[0], item.words, item.nbytes, call.lineno, made, misread, item.of_numpy,
                dtype=item.dtype, data=item.data, pointed=getattr(argument, "lineno", None), file=frame.file,
            )  # fmt: skip


def _held_names(argument: ast.expr) -> list[str]:
    held = list(passed_in([argument]))
    other = pointed_at(argument) if not held else None
    return held if other is None else [other]


def _is_misread(view: ProcessView, function: str, parameter: Parameter, dtype: str | None) -> bool:
    """Whether floats are taken for whole numbers that bound a loop or are indices."""
    if dtype not in _FLOATS or parameter.element in ("float", "double", None):
        return False
    definition = own_definition(view, function)
    return definition is not None and leads_to_memory(definition.body, parameter.name)


def _is_cut(view: ProcessView, function: str, parameter: Parameter, dtype: str | None) -> bool:
    """Whether halves of float64 are taken for floats that lead to indices."""
    if (dtype, parameter.element) != ("float64", "float"):
        return False
    definition = own_definition(view, function)
    return definition is not None and leads_to_memory(definition.body, parameter.name)


def _may_damage(parameter: Parameter) -> bool:
    """Whether it is written, or whole numbers are read, by which something may be."""
    return not parameter.constant or parameter.element not in ("float", "double")


class _Held(msgspec.Struct, frozen=True):
    """What a variable holds, in words, and the bytes of an element."""

    words: str
    nbytes: int
    dtype: str | None
    of_numpy: bool
    data: int | None = None


def _held(view: ProcessView, frame: PythonFrame, name: str) -> _Held | None:
    array = held_array(view, name)
    if array is not None and (array.frame.file, array.frame.line) == (frame.file, frame.line):
        nbytes = array.element_bytes
        return _Held(array_words(array), nbytes, array.dtype, True, array.data) if nbytes is not None else None
    given = given_of(view, frame, ast.parse(name, mode="eval").body)
    tensor = given.tensor if given is not None else None
    if tensor is None and given is not None and given.base:
        return _of_any_shape(view, name, given.base, given.elements)
    if tensor is None or tensor.element_bytes is None:
        return None
    return _Held(
        f"`{name}` {shape_words(tensor)} {tensor.dtype}", tensor.element_bytes, tensor.dtype, False, tensor.data
    )


def _of_any_shape(view: ProcessView, name: str, base: int, elements: int | None) -> _Held | None:
    """Of a tensor that another one is a view of, with as many elements: its type is known, its shape is not."""
    crash = view.crash
    alike = [item for item in crash.arguments if (item.base, item.elements) == (base, elements)] if crash else []
    types = {(item.dtype, item.element_bytes) for item in alike}
    dtype, nbytes = types.pop() if len(types) == 1 else (None, None)
    if dtype is None or nbytes is None:
        return None
    return _Held(f"`{name}` ({count_words(elements or 0, 'element')}, {dtype})", nbytes, dtype, False)


def _made(view: ProcessView, frame: PythonFrame, tree: ast.Module, name: str) -> str | None:
    """In the function itself, or further out on the stack."""
    if frame.line is None:
        return None
    bound = binding(tree, scope_of(tree, frame.line), name, frame.line)
    if bound is None:
        return _made_outside(view, frame, name)
    text = line_text(view.process.snapshot, Place(function=None, file=frame.file, line=bound[0]))
    return f"line {bound[0]} (`{text.strip()}`)" if text else f"line {bound[0]}"


def _made_outside(view: ProcessView, frame: PythonFrame, name: str) -> str | None:
    own = program_frames(view)
    depth = next((at for at, item in enumerate(own) if item == python_frame(frame)), None)
    back = Slice(view.process.snapshot, own)
    spot = back.spot(depth) if depth is not None else None
    if spot is None:
        return None
    whole = _WHOLE.match(name)
    names = dict.fromkeys([name, whole[0]] if whole is not None else [name])  # of `rows['x']` also `rows`
    found = (back.made(ast.parse(item, mode="eval").body, spot, calls=False) for item in names)
    made = next((item for item in found if item.through), None)
    if made is None:
        return None
    at = Place(function=None, file=made.spot.file, line=made.line)
    text = " ".join((line_text(view.process.snapshot, at) or "").split())
    return f"{place_of(view, at.file, at.line)} (`{shortened(text, _QUOTED)}`)"
