"""The check of an index that inductor writes into a kernel: "index out of bounds: 0 <= tmp10 < 8000L".

It names a variable of generated code. The limit is the size of the tensor that is indexed. Which tensor of integers the
index is from is in the kernel's source, if that is still there; else it is the one that has values outside of the limit
and that the compiled function uses on no other tensor.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.collectives.quiet_handlers import goes_on
from pytracer.analyze.evidence.indices.indexing_lines import (
    IndexingLine,
    indexing_lines,
    lines_by_index,
    lines_words,
)
from pytracer.analyze.evidence.indices.kernel_source import CheckedIndex, checked_index
from pytracer.analyze.evidence.indices.other_dimension import other_dimension
from pytracer.analyze.evidence.lifetime.loop_batches import made_clause
from pytracer.analyze.evidence.lifetime.variables import headline_file, line_words, plain_expression, program_frames
from pytracer.analyze.evidence.native.aborts import cpp_exception
from pytracer.analyze.evidence.operators.line_tensors import line_tensors
from pytracer.analyze.evidence.operators.operator import OperatorTensor, shape_words
from pytracer.analyze.evidence.own_code.uncaught import in_region
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import PythonFrame

_CHECK = Pattern(r"index out of bounds: (?:-?\w+ <= )?tmp\d+ < (\w+)")
_BODIES = ("_omp_fn", "omp_outlined")  # what GCC and clang call the body of a parallel region
_CAUGHT = {"Exception", "BaseException", "IndexError", "LookupError", "RuntimeError"}
_INDEXING = ("embedding", "embedding_bag", "index_select", "gather", "take", "take_along_dim", "index_add", "scatter")
_MOST = 3


class FailedCheck(msgspec.Struct, frozen=True):
    """`what` failed, in words, and what to do."""

    what: str
    advice: str


class _Parts(msgspec.Struct, frozen=True):
    """`index`: the tensor that is wrong; `computed`: it is none that the compiled function was given."""

    index: OperatorTensor | None
    table: OperatorTensor | None
    computed: bool = False


def failed_check(view: ProcessView) -> FailedCheck | None:
    """None where no such check failed."""
    exception = cpp_exception(view)
    text = (exception.what or "") if exception is not None else ""
    found = _CHECK.search(text)
    if found is None:
        return None
    tensors, checked = line_tensors(view), checked_index(view, text)
    constant = found[1].removesuffix("L")
    limit = int(constant) if constant.isdecimal() else None
    parts = _by_values(view, limit, tensors)
    if checked is not None:
        table = _held(view, checked.frame, checked.table, tensors) if checked.table is not None else parts.table
        if limit is None and table is not None and checked.dimension is not None:
            limit = dict(enumerate(table.item.sizes)).get(checked.dimension)
        parts = _by_source(view, checked, tensors, table, limit)
    index, table = parts.index, parts.table
    named = f"`{index.name}`{_range(index)}" if index is not None and index.name else "an index"
    if parts.computed:
        named = "an index that the compiled function computes"
    must = f"must be {_bound(index, limit)}" if limit is not None else "must be less than the size of what it indexes"
    tables = [table] if table is not None else _of_size(tensors, limit)
    lines = lines_by_index(view, index.name) if index is not None and index.name and not parts.computed else []
    lines = lines or indexing_lines(view, dict.fromkeys(item.name for item in tables if item.name))
    what = f"torch.compile's own check of an index failed: {named} {must}{_size_words(table)}"
    what += f", in {lines_words(lines)}" if lines else ""
    if _is_in_region(view):
        what += "; the exception left a parallel region, where no `except` can catch it"
    advice = (
        _line_advice(lines, limit, parts)
        or other_dimension(lines, index, table, limit)
        or _values_advice(view, limit, parts, tensors)
    )
    return FailedCheck(what, f"{advice} {_catch_advice(view)}")


def _line_advice(lines: list[IndexingLine], limit: int | None, parts: _Parts) -> str | None:
    """Where one line alone computes the index of that tensor."""
    line = lines[0] if len(lines) == 1 else None
    if line is None or line.index is None or line.made is None or limit is None or not parts.computed:
        return None
    made = f": {line.made} makes it"
    made += ", and sets no largest value" if line.only_below else ""
    return f"Keep `{line.index}` in 0..{limit - 1} before {line.words} uses it{made}."


def _of_size(tensors: tuple[OperatorTensor, ...], limit: int | None) -> list[OperatorTensor]:
    """All that the index may be for; nothing where one of them is not known by a name that the lines may have."""
    found = [item for item in tensors if limit in item.item.sizes and not item.item.is_integer]
    return found if all(item.name and item.name.removeprefix("self.").isidentifier() for item in found) else []


def _bound(index: OperatorTensor | None, limit: int) -> str:
    """Negative values count from the end."""
    low, high = (index.item.minimum, index.item.maximum) if index is not None else (None, None)
    is_below = low is not None and high is not None and low < -limit and high < limit
    return f"at least {-limit}" if is_below else f"less than {limit}"


def _size_words(table: OperatorTensor | None) -> str:
    if table is None:
        return ""
    name = f"`{table.name}`" if table.name else "a tensor"
    return f", the size of {name} {shape_words(table.item)}"


def _is_in_region(view: ProcessView) -> bool:
    """Whether the kernel threw in the body of a parallel region, on a worker or on the thread that opened it."""
    frames = view.crash.native_stack if view.crash is not None else ()
    return in_region(view) or any(part in (frame.function or "") for frame in frames for part in _BODIES)


def _by_source(
    view: ProcessView,
    checked: CheckedIndex,
    tensors: tuple[OperatorTensor, ...],
    table: OperatorTensor | None,
    limit: int | None,
) -> _Parts:
    """As the kernel's source has it. A tensor whose values are all inside is one that the index is computed from."""
    indices = [_held(view, checked.frame, name, tensors) for name in checked.indices]
    index = indices[0] if len(indices) == 1 else None
    if index is not None and not index.item.is_integer:
        index = None  # the index is computed from it
    if index is not None and limit is not None and index.item.maximum is not None and not _outside(limit, (index,)):
        index = None
    return _Parts(index if index is not None and index.name else None, table, computed=index is None)


