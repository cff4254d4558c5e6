"""What the program's line passes to native code: the numbers with their values, the tensors with their sizes.

Advice to check a length helps only where a length is passed, and helps most with its value. A line that passes none
calls a function that takes its sizes from the data, which is then what to check.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words, size_words, uncapital
from pytracer.analyze.evidence.indices.narrow_indices import two_indices
from pytracer.analyze.evidence.indices.sparse_source import sparse_operator_advice
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames, variable_name
from pytracer.analyze.evidence.native.fault_function import entered_function, own_function
from pytracer.analyze.evidence.operators.line_tensors import line_tensors
from pytracer.analyze.evidence.operators.operator import OperatorTensor, find_operator, is_of_torch, shape_words
from pytracer.analyze.evidence.operators.state_sizes import small_state
from pytracer.analyze.evidence.operators.unfit_operands import unfit_operands
from pytracer.analyze.evidence.own_code.array_indices import in_range_advice
from pytracer.analyze.evidence.own_code.arrays import array_words, held_array
from pytracer.analyze.evidence.own_code.leading_arrays import leading_arrays
from pytracer.analyze.evidence.own_code.native_bounds import native_bounds
from pytracer.analyze.evidence.own_code.reaching_numbers import without_part
from pytracer.analyze.evidence.own_code.small_numbers import are_too_small
from pytracer.analyze.evidence.own_code.wrapped_counts import wrapped_count
from pytracer.analyze.evidence.preconditions.violated import unchecked_clause, unchecked_here
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, passed_values
from pytracer.analyze.evidence.syntax.lines import names_of_line
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import scope_of, second_parameter
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument, Crash, records_values
from pytracer.report.job import PythonFrame

_LEAST_ADDRESS = 1 << 32  # a smaller one may be a count
_WITH_NUMBERS = (1, 7)  # the format of a recording
_MOST = 4
_PARAMETER = "parameter "
_ROW_BY_ROW = ("backward", "loss")  # operators of torch whose tensors are of the same rows
_COUNTS = ("numel", "size", "stride", "dim", "nelement", "storage_offset", "item", "tolist")
_SIZES = ("shape", "size", "nbytes", "ndim", "strides", "itemsize", "value")
_ADDRESSES = ("data_ptr", "ctypes", "data", "untyped_storage", "cast", "byref", "addressof", "from_buffer", "c_void_p")
_ITEM = Pattern(r"\[\d+\]$")


class Passed(msgspec.Struct, frozen=True):
    """`numbers`: `` `count` = 8000000 ``; `tensors`: `` `pixels` (256 elements, 1.0 KiB) ``.

    `lengths`: whether a number is passed: None where that is not known. `values`: of the numbers; `bases`: where the
    storages of the tensors begin. `zeros`: the variables that hold 0. Numbers that have no part in it are left out.
    """

    line: int
    numbers: tuple[str, ...]
    tensors: tuple[str, ...]
    lengths: bool | None
    values: tuple[int, ...] = ()
    bases: tuple[int, ...] = ()
    zeros: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """`` `count` = 8000000 and `width` = 4 ``."""
        return list_words(self.numbers, _MOST)


def passed(view: ProcessView) -> Passed | None:
    """None where the program's line or its source is not known."""
    place = _program_line(view)
    if place is None or view.crash is None:
        return None
    frame, line, tree = place
    function = own_function(view)
    arguments = _arguments(tree, line, function.name.rpartition("::")[2] if function is not None else None)
    names = list(dict.fromkeys(name for item in arguments for name in _names(item)))
    held = _numbers(view, frame)
    aside = without_part(view) if any(name in held for name in names) else frozenset[str]()
    counting = [name for name in names if name not in aside]
    numbers = tuple(f"`{name}` = {_value(held, name)}" for name in counting if _value(held, name) is not None)
    known = _numbers_known(view, view.crash)
    answers = [_is_length(item, held, known) for item in arguments]
    lengths = True if True in answers else None if None in answers else False
    found = dict(_tensors(view, frame, names_of_line(tree, line)))
    of_names = [(_ITEM.sub("", expression), value) for expression, value in held.items()]
    values = tuple(value for name in counting for of_name, value in of_names if of_name == name)
    zeros = tuple(name for name in names if held.get(name) == 0)
    return Passed(line, numbers, tuple(found), lengths, values, tuple(found.values()), zeros)


