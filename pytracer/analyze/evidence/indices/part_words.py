"""The words for a part of a compressed sparse tensor that leads out of what it counts, and for its repair."""

from __future__ import annotations

import ast

from pytracer._text import shortened
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.indices.compressed_facts import WrongPart
from pytracer.analyze.evidence.indices.part_masks import PartMask, cut_of_indices, mask_of_values
from pytracer.analyze.evidence.indices.part_origins import PartOrigin, byte_factor, looked_up_beside, part_origin
from pytracer.analyze.evidence.indices.sparse_source import checked_words, is_told_otherwise, sparse_advice
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.syntax.scopes import qualified_name
from pytracer.analyze.view import ProcessView

_SHORT = 40


def part_name(found: WrongPart) -> str:
    """`column indices` or `row pointers` of a CSR tensor; of a CSC tensor the other way round; or `values`."""
    if found.part == "values":
        return "values"
    plain, counting = _sides(found)
    return f"{plain} indices" if found.part == "indices" else f"{counting} pointers"


def part_summary(view: ProcessView, found: WrongPart) -> str:
    """What stands behind the colon: what is wrong about which tensor, the line that computes it, and who checks it."""
    if found.part == "values":
        return f"{_few_values(view, found)}; {_constructor(view, found)} does not check that"
    of = f"the {part_name(found)} of the {found.source.kind} {found.source.names} {_values(found)}"
    origin, lost = _origin(view, found), found.source.discarded
    computed = f" ({_computed(view, found, origin)})" if origin is not None else ""
    cut = _cut(view, found) if found.part == "pointers" and found.high is not None else None
    if cut is not None and origin is not None and byte_factor(origin) is None:
        computed = f"{computed[:-1]}; {cut.line}, `{cut.text}`, may have left out some)"
    if lost is not None and found.part == "indices":
        at = place_of(view, lost.file, lost.line)
        computed = f" ({at} in {lost.function}, `{lost.text}`, throws the new numbers away)"
    return f"{of}{computed}; {_constructor(view, found)} does not check them"


def part_advice(view: ProcessView, found: WrongPart) -> str:
    """What to repair at which line, and what raises an error in place of the crash."""
    if found.part == "values":
        return (
            f"{_repair_values(view, found)} {_constructor(view, found)} makes the tensor: {checked_words(found.source)}"
        )
    if is_told_otherwise(view, found.source):
        return sparse_advice(view, found.source)
    repair = _repair_pointers(view, found) if found.part == "pointers" else _repair_indices(view, found)
    return f"{repair} {_constructor(view, found)} makes the tensor: {checked_words(found.source)}"


def part_lines(view: ProcessView, found: WrongPart) -> tuple[Place, ...]:
    """The lines that the words name beside the constructor's."""
    origin = _origin(view, found)
    if origin is None:
        return ()
    beside = looked_up_beside(origin) if found.part == "indices" else None
    own = (origin.spot.file, origin.spot.line)
    if beside is not None:
        return own, (origin.spot.file, beside[0])
    mask = _cut(view, found) if found.part == "pointers" else _mask(view, found)
    return (own, (mask.file, mask.number)) if mask is not None and (mask.file, mask.number) != own else (own,)


def _sides(found: WrongPart) -> tuple[str, str]:
    """What the plain indices are of, and what the pointers count; the layout may be another argument."""
    if found.source.constructor == "sparse_compressed_tensor":
        return "plain", "row or column"
    return ("row", "column") if found.source.is_by_column else ("column", "row")


def _few_values(view: ProcessView, found: WrongPart) -> str:
    """`` the sparse CSR tensor `adj` has 3000 values (line 34: `weight = ...`) for 29840 column indices ``."""
    origin = _origin(view, found)
    computed = f" ({origin.place(view)}: `{origin.text}`)" if origin is not None else ""
    plain, counting = _sides(found)
    mask = _mask(view, found)
    if mask is not None:
        same = origin is not None and (mask.file, mask.number) == (origin.spot.file, origin.spot.line)
        kept = f"keeps only what has `{mask.condition}`"
        line = computed[2:-1] if same else f"{mask.line}: `{mask.text}`"
        computed = f" ({line}, which {kept})"
    as_many = f"as many as there are {counting}s" if mask is not None else f"one for each {counting}"
    each = f", {as_many}{computed}," if found.count == found.rows else computed
    return (
        f"the {found.source.kind} {found.source.names} has {found.count} values{each} for {found.limit} {plain} indices"
    )


def _mask(view: ProcessView, found: WrongPart) -> PartMask | None:
    """What leaves out values, on the way to them."""
    return mask_of_values(view, found.source, _text(found)) if found.part == "values" else None


def _cut(view: ProcessView, found: WrongPart) -> PartMask | None:
    """What may have left out plain indices after the pointers had been counted."""
    return cut_of_indices(view, found.source, _argument(found, 1).strip("`"), _argument(found, 0).strip("`"))