def _held(
    view: ProcessView, frame: PythonFrame, name: str, tensors: tuple[OperatorTensor, ...]
) -> OperatorTensor | None:
    """The tensor of a variable of the wrapper."""
    at = (frame.function, frame.line)
    bases = {
        item.base
        for item in (view.crash.holders if view.crash is not None else ())
        if item.frame is not None and (item.frame.function, item.frame.line) == at and item.expression == name
    }
    found = [item for item in tensors if item.item.base in bases]
    return found[0] if len(bases) == 1 and found else None


def _by_values(view: ProcessView, limit: int | None, tensors: tuple[OperatorTensor, ...]) -> _Parts:
    """By the values of the integers, and the sizes of all others."""
    if limit is None:
        return _Parts(None, None)
    outside = [item for item in _outside(limit, tensors) if not _indexes_other(view, item, limit, tensors)]
    index = outside[0] if len({item.item.base for item in outside}) == 1 else None
    tables = [
        item for item in tensors if limit in item.item.sizes and item.name and item not in _outside(limit, tensors)
    ]
    return _Parts(index, tables[0] if len({item.item.base for item in tables}) == 1 else None)


def _outside(limit: int, tensors: tuple[OperatorTensor, ...]) -> list[OperatorTensor]:
    return [
        item
        for item in tensors
        if item.item.is_integer
        and item.item.maximum is not None
        and item.item.minimum is not None
        and (item.item.maximum >= limit or item.item.minimum < -limit)
    ]


