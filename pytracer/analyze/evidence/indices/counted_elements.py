"""An index or offset that counts elements, or bytes, where rows are meant: by how much it is too large.

It is as large as a recorded tensor has elements, which has as many rows as the number must not exceed:
11833248 of `hits` [246526, 48], where 246526 is the limit. By a factor of 8 or less that may be chance (a share of one
of 8 ranks, both views of each sample), unless a line of the program is seen to count so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._text import capital
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.lifetime.variables import program_frames, variable_name
from pytracer.analyze.evidence.lifetime.where_made import own_line, place_of
from pytracer.analyze.evidence.operators.operator import shape_words
from pytracer.analyze.evidence.slicing.counting_lines import Counting, Unit, counting_line
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.scopes import qualified_name, scope_of, statement_at
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument

_BY_CHANCE = 8  # factors up to it
_FEW_ROWS = 8
_DTYPE_BYTES = {
    "float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2, "complex64": 8,
    "complex128": 16,
}  # fmt: skip


class Counted(msgspec.Struct, frozen=True):
    """The number is `factor` times `rows`: as many `unit`s as `data` has, which is called `name`."""

    factor: int
    rows: int
    unit: Unit
    data: Argument
    name: str | None
    line: Counting | None

    @property
    def is_sure(self) -> bool:
        """Whether it is no chance."""
        return self.line is not None or (self.factor > _BY_CHANCE and self.rows > _FEW_ROWS)

    @property
    def words(self) -> str:
        """`` it counts the elements of `hits` [246526, 48], 48 for each row, where rows are meant ``, where it does."""
        return f"it counts {self._counted} where rows are meant"

    def words_of(self, name: str) -> str:
        """`` `bounds` counts the bytes of `frames` [21940, 64], 256 for each row, where rows are meant ``."""
        return f"`{name}` counts {self._counted} where rows are meant"

    @property
    def _counted(self) -> str:
        name = f"`{self.name}`" if self.name else "a tensor"
        return f"the {self.unit} of {name} {shape_words(self.data)}, {self.factor} for each row,"

    @property
    def doubtful_words(self) -> str:
        """A sentence, where it may be chance."""
        return f"{capital(self._counted[:-1])}, are as many: see whether it counts these."

    @property
    def places(self) -> tuple[Place, ...]:
        """The lines that count, save and read."""
        spots = (self.line.spot, self.line.saved, self.line.read) if self.line is not None else ()
        return tuple((spot.file, spot.line) for spot in spots if spot is not None)

    def advice(self, view: ProcessView, name: str, line: str) -> str:
        """What to count, and what else to divide. `name`: the index; `line`: passes it."""
        divided = f"`{name} // {self.factor}`"
        if self.line is None:
            return f"Count rows where `{name}` is made, or pass {divided} at {line}."
        counting = self.line
        rows = f", where `{counting.rows}` is its rows" if counting.rows is not None else ""
        where = f"{_place(view, counting.spot)} counts {self.unit} (`{ast.unparse(counting.node)}`{rows})"
        saved, read = counting.saved, counting.read
        through = f", {place_of(view, saved.file, saved.line)} saves them" if saved is not None else ""
        through += f", and {_place(view, read)} reads them" if read is not None else ""
        other = "" if counting.mixed else f" Else pass {divided} at {line}."
        return f"Count rows: {where}{through}.{other}"


def counted_elements(
    view: ProcessView, text: str, value: int, limit: int, base: int | None, operands: Sequence[int] = ()
) -> Counted | None:
    """None where the number is no such multiple, or tensors that are known give different reasons.

    Args:
        view: The process.
        text: The tensor that holds it, as the failing line has it.
        value: What does not fit.
        limit: The rows that there are, which it must not exceed.
        base: The memory of that tensor.
        operands: Memory of the operator's other arguments, which count before other tensors.
    """
    crash = view.crash
    if crash is None or limit < 1 or value <= limit or value % limit:
        return None
    factor = value // limit
    fits = [(unit, item) for item in crash.arguments if item.base != base for unit in _units(item, limit, factor)]
    if len({unit for unit, _ in fits}) != 1:
        return None
    named = [(item, variable_name(view, item.base) if item.base else None) for _, item in fits]
    data, name = min(named, key=lambda item: (item[0].base not in operands, item[1] is None))
    unit = fits[0][0]
    return Counted(factor, limit, unit, data, name, _line(view, base, text, unit))


def counted_rows(
    view: ProcessView, text: str, ends: tuple[int, int], rows: int, base: int | None, operands: Sequence[int] = ()
) -> Counted | None:
    """Of numbers between two ends that are multiples of what a row of a tensor has, and fit when divided by it.

    Multiples alone may be chance: only where a line of the program is seen to count so. The rest as above.
    """
    crash, (low, high) = view.crash, ends
    if crash is None or low < 0 or rows < 1 or high <= rows:
        return None
    fits = [
        (unit, factor, item)
        for item in crash.arguments
        if item.base != base
        for unit, factor in _in_a_row(item, rows)
        if low % factor == high % factor == 0 and high // factor <= rows
    ]
    lines = {unit: _line(view, base, text, unit) for unit in {unit for unit, _, _ in fits}}
    seen = [item for item in fits if lines[item[0]] is not None]
    if len({factor for _, factor, _ in seen}) != 1:
        return None
    named = [(*item, variable_name(view, item[2].base) if item[2].base else None) for item in seen]
    unit, factor, data, name = min(named, key=lambda item: (item[2].base not in operands, item[3] is None))
    return Counted(factor, rows, unit, data, name, lines[unit])


def _in_a_row(item: Argument, rows: int) -> Iterator[tuple[Unit, int]]:
    """What one of so many rows of a tensor has, where it has more than one."""
    if not item.sizes or item.sizes[0] != rows or item.dimensions != len(item.sizes):
        return
    each = item.elements // rows
    both: tuple[tuple[Unit, int], ...] = (("elements", each), ("bytes", each * _DTYPE_BYTES.get(item.dtype or "", 0)))
    yield from (pair for pair in both if pair[1] > 1)


def _units(item: Argument, rows: int, factor: int) -> Iterator[Unit]:
    """What it has `factor` of in each of so many rows."""
    if not item.sizes or item.sizes[0] != rows or item.dimensions != len(item.sizes):
        return
    each = item.elements // rows
    if each == factor:
        yield "elements"
    elif each * _DTYPE_BYTES.get(item.dtype or "", 0) == factor:
        yield "bytes"


def _line(view: ProcessView, base: int | None, text: str, unit: Unit) -> Counting | None:
    """Back from where the tensor is on record to have been made, else from the failing line."""
    frames = program_frames(view)
    back, files = Slice(view.process.snapshot, frames), program_files(view.process.snapshot, frames)
    start = _recorded(view, files, base) or _read(back, text)
    found = counting_line(files, back, *start) if start is not None else None
    return found if found is not None and found.unit == unit else None


def _recorded(view: ProcessView, files: Mapping[str, ast.Module], base: int | None) -> tuple[ast.expr, Spot] | None:
    storage = view.space.live_around(base) if base else None
    frame = own_line(storage.allocated_by) if storage is not None and not storage.older else None
    tree = files.get(frame.file or "") if frame is not None else None
    if frame is None or frame.line is None or tree is None:
        return None
    value = getattr(statement_at(tree, frame.line), "value", None)
    spot = Spot(frame.file, tree, scope_of(tree, frame.line), frame.line)
    return (value, spot) if isinstance(value, ast.expr) else None


def _read(back: Slice, text: str) -> tuple[ast.expr, Spot] | None:
    spot = back.spot(0)
    made = back.made(ast.parse(text, mode="eval").body, spot, calls=False) if spot is not None else None
    return (made.node, made.spot) if made is not None and isinstance(made.node, ast.expr) else None


def _place(view: ProcessView, spot: Spot) -> str:
    name = qualified_name(spot.tree, spot.scope, "")
    return f"{place_of(view, spot.file, spot.line)}{f' in {name}' if name else ''}"
