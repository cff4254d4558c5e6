"""The line of the program that made a sparse tensor of the failing line: what it was given for indices and size.

torch checks neither unless check_invariants is set, and the kernels trust them. The tensor is followed back by syntax,
through functions of the program and what keeps the indices as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer._text import shortened
from pytracer.analyze.evidence.exceptions.name_origins import follow
from pytracer.analyze.evidence.indices.counted_ids import counted_ids
from pytracer.analyze.evidence.indices.discarded_ids import DiscardedIds, discarded_ids
from pytracer.analyze.evidence.indices.kept_offsets import kept_offsets
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.operators.operator import find_operator, is_of_torch
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.keepers import Files
from pytracer.analyze.evidence.slicing.makers import makers
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.lines import attributes_of_line, items_of_line, names_of_line
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument
from pytracer.report.job import PythonFrame

# How many tensors of indices each is given first.
CONSTRUCTORS = {
    **dict.fromkeys(("sparse_coo_tensor", "_sparse_coo_tensor_unsafe"), 1),
    **dict.fromkeys(("sparse_csr_tensor", "sparse_csc_tensor", "sparse_bsr_tensor", "sparse_bsc_tensor"), 2),
    **dict.fromkeys(("sparse_compressed_tensor", "_sparse_csr_tensor_unsafe"), 2),
}
CHECKS = ("check_invariants", "check_sparse_tensor_invariants")
_KEEPS = frozenset({
    "coalesce", "to", "float", "double", "half", "bfloat16", "detach", "requires_grad_", "clone", "cuda", "cpu",
    "to_sparse", "to_sparse_csr", "to_sparse_csc", "to_sparse_coo", "to_sparse_bsr", "contiguous", "t", "transpose",
})  # fmt: skip
_PLAIN = frozenset({"torch", "self"})
_MOST, _QUOTED, _SHORT = 8, 60, 34


class SparseSource(msgspec.Struct, frozen=True):
    """`name`: of the failing line. `indices`, `size` and `values` as the constructor's call has them; `spot`: where."""

    name: str
    constructor: str
    indices: tuple[str, ...]
    size: str | None
    spot: Spot
    line: int
    direct: bool = True  # the variable is what the constructor returned, not what was converted from it
    discarded: DiscardedIds | None = None
    also: tuple[str, ...] = ()  # other variables of the failing line that the same line made
    values: str | None = None

    @property
    def names(self) -> str:
        """`` `a` or `b` ``: which of them is meant is not known."""
        return " or ".join(f"`{item}`" for item in (*self.also, self.name))

    @property
    def is_compressed(self) -> bool:
        """Whether its first indices are pointers into the others."""
        return len(self.indices) > 1 and CONSTRUCTORS[self.constructor] > 1

    @property
    def kind(self) -> str:
        """`sparse CSR tensor`."""
        layout = next((item for item in ("csr", "csc", "bsr", "bsc") if item in self.constructor), None)
        return f"sparse {layout.upper()} tensor" if layout is not None else "compressed sparse tensor"

    @property
    def is_by_column(self) -> bool:
        """Of a CSC tensor: its plain indices are rows."""
        return "csc_tensor" in self.constructor or "bsc_tensor" in self.constructor

    def unchecked_words(self, view: ProcessView) -> str:
        """`` the indices of `graph`, which torch.sparse_csr_tensor() at line 21 does not check ``."""
        place = place_of(view, self.spot.file, self.line)
        return f"the indices of `{self.name}`, which torch.{self.constructor}() at {place} does not check"