def _program_line(view: ProcessView) -> tuple[PythonFrame, int, ast.Module] | None:
    """The program's innermost frame, its line and its source."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    return (frame, frame.line, tree) if tree is not None and frame is not None and frame.line is not None else None


def _numbers_known(view: ProcessView, crash: Crash) -> bool:
    """Whether a variable without a number was none: the search worked, and values were wanted."""
    snapshot = view.process.snapshot
    return records_values(snapshot) and snapshot.version >= _WITH_NUMBERS and bool(crash.numbers or crash.holders)


def _arguments(tree: ast.Module, line: int, function: str | None) -> list[ast.expr]:
    """What the calls of a line pass; only those of the native function, where the line calls it by its name."""
    calls = calls_on(tree, line)
    named = [node for node in calls if (getattr(node.func, "attr", None) or getattr(node.func, "id", "")) == function]
    return [item for node in named or calls for item in passed_values(node)]


def names_passed(view: ProcessView, tree: ast.Module, line: int, *, innermost: bool = False) -> list[str] | None:
    """The variables among the arguments of the native function; None where the line does not call it by its name.

    `innermost`: only where the function that failed is the one that the line calls.
    """
    function = own_function(view)
    names = {function.name.rpartition("::")[2] if function is not None else None}
    names = (names if innermost else {*names, entered_function(view)}) - {None}
    named = [node for node in calls_on(tree, line) if called_name(node) in names]
    given = [item for node in named for item in passed_values(node)]
    return list(dict.fromkeys(name for item in given for name in _names(item))) if named else None


def _names(node: ast.AST) -> Iterator[str]:
    """Variables of an expression, but for those that only choose what is passed: `i` of `files[i]`."""
    name = variable(node)
    if name is not None:
        yield name
        return
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.Subscript) and child is node.slice):
            yield from _names(child)


def _numbers(view: ProcessView, frame: PythonFrame) -> dict[str, int]:
    """Of the variables there, without handles: an address of memory that is mapped counts nothing."""
    place = (frame.file, frame.function, frame.line)
    found: dict[str, int] = {}
    crash = view.crash
    held = () if crash is None else crash.numbers if crash.python_stack else (*crash.numbers, *crash.other_numbers)
    for item in held:
        if (item.frame.file, item.frame.function, item.frame.line) == place and not _is_address(view, item.value):
            found.setdefault(item.expression, item.value)
    return found


def _is_address(view: ProcessView, value: int) -> bool:
    mappings = view.crash.mappings if view.crash is not None and value >= _LEAST_ADDRESS else ()
    return any(item.start <= value < item.end for item in mappings)


def _value(held: dict[str, int], name: str) -> str | None:
    """A number, or the list of them."""
    if name in held:
        return str(held[name])
    items = [str(value) for expression, value in held.items() if _ITEM.sub("", expression) == name]
    return f"[{', '.join(items)}]" if items else None


def _tensors(view: ProcessView, frame: PythonFrame, names: list[str]) -> Iterator[tuple[str, int]]:
    """Each in words, and where its storage begins."""
    operator = find_operator(view)
    shapes = {item.name: item.item for item in (operator.tensors if operator is not None else ())}
    for name in names:
        if name in shapes:
            yield f"`{name}` {shape_words(shapes[name])}", shapes[name].base
            continue
        array = held_array(view, name)
        if array is not None:
            yield array_words(array), array.data
            continue
        for item in view.crash.holders if view.crash is not None else ():
            at = item.frame
            if item.expression != name or at is None or (at.file, at.line) != (frame.file, frame.line) or not item.base:
                continue
            storage = view.space.live_around(item.base)
            if storage is not None:
                yield f"`{name}` ({item.elements} elements, {size_words(storage.nbytes)})", item.base
            break


def _is_length(node: ast.expr, held: dict[str, int], known: bool) -> bool | None:
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in _ADDRESSES:
            return False
        return True if name in _COUNTS or name in ("len", "int", "sum", "min", "max") else None
    if isinstance(node, (ast.BinOp, ast.UnaryOp)):
        return True
    if isinstance(node, ast.Attribute) and (node.attr in _ADDRESSES or node.attr in _SIZES):
        return node.attr in _SIZES
    name = variable(node.value if isinstance(node, ast.Subscript) else node)
    if name is not None:
        if _value(held, name) is not None:
            return True
        return False if known else None
    if isinstance(node, (ast.JoinedStr, ast.Lambda, ast.GeneratorExp, ast.ListComp)):
        return False
    return None


def layout_advice(view: ProcessView) -> str | None:
    """Where the tensor at the fault has elements of another size than the access, or is expanded without memory."""
    storage = view.place.storage if view.place is not None else None
    operator, instruction = find_operator(view), view.instruction
    if storage is None or operator is None or is_of_torch(operator):
        return None
    alike = [item for item in operator.tensors if item.passed and item.item.base == storage.base and item.name]
    item = alike[0] if len(alike) == 1 else None
    nbytes = item.item.element_bytes if item is not None else None
    if item is None or nbytes is None:
        return None
    name = f"`{variable_name(view, storage.base) or item.name}`"
    if instruction is not None and instruction.index_value is not None and instruction.scale > nbytes:
        return (
            f"Check the type of {name}: {operator.name}() reads elements of {instruction.scale} bytes, and {name} is "
            f"{item.item.dtype}, of {nbytes} each. Convert it before (`.float()`, `.to(...)`), or use "
            "data_ptr<T>(), which refuses another type."
        )
    if item.item.elements * nbytes > storage.nbytes:
        return (
            f"Pass `{name[1:-1]}.contiguous()` to {operator.name}(): {name} {shape_words(item.item)} is expanded, only "
            f"{size_words(storage.nbytes)} of memory lie behind it, and the native code counts on "
            f"{size_words(item.item.elements * nbytes)}."
        )
    return None


def _sample(view: ProcessView) -> str | None:
    """`sample 33` in the `__getitem__` of a DataLoader worker."""
    place = _program_line(view)
    if place is None:
        return None
    frame, line, tree = place
    scope = scope_of(tree, line)
    name = second_parameter(scope) if getattr(scope, "name", None) == "__getitem__" else None
    value = _numbers(view, frame).get(name) if name is not None else None
    return f"sample {value}" if value is not None else None


def unequal_tensors(view: ProcessView) -> str | None:
    """`` `mean` [32, 1] and `x` [20000000, 4] ``: of an operator's tensors, by their first sizes.

    Of a backward function, which takes what belongs together; of any other, those that differ in nothing else. Of
    torch's operators, only those that take all row by row.
    """
    operator = find_operator(view)
    if operator is None:
        return None
    backward = "backward" in operator.name
    if is_of_torch(operator) and not any(word in operator.name for word in _ROW_BY_ROW):
        return None  # a weight, a table or a state has other rows than the data beside it
    tensors = line_tensors(view) if is_of_torch(operator) else [item for item in operator.tensors if item.passed]
    floats = [
        item for item in tensors if item.name and item.item.sizes and item.item.elements and not item.item.is_integer
    ]
    rows = [item for item in floats if len(item.item.sizes) >= 2]
    # One number for each of something, as a weight has for each channel, fits.
    single = [item for item in floats if item not in rows and not any(item.item.elements in o.item.sizes for o in rows)]
    shaped = [*rows, *single] if backward else rows
    pairs = (
        (most, least)
        for most in shaped
        for least in shaped
        if least.item.sizes[0] * 2 <= most.item.sizes[0]
        and (backward or _alike(least.item, most.item))
        and not _in_other_order(least.item, most.item)
        and not _is_weight(most, least, tensors)
    )
    best = max(pairs, key=lambda pair: pair[0].item.sizes[0] / pair[1].item.sizes[0], default=None)
    if best is None:
        return None
    most, least = best
    return f"`{least.name}` {shape_words(least.item)} and `{most.name}` {shape_words(most.item)}"


def _is_weight(one: OperatorTensor, other: OperatorTensor, tensors: Sequence[OperatorTensor]) -> bool:
    """Whether one is a layer's: a parameter beside data, or a factor of the product that is among the tensors."""
    if (one.name or "").startswith(_PARAMETER) != (other.name or "").startswith(_PARAMETER):
        return True
    rows = (one.item.sizes[0], other.item.sizes[0])
    return any(item.item.sizes[-2:] in (rows, rows[::-1]) for item in tensors if item not in (one, other))


