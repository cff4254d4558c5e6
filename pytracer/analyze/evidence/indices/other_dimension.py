"""An index that is beyond the rows of a tensor and fits another one of its dimensions: `scores[items]`, for `gather()`.

topk(), argsort() and argmax() along a dimension give positions in that one. `table[index]` takes rows, whatever they
were meant for. Which dimension was meant is not known, so this is never more than a possibility.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer.analyze.evidence.indices.indexing_lines import IndexingLine
from pytracer.analyze.evidence.operators.operator import OperatorTensor
from pytracer.decode.types.snapshot import Argument


def other_dimension(
    lines: Sequence[IndexingLine], index: OperatorTensor | None, table: OperatorTensor | None, limit: int | None
) -> str | None:
    """What to write in place of `table[index]`; None where the values fit no other dimension, or more than one."""
    line = lines[0] if len(lines) == 1 else None
    if line is None or line.rows is None or line.index is None or index is None or table is None or limit is None:
        return None
    low, high, sizes = index.item.minimum, index.item.maximum, table.item.sizes
    if low is None or high is None or low < 0 or high < limit or len(sizes) < 2 or sizes[0] != limit:
        return None
    fitting = [number for number, size in enumerate(sizes) if number and high < size]
    if len(fitting) != 1:
        return None
    dimension = fitting[0]
    instead = f"{line.rows}.gather({dimension}, {line.index})"
    if not _gathers(index.item, table.item, dimension):
        instead = f"{line.rows}[{':, ' * dimension}{line.index}]"
    return (
        f"`{line.text}` at {line.place} takes rows, dimension 0 of {limit}, and the values of `{line.index}` "
        f"({low}..{high}) fit dimension {dimension} of {sizes[dimension]}: if they are positions there, as topk() or "
        f"argsort() along it give, write `{instead}`. If they are row numbers, they must lie in 0..{limit - 1}."
    )


def _gathers(index: Argument, table: Argument, dimension: int) -> bool:
    """Whether gather() takes them: as many dimensions, none but its own larger than the table's."""
    pairs = enumerate(zip(index.sizes, table.sizes, strict=False))
    return len(index.sizes) == len(table.sizes) and all(n == dimension or one <= of for n, (one, of) in pairs)