def sparse_source(view: ProcessView) -> SparseSource | None:
    """None where no variable of the line is known to be one, where several are, and where its indices are checked."""
    frames = program_frames(view)
    tree = syntax_tree(view.process.snapshot, frames[0]) if frames else None
    if tree is None or frames[0].line is None:
        return None
    back = Slice(view.process.snapshot, frames)
    spot = back.spot(0)
    if spot is None:
        return None
    found: dict[tuple[str | None, int], SparseSource] = {}
    files = program_files(view.process.snapshot, frames)
    line = frames[0].line
    for name in (*names_of_line(tree, line), *attributes_of_line(tree, line), *items_of_line(tree, line)):
        node = ast.parse(name, mode="eval").body
        made = _constructed(back, node, spot) or _held(files, back, node, spot) if name not in _PLAIN else None
        source = _source(back, name, *made) if made is not None else None
        if source is not None:
            place = (source.spot.file, source.line)
            first = found.get(place)
            also = (*first.also, first.name) if first is not None else ()
            found[place] = structs.replace(source, also=also)
    return next(iter(found.values())) if len(found) == 1 else None


def _constructed(back: Slice, node: ast.AST, spot: Spot) -> tuple[Made, bool] | None:
    """The call of a constructor, behind what keeps the indices; and whether nothing is between."""
    for step in range(_MOST):
        made = back.made(node, spot, calls=True)
        call = made.node
        if not isinstance(call, ast.Call):
            return None
        if called_name(call) in CONSTRUCTORS:
            return made, step == 0
        if called_name(call) not in _KEEPS or not isinstance(call.func, ast.Attribute):
            return None
        node, spot = call.func.value, made.spot
    return None


def _held(files: Files, back: Slice, node: ast.expr, spot: Spot) -> tuple[Made, bool] | None:
    """As `_constructed`, through lists and loops: where every line that may have made it is the same constructor's."""
    found = [_constructed(back, item.node, item.spot) for item in makers(files, back, node, spot)]
    first = found[0] if found else None
    same = first is not None and all(item is not None and item[0].node is first[0].node for item in found)
    return first if same else None


def _source(back: Slice, name: str, made: Made, direct: bool) -> SparseSource | None:
    call = made.node
    constructor = called_name(call) if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or constructor is None:
        return None
    words = {item.arg: item.value for item in call.keywords if item.arg}
    if not _is_false(words.get("check_invariants")) and any(
        part in text for part in CHECKS for text in _names(made.spot.tree)
    ):
        return None
    count = CONSTRUCTORS[constructor]
    size = words.get("size") or (call.args[count + 1] if len(call.args) > count + 1 else None)
    values = words.get("values") or (call.args[count] if len(call.args) > count else None)
    if any(isinstance(item, ast.Starred) for item in call.args):
        return None
    named = sorted(
        (key for key in words if key.endswith("indices")), key=lambda key: key in ("col_indices", "row_indices")
    )
    given = [*call.args[:count], *(words[key] for key in named)]
    indices = tuple(ast.unparse(item) for item in given)
    return SparseSource(
        name,
        constructor,
        indices,
        ast.unparse(size) if size is not None else None,
        made.spot,
        call.lineno,
        direct,
        discarded_ids(back, indices, structs.replace(made.spot, line=call.lineno)),
        values=ast.unparse(values) if values is not None else None,
    )


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _names(tree: ast.Module) -> Iterator[str]:
    for node in nodes_of(tree):
        yield getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "arg", None) or ""


def sparse_advice(view: ProcessView, source: SparseSource) -> str:
    """What to compare, where it was made, and what checks it."""
    at = place_of(view, source.spot.file, source.line)
    indices = _told(view, source, source.indices[-1]) if source.indices else "its indices"
    size = f"the size {_told(view, source, source.size, quoted=False)}" if source.size is not None else "its size"
    made = f"`{source.name}`" if source.direct else f"what `{source.name}` comes from"
    kept = kept_offsets(find_operator(view)) if source.is_compressed else None
    if kept is not None:
        return (
            f"Subtract the first value of {_told(view, source, source.indices[0])} at {at}, where torch."
            f"{source.constructor}() makes {made}: they go {kept.words}, the number of its indices. "
            "check_invariants=True there raises an error."
        )
    ids = _counted(view, source)
    if ids is not None:
        return (
            f"Number the ids of `{ids[0]}` from 0 on before {at}: `_, {ids[0]} = torch.unique({ids[0]}, "
            f"return_inverse=True)`. The size counts its different values (line {ids[1]}), but the indices of {made} "
            f"are the values themselves, unchecked. {checked_words(source)}"
        )
    rows = ""
    if source.is_compressed and len(source.indices) > 1:
        first = shortened(source.indices[0], _SHORT)
        rows = f" `{first}` must begin at 0, never decrease, and end at the number of values."
    each = "min() and max()" if source.is_compressed else "min(1) and max(1), a number for each dimension,"
    found = source.discarded.advice if source.discarded is not None else ""
    return (
        f"{found}Compare {each} of {indices} with {size} at {at}, where torch.{source.constructor}() makes {made} "
        f"and does not check them.{rows} {checked_words(source)}"
    )