def _in_other_order(one: Argument, other: Argument) -> bool:
    """Whether each has the other's first size in another place: time first and batch first."""
    return one.sizes[0] in other.sizes[1:] and other.sizes[0] in one.sizes[1:]


def _alike(one: Argument, other: Argument) -> bool:
    """Whether only the first size differs, or the smaller one has one number for each row."""
    return len(one.sizes) == len(other.sizes) and (one.sizes[1:] == other.sizes[1:] or math.prod(one.sizes[1:]) == 1)


def unfit_clause(view: ProcessView, *, counts: bool = True) -> str:
    """`: `mean` [8, 1] and `x` [300, 2], which it takes together, do not fit`; nothing where all do.

    Of a fused optimizer, the state or gradient that is smaller than its parameter. `counts`: also one that may have
    wrapped below zero.
    """
    operands = unfit_operands(view)
    if operands is not None:
        return f": {operands.summary}"
    wrapped = wrapped_count(view) if counts else None
    if wrapped is not None:
        return f": {wrapped.summary}"
    state = small_state(view)
    if state is not None:
        return f": {state}"
    unchecked = unchecked_clause(view)
    if unchecked is not None:
        return f"; {unchecked}"
    unequal = unequal_tensors(view)
    return f": {unequal}, which it takes together, do not fit" if unequal is not None else ""


