"""The words for a row outside of its tensor: which index or which larger tensor leads there, and what to check."""

from __future__ import annotations

from pytracer._text import count_words, size_words
from pytracer.analyze.evidence.indices.counted_elements import Counted, counted_rows
from pytracer.analyze.evidence.indices.index_origins import narrow_words
from pytracer.analyze.evidence.indices.kept_offsets import kept_offsets
from pytracer.analyze.evidence.indices.reached_row import ReachedRow
from pytracer.analyze.evidence.indices.sparse_source import sparse_advice, sparse_source
from pytracer.analyze.evidence.indices.written_value import origin_words
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.operators.compiled import compiled_call
from pytracer.analyze.evidence.operators.in_backward import backward, saved_advice, unequal_advice
from pytracer.analyze.evidence.operators.operator import OperatorTensor, find_operator, runs_sparse, shape_words
from pytracer.analyze.evidence.own_code.passed import shapes_advice
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence


def row_headline(view: ProcessView, way: ReachedRow) -> str | None:
    """What stands behind the colon; None where only the row is known, and the operator may count something else."""
    if way.index is not None:
        item, out_of = way.index, f"leads out of {shaped_name(way.data)}"
        source = sparse_source(view) if item.name is None else None
        kept = kept_offsets(find_operator(view)) if source is not None and source.is_compressed else None
        if kept is not None and source is not None:
            return f"the compressed indices of `{source.name}` go {kept.words}"
        name = f"an index tensor of `{source.name}`" if source is not None else short_name(item)
        counted = counted_of(view, way)
        if counted is not None and item.name is not None:
            out_of += f": {counted.words_of(item.name)}"
        if way.seen:
            return f"index {way.row} of {name} {out_of}"
        if way.ambiguous:
            return f"an index of {name} {_range(item)} {out_of}"
        return f"index {way.row}, which {name} {_range(item)} reaches, {out_of}"
    if way.larger is not None:
        return f"{number_of(way)} of {shaped_name(way.data)}, as if it were as large as {shaped_name(way.larger)}"
    if way.data.name is not None and runs_sparse(view):
        source = sparse_source(view)
        by = f", likely by an index of `{source.name}`" if source is not None else ""
        return f"{number_of(way)} of {shaped_name(way.data)}, which has {_count(way)}{by}"
    return None


def row_evidence(way: ReachedRow | None) -> Evidence | None:
    """The address as a row, and what has so many."""
    if way is None:
        return None
    words = f"the address is {number_of(way)} of {shaped_name(way.data)}, which has {_count(way)}"
    if way.ambiguous and way.distance and len(way.data.item.sizes) > 1:  # a row, or a column of a right row
        side = "before" if way.distance < 0 else "behind the beginning of"
        words = (
            f"the address is {size_words(abs(way.distance))} {side} {shaped_name(way.data)}; in which of its "
            "dimensions the index is wrong is not known"
        )
    other = way.index or way.larger
    if way.index is not None:
        words += f"; {short_name(way.index)} has the values {_range(way.index)[1:-1]}"
    elif way.larger is not None:
        words += f"; {shaped_name(way.larger)} is larger"
    return Evidence(
        "tensor",
        words,
        tensor=other.name if other is not None else way.data.name,
        value=way.row,
        limit=way.rows,
        nbytes=way.row_bytes,
    )


def row_advice(view: ProcessView, way: ReachedRow | None) -> str | None:
    """What to check; None where nothing is known that has so many rows."""
    if way is None:
        return None
    line = line_words(view)
    source = sparse_source(view) if way.index is None or way.index.name is None else None
    if source is not None and way.larger is None:
        return f"{only_negative(way)}{sparse_advice(view, source)}"
    saved = backward(view)
    if saved is not None and way.index is not None:
        return saved_advice(view, saved, way.index)
    counted = counted_of(view, way)
    if counted is not None and way.index is not None and way.index.name is not None:
        return f"{counted.advice(view, way.index.name, line)} The function does not check them."
    if way.index is not None:
        return f"{_what_to_check(view, way, way.index, line)} {_how_to_see(view, way, way.index)}"
    if way.larger is None:
        return None
    unequal = f"{shaped_name(way.data)} and {shaped_name(way.larger)}"
    return unequal_advice(saved, unequal) if saved is not None else shapes_advice(unequal, line)