def _repair_values(view: ProcessView, found: WrongPart) -> str:
    """Where there is one for each row, a function of torch that repeats each as often as the row has indices."""
    plain, counting = _sides(found)
    name = _argument(found)
    mask = _mask(view, found)
    if mask is not None:
        return (
            f"Keep a value for each of the {found.limit} {plain} indices: {mask.line} keeps only what has "
            f"`{mask.condition}`. Or leave out the same {plain} indices, and count the {counting} pointers again."
        )
    if found.count != found.rows:
        return f"Make {name} as long as the {plain} indices: a value for each, {found.limit} and not {found.count}."
    pointers = shortened(found.source.indices[0], _SHORT)
    return (
        f"Pass a value for each of the {found.limit} {plain} indices, not for each {counting}: `torch.repeat_interleave"
        f"({name[1:-1]}, {pointers}.diff(), dim=0)` repeats them if all of a {counting} have the same."
    )


def _values(found: WrongPart) -> str:
    """How far they go, and how far they may."""
    if found.part == "indices":
        side = "rows" if found.source.is_by_column else "columns"
        return f"go from {found.low} to {found.high}, outside of its {found.limit} {side}"
    if found.high is not None:
        return f"end at {found.high}, beyond its {found.limit} entries"
    return f"lead to entry {found.entry}, beyond the {found.limit} that it has"


def _computed(view: ProcessView, found: WrongPart, origin: PartOrigin) -> str:
    """`` line 34: `self.cols = table.cited[order]` ``; with the factor that makes them bytes."""
    factor = byte_factor(origin) if found.part == "pointers" else None
    by = f", times `{factor}`: offsets in bytes" if factor is not None else ""
    read = f", read back at {origin.read_at}" if origin.read_at is not None else ""
    return f"{origin.place(view)}: `{origin.text}`{by}{read}"


def _constructor(view: ProcessView, found: WrongPart) -> str:
    """`torch.sparse_csr_tensor() at line 44 in Graph.adjacency`."""
    source = found.source
    function = qualified_name(source.spot.tree, source.spot.scope, "")
    inside = f" in {function}" if function else ""
    return f"torch.{source.constructor}() at {place_of(view, source.spot.file, source.line)}{inside}"


def _repair_indices(view: ProcessView, found: WrongPart) -> str:
    origin, name = _origin(view, found), _argument(found)
    until = f"from 0 to {(found.limit or 1) - 1}"
    if origin is None:
        return f"Make the values of {name} positions {until}."
    beside = looked_up_beside(origin)
    if beside is not None:
        return (
            f"Make the values at {origin.place(view)} positions {until}, as line {beside[0]} does with other ids "
            f"(`{beside[1]}`)."
        )
    return f"Make the values that {origin.place(view)} computes (`{origin.text}`) positions {until}."


def _repair_pointers(view: ProcessView, found: WrongPart) -> str:
    origin, name = _origin(view, found), _argument(found)
    factor = byte_factor(origin) if origin is not None else None
    if origin is not None and factor is not None:
        where = f"at {origin.read_at}" if origin.read_at is not None else "before it is passed"
        return (
            f"Divide {name} by the size of an element (`{factor}`) {where}: pointers count entries, not bytes, and the "
            f"last one must be {found.limit}. Or leave the factor out at {origin.place(view)}, if nothing else takes "
            "them for bytes."
        )
    at = f" ({origin.place(view)}: `{origin.text}`)" if origin is not None else ""
    cut, other = _cut(view, found), _argument(found, 1)
    if cut is not None and found.high is not None:
        return (
            f"Count the {_sides(found)[1]}s again where {cut.line} leaves out some of {other} (`{cut.text}`): "
            f"{name}{at} must begin at 0, never decrease, and end at {found.limit}, the number of entries."
        )
    lost = f", unless {other} has lost some" if found.high is not None else ""
    ends = f"end at {found.limit}, the number of entries{lost}."
    return f"Correct {name}{at}: it must begin at 0, never decrease, and {ends}"


def _argument(found: WrongPart, place: int | None = None) -> str:
    """The variable that the constructor is given for the part, or at that place of its indices, else the expression."""
    text = _text(found) if place is None else found.source.indices[place]
    node = ast.parse(text, mode="eval").body
    while isinstance(node, ast.Call) and len(node.args) == 1 and not isinstance(node.args[0], ast.Starred):
        node = node.args[0]  # `torch.from_numpy(x)`
    return f"`{shortened(ast.unparse(node), _SHORT)}`"


def _text(found: WrongPart) -> str:
    if found.part == "values":
        return found.source.values or "values"
    return found.source.indices[0 if found.part == "pointers" else 1]


def _origin(view: ProcessView, found: WrongPart) -> PartOrigin | None:
    return part_origin(view, found.source, _text(found), through_files=found.part == "pointers")