def shapes_advice(unequal: str, line: str) -> str:
    """Of tensors whose sizes do not fit."""
    return (
        f"Compare the shapes of {unequal}, which {line} passes together: the function takes one size for all of them, "
        "and leaves the smaller one. They may be of different batches or layers."
    )


def computed_advice(view: ProcessView, number: int, inside: str) -> str:
    """Of an index that is in no tensor of the call: from sizes that do not fit, or from values that were passed."""
    halves = two_indices(view, number)
    if halves is not None:
        return halves.advice
    line, unequal, sparse = line_words(view), unequal_tensors(view), sparse_operator_advice(view)
    operands = unfit_operands(view)
    if operands is not None:
        return operands.advice(view)
    if sparse is not None:
        return sparse
    unchecked = unchecked_here(view)
    if unchecked is not None:
        return unchecked
    if unequal is not None:
        return shapes_advice(unequal, line)
    tensors = line_tensors(view)
    operator = find_operator(view)
    integers = [item for item in tensors if item.item.is_integer and (item.passed or item.item.dimensions)]
    if operator is not None and is_of_torch(operator) and tensors and not integers:
        return (
            f"Check the shapes of the tensors that {line} passes against each other, and its numbers: no index tensor "
            f"is among them, so that the function computed {number} from sizes, which it does not check."
        )
    if not integers:
        return (
            f"Check the indices and sizes that {line} passes, which must lie inside {inside}: {number} came of them, "
            "and the function uses it unchecked."
        )
    return (
        f"Check the index and size tensors that {line} passes: min() and max() must lie inside {inside}. The function "
        f"computed {number} from them and uses it unchecked."
    )


def length_advice(view: ProcessView, general: str, of: str = "", *, data: str = "the data", counts: bool = True) -> str:
    """`general`, or what is known of the numbers that the line passes. `of`: `` for `pixels` ``.

    `counts`: also of a count that may have wrapped below zero.
    """
    found, unequal, sample = passed(view), unequal_tensors(view), _sample(view)
    sparse, operands = sparse_operator_advice(view), unfit_operands(view)
    if operands is not None:
        return operands.advice(view)
    if sparse is not None:
        return sparse
    wrapped = wrapped_count(view) if counts else None
    if wrapped is not None:
        return wrapped.advice if wrapped.proven else f"{wrapped.advice} Otherwise {uncapital(general)}"
    unchecked = unchecked_here(view)
    if unchecked is not None:
        return unchecked
    indices = in_range_advice(view)
    if indices is not None:
        return indices
    if found is None:
        return general
    if unequal is not None and not found.numbers:
        return shapes_advice(unequal, f"line {found.line}")
    if sample is not None and found.lengths is not True:
        data = f"what is in {sample}, the data"
    if found.numbers and are_too_small(view, found.values, found.bases):
        listed = list_words(found.tensors, _MOST) or "the data"
        small = "is" if len(found.numbers) == 1 else "are"
        return (
            f"Check the numbers in {listed}, which line {found.line} passes, by which the function may count or index: "
            f"{found.words} {small} too small to lead there. `pytracer run --guard` stops at the first byte outside of "
            "a tensor."
        )
    leading = leading_arrays(view, found.values) if found.numbers else None
    if leading is not None:
        return leading.advice
    if found.numbers:
        one = "it" if len(found.numbers) == 1 else "one of them"
        sized = f" ({', '.join(found.tensors)})" if found.tensors and not of else ""
        return (
            f"Check {found.words}, which line {found.line} passes{of}{sized}: {one} is negative or too large for the "
            "memory. `pytracer run --guard` stops at the first byte outside of a tensor."
        )
    if found.lengths is False and len(found.tensors) > 1 and native_bounds(view) is not None:
        return (
            f"Compare the sizes of {list_words(found.tensors)}, which line {found.line} passes: the function "
            "may index one of them by the sizes of another."
        )
    if found.lengths is False:
        return (
            f"Check {data} that line {found.line} passes: it passes no length, so the native code takes its sizes from "
            "what is in the data, which may be damaged or of another format. `pytracer run --guard` stops at the first "
            "byte outside of a tensor."
        )
    return general