def counted_of(view: ProcessView, way: ReachedRow) -> Counted | None:
    """What the index counts in place of rows, as a line of the program is seen to."""
    item = way.index.item if way.index is not None else None
    if way.index is None or way.index.name is None or item is None or item.minimum is None or item.maximum is None:
        return None
    ends = (item.minimum, item.maximum)
    return counted_rows(view, way.index.name, ends, way.rows, item.base, (way.data.item.base,))


def _what_to_check(view: ProcessView, way: ReachedRow, index: OperatorTensor, line: str) -> str:
    name = short_name(index)
    limit = f"{shaped_name(way.data)} has {_count(way)}"
    if way.ambiguous:
        limit = f"they must lie inside a size of {shaped_name(way.data)}"
    if index.name is None and runs_sparse(view):
        return (
            f"Check the indices of the sparse tensor that {line} passes: they reach {_most(way, index)}, and {limit}."
        )
    narrow = narrow_words(index)
    values = f"{_range(index)[:-1]}{narrow}) " if index.item.minimum is not None else ""
    return f"Check the values of {name} {values}before {line} passes it: {limit}.{_shifted(way, index)}"


def only_negative(way: ReachedRow) -> str:
    """Where each index is below the smallest size, but some are negative."""
    low, high = (way.index.item.minimum, way.index.item.maximum) if way.index is not None else (None, None)
    sizes = way.data.item.sizes
    if low is None or high is None or low >= 0 or not sizes or not 0 <= high < min(sizes):
        return ""
    return f"No index is too large, but some are negative, down to {low}: check the lower bound of what selects them. "


def _shifted(way: ReachedRow, index: OperatorTensor) -> str:
    """Where the values fill the rows, but begin elsewhere: those of a part, numbered as in the whole."""
    low, high = index.item.minimum, index.item.maximum
    if low is None or high is None or low < way.rows or not way.rows // 2 < high - low + 1 <= way.rows:
        return ""
    return (
        f" They fit where {low} is subtracted: {short_name(index)} may have the numbers of a whole, and this is a part."
    )


def _how_to_see(view: ProcessView, way: ReachedRow, index: OperatorTensor) -> str:
    if compiled_call(view) is not None:
        return "Without torch.compile (TORCH_COMPILE_DISABLE=1) the same line raises an IndexError that names it."
    if runs_sparse(view):
        return "check_invariants=True, where the sparse tensor is made, raises an error instead."
    name = short_name(index) if index.name else None
    origin = origin_words(view, _wrong_value(way, index), index.item.base, name)
    return f"{origin} The function does not check them."


def _wrong_value(way: ReachedRow, index: OperatorTensor) -> int | None:
    """Its smallest or largest element, where that is no row of the other one."""
    low, high = index.item.minimum, index.item.maximum
    if way.seen or low is None or high is None:
        return way.row if way.seen else None
    return high if high >= way.rows else low if low < 0 else None


def short_name(item: OperatorTensor) -> str:
    """`` `slots` ``, else `a tensor [3] of int64`."""
    return f"`{item.name}`" if item.name else f"a tensor {shape_words(item.item)} of {item.item.dtype}"


def shaped_name(item: OperatorTensor) -> str:
    """`` `keys` [512, 128] ``."""
    return f"`{item.name}` {shape_words(item.item)}" if item.name else short_name(item)


def _range(item: OperatorTensor) -> str:
    low, high = item.item.minimum, item.item.maximum
    return f"(all {low})" if low == high else f"({low}..{high})"


def _most(way: ReachedRow, index: OperatorTensor) -> int:
    return way.row if index.item.maximum is None else index.item.maximum


def _is_row(way: ReachedRow) -> bool:
    return way.rows != way.data.item.elements


def number_of(way: ReachedRow) -> str:
    """`row 15000000`, or `element 40`."""
    return f"{'row' if _is_row(way) else 'element'} {way.row}"


def _count(way: ReachedRow) -> str:
    return count_words(way.rows, "row" if _is_row(way) else "element")