def is_told_otherwise(view: ProcessView, source: SparseSource) -> bool:
    """Whether a line of the program is known that threw the right indices away, or counts what they are."""
    return source.discarded is not None or _counted(view, source) is not None


def checked_words(source: SparseSource) -> str:
    """Of a compressed tensor torch also refuses columns that are unsorted or repeated, which its products allow.

    torch 2.x, aten/src/ATen/native/sparse/ValidateCompressedIndicesCommon.h, invariant 5.6. Right ones may be so, too.
    """
    raises = "check_invariants=True there raises an error"
    if not source.is_compressed:
        return f"{raises} that says what is wrong."
    plain = "columns" if source.constructor.endswith(("csr_tensor", "csr_tensor_unsafe")) else "indices"
    return f"{raises} for these, but also for {plain} that are not sorted, or repeat, within a row or column."


def sparse_operator_advice(view: ProcessView) -> str | None:
    """The same where nothing but the operator, one of torch's, and the line are known."""
    operator = find_operator(view)
    if operator is None or not is_of_torch(operator):
        return None
    source = sparse_source(view)
    return sparse_advice(view, source) if source is not None else None


def _counted(view: ProcessView, source: SparseSource) -> tuple[str, int] | None:
    """The ids that the size counts, as a variable of the indices; and that line."""
    if source.size is None or not source.indices:
        return None
    back = Slice(view.process.snapshot, program_frames(view))
    return counted_ids(back, source.size, ", ".join(source.indices), source.spot)


def _told(view: ProcessView, source: SparseSource, text: str, *, quoted: bool = True) -> str:
    """`` `col` (0..399811; line 31: `crow, col = ...`) ``."""
    known = []
    item = _argument(view, text)
    if item is not None and item.minimum != item.maximum and not _may_be_overwritten(view):
        known.append(f"{item.minimum}..{item.maximum}")
    origin = _origin(view, source, text)
    if origin is not None:
        known.append(origin)
    short = shortened(text, _QUOTED)
    words = f"`{short}`" if quoted or known else short
    return f"{words} ({'; '.join(known)})" if known else words


def _may_be_overwritten(view: ProcessView) -> bool:
    """Whether the access was a write: those before it, which went through, may have changed the indices themselves."""
    return view.fault is None or view.fault.access == "write"


def _argument(view: ProcessView, name: str) -> Argument | None:
    operator = find_operator(view)
    named = [item.item for item in (operator.tensors if operator is not None else ()) if item.name == name]
    return next((item for item in named if item.minimum is not None), None)


def _origin(view: ProcessView, source: SparseSource, text: str) -> str | None:
    """Of the last variable in an expression that another line made."""
    spot = source.spot
    frame = PythonFrame(function=None, file=spot.file, line=source.line)
    names = [name for name in names_of_line(ast.parse(text), 1) if name not in _PLAIN] if text else []
    for name in names:
        found = follow(view.process.snapshot, [frame], name, None)
        if found is not None and found.frame.line != source.line:
            also = f", {found.also}" if found.also is not None else ""
            return f"{place_of(view, found.frame.file, found.frame.line)}: `{shortened(found.text, _SHORT)}`{also}"
    return None