def _indexes_other(view: ProcessView, index: OperatorTensor, limit: int, tensors: tuple[OperatorTensor, ...]) -> bool:
    """Whether the compiled function uses it, by its name, on tensors that have no dimension of that size alone."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or index.name is None or frame is None or frame.line is None:
        return False
    sizes = {plain_expression(item.name): item.item.sizes for item in tensors if item.name and not item.item.is_integer}
    used = [sizes[name] for name in _indexed_by(tree, index.name) if name in sizes]
    return bool(used) and not any(limit in item for item in used)


def _indexed_by(tree: ast.Module, name: str) -> Iterator[str]:
    """The variables of what `name` is an index of: `table` of `table[name]`, and the weight of a module called with it.

    Of functions, only those that take an index.
    """
    for node in nodes_of(tree):
        among: list[ast.expr] = []
        if isinstance(node, ast.Subscript) and any(variable(item) == name for item in _parts(node.slice)):
            among = [node.value]
        elif isinstance(node, ast.Call) and any(variable(item) == name for item in node.args):
            yield f"{variable(node.func)}.weight"
            if called_name(node) in _INDEXING:
                among = [node.func, *node.args]
        yield from (text for item in among for part in nodes_of(item) if (text := variable(part)) is not None)


def _parts(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _range(item: OperatorTensor) -> str:
    return f" ({item.item.minimum}..{item.item.maximum})" if item.item.minimum is not None else ""


def _values_advice(view: ProcessView, limit: int | None, parts: _Parts, tensors: tuple[OperatorTensor, ...]) -> str:
    line, index = line_words(view), parts.index
    inside = f"lie in 0..{limit - 1}" if limit is not None else "be less than the size of what they index"
    if index is not None and index.name:
        since = made_clause(view, index.item.base, index.name)
        more = _one_more(index, limit)
        return f"Check the values of `{index.name}`{_range(index)}{since} before {line}: they must {inside}.{more}"
    if parts.computed:
        table = f" of `{parts.table.name}`" if parts.table is not None and parts.table.name else ""
        return (
            f"Check the sizes and values of what {line} passes: the compiled function computes the index{table} from "
            f"them, and its values must {inside}."
        )
    if limit is None:
        return f"Check the index tensors that {line} passes: their values must {inside}."
    among = [f"`{item.name}`{_range(item)}" for item in _outside(limit, tensors) if item.name]
    which = list_words(among, _MOST) if among else "the index tensors"
    return f"Check which of {which} that {line} passes indexes a dimension of {limit}: its values must {inside}."


def _one_more(index: OperatorTensor, limit: int | None) -> str:
    """Where the largest is just the number of rows."""
    low, high = index.item.minimum, index.item.maximum
    if limit is None or high != limit or low is None or low < 0:
        return ""
    return f" They reach just {limit}: numbers from 1 on take a table of {limit + 1} rows, or subtract 1."


def _catch_advice(view: ProcessView) -> str:
    """How the same mistake becomes an exception with a line, and whether the program shows it."""
    handler = _handler(view)
    caught = f" (print it in the `except` of {handler}, which goes on)" if handler is not None else ""
    eager = f"With TORCH_COMPILE_DISABLE=1 the same call raises an error that names the line{caught}"
    if not _is_in_region(view):
        return f"{eager}."
    return f"{eager}; torch.set_num_threads(1) before the first call makes the compiled one raise a RuntimeError."


def _handler(view: ProcessView) -> str | None:
    """The line of an `except` around a line of the stack that would catch the error of an index, and go on."""
    for frame in program_frames(view):
        tree = syntax_tree(view.process.snapshot, frame)
        for node in nodes_of(tree) if tree is not None and frame.line is not None else ():
            if isinstance(node, ast.Try) and node.body[0].lineno <= (frame.line or 0) <= (
                node.body[-1].end_lineno or 0
            ):
                handler = next((item for item in node.handlers if _catches(item) and goes_on(item)), None)
                if handler is not None:
                    return line_in(frame.file, handler.lineno, headline_file(view))
    return None


def _catches(handler: ast.ExceptHandler) -> bool:
    types = _parts(handler.type) if handler.type is not None else []
    return not types or any(ast.unparse(item).rpartition(".")[2] in _CAUGHT for item in types)
