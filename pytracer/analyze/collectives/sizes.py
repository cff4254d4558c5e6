"""Ranks that passed tensors of other sizes from one line: one of them left out a call, or the tensors differ.

Both sizes seen before from that line on both ranks are the same tensors in another order: then one rank skipped one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from pytracer._patterns import Pattern
from pytracer._text import capital, count_words, shortened
from pytracer.analyze.collectives.model_sizes import unequal_parameter
from pytracer.analyze.collectives.own_lines import only_call
from pytracer.analyze.collectives.rank_values import RANK, variables_in
from pytracer.analyze.collectives.ways import way_to
from pytracer.analyze.evidence.failing.data.loaders import full_batch, last_batch
from pytracer.analyze.evidence.failing.expressions import as_written, short
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.recorded import shape_of
from pytracer.analyze.evidence.slicing.by_rank import SELECTING, SizeSource, size_source
from pytracer.analyze.evidence.slicing.data_numbers import of_dimension, statement_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective

Side = tuple[ProcessView, Collective]
GATHERS = ("all_gather", "all_gather_into_tensor")
_SECOND = (*GATHERS, "reduce_scatter", "reduce_scatter_tensor")
_PACKS = ("cat", "concat", "concatenate", "hstack", "_flatten_dense_tensors", "parameters_to_vector")
_GRADIENT = Pattern(r"\.grad is (?:not )?None")
_COUNTED = Pattern(r"^(?:(?:list|tuple|dict|set|str) of )?(\d+)$")
_LEAST = 3  # smaller numbers are everywhere
_MOST = 12
_LONGEST = 60
PAD = "all_gather() the sizes first, pad to the largest and cut afterwards; or all_gather_object(), which takes any."


def size_advice(first: Side, second: Side, names: Sequence[str], members: int) -> str | None:
    """What the size comes from, as far as the program shows it.

    Args:
        first: A rank and its call.
        second: Another one, which passed another size from the same line.
        names: What the tensor is, as recorded on either.
        members: How many ranks the group has.
    """
    for view, call in (first, second):
        chosen = _chosen_by_data(view, call)
        if chosen is not None:
            return chosen
    dimension = dimension_of(first, second)
    if dimension is None:
        return None
    passed = passed_tensor(*first)
    named = f"`{shortened(ast.unparse(passed[0]), _LONGEST)}`" if passed is not None else "the tensor"
    what = names[0] if names else named
    for view, call in (first, second):
        found = _counted(view, call.sizes[dimension])
        if found is not None:
            numbers = [f"{item.sizes[dimension]} on rank {other.process.rank}" for other, item in (first, second)]
            return (
                f"Dimension {dimension} of {what} is {' and '.join(numbers)}; {found}. Make it from the same data on "
                "all ranks, or on one rank, and broadcast it (broadcast_object_list)."
            )
    source = source_of_size(first, second)
    parameter = unequal_parameter(first, second)
    if parameter is not None:
        return _model_advice(first, second, parameter, source, members)
    batch = _batch_words(first, second, dimension) if source is None or source.split is None else None
    if batch is not None:
        sides = [f"{item.sizes[dimension]} on rank {other.process.rank}" for other, item in (first, second)]
        cause = f"{capital(_from_words(first, second, source, members))}. " if source is not None else ""
        return f"Dimension {dimension} of {what} is {' and '.join(sides)}. {cause}{capital(batch)}."
    if source is not None:
        return _source_advice(first, second, what, source, members)
    return _made_advice(first, second, dimension)


def _model_advice(first: Side, second: Side, parameter: str, source: SizeSource | None, members: int) -> str:
    sides = [f"{count_words(call.numel or 0, 'element')} on rank {view.process.rank}" for view, call in (first, second)]
    comes = (
        f"; its size {_from_words(first, second, source, members).removeprefix('it ')}" if source is not None else ""
    )
    return (
        f"The models differ: `{parameter}` has {' and '.join(sides)}{comes}. Make what its size comes from "
        "(vocabulary, classes, options) from the same data on all ranks, or on one rank, and broadcast it "
        "(broadcast_object_list) before the model is made."
    )


def _batch_words(first: Side, second: Side, dimension: int) -> str | None:
    """Where one rank has a full batch of its loader, and the other one fewer rows; by the rank that raised."""
    for (view, call), (_, other) in ((first, second), (second, first)):
        line = failing_line(view.process.snapshot, view.exception, view.exception_stack) if view.raised else None
        if line is None or dimension != 0 or call.state != "failed":
            continue
        mine, theirs = call.sizes[0], other.sizes[0]
        found = last_batch(line, mine, theirs) if mine < theirs else full_batch(line, mine, theirs)
        if found is not None:
            return found
    return None


def source_of_size(first: Side, second: Side) -> SizeSource | None:
    """The line by which the size of what the line passes depends on the rank, or on the data."""
    for view, call in (first, second):
        passed = passed_tensor(view, call)
        if passed is None:
            continue
        slice_, dimension = Slice(view.process.snapshot, way_to(view, call)[::-1]), dimension_of(first, second)
        made = slice_.made(*passed, calls=True)
        size = of_dimension(made.node, dimension, len(call.sizes)) if dimension is not None else None
        of_size = size_source(slice_, size, made.spot, data=True, is_number=True) if size is not None else None
        found = of_size or size_source(slice_, *passed, data=True)
        if found is not None:
            return found  # the other rank may know nothing of the lines that led to its call: it was ended elsewhere
    return None


def has_uneven_parts(first: Side, second: Side, members: int) -> bool:
    """Whether the sizes are the parts of one whole that is no multiple of the ranks."""
    source = source_of_size(first, second) if dimension_of(first, second) is not None else None
    return source is not None and _whole(first, second, source, members) is not None


def cause_words(first: Side, second: Side, members: int) -> str | None:
    """`it comes from line 26 (...), which ...`; None where no line with the rank was found."""
    chosen = next((found for side in (first, second) if (found := _chosen(*side)) is not None), None)
    if chosen is not None:
        made, by = chosen
        return f"it comes from line {made.line} (`{short(as_written(made))}`), which selects by the data (`{by}`)"
    source = source_of_size(first, second) if dimension_of(first, second) is not None else None
    return _from_words(first, second, source, members) if source is not None else None


def _from_words(first: Side, second: Side, source: SizeSource, members: int) -> str:
    """That the size comes from it only where the line makes those very numbers."""
    sizes, whole = _sizes_by_rank(first, second), _whole(first, second, source, members)
    if whole is not None:
        return f"it comes from {_source_words(source)}: {whole} is no multiple of the {members} ranks"
    comes = "comes" if source.gives(sizes) else "may come"
    if source.counts:
        return f"it {comes} from {_source_words(source)}, a number that each rank takes out of its own data"
    if source.selects is not None:
        return f"it may come from {_source_words(source)}, whose size is by what is in the data"
    does = "gives each rank a part of its own" if source.split is not None else "depends on the rank"
    return f"it {comes} from {_source_words(source)}, which {does}"


def _sizes_by_rank(first: Side, second: Side) -> dict[int, int]:
    dimension = dimension_of(first, second) or 0
    return {view.process.rank or 0: call.sizes[dimension] for view, call in (first, second)}


def _whole(first: Side, second: Side, source: SizeSource, members: int) -> int | None:
    """What the ranks, all of them, have a part of each, where it is no multiple of their number."""
    sizes = _sizes_by_rank(first, second)
    return source.whole(sizes) if len(sizes) == members else None


def _source_words(source: SizeSource) -> str:
    """`` line 26 (`pair.chunk(world, dim=0)[rank]`) ``."""
    node = statement_of(source.node, source.spot.tree) if source.counts else source.node
    return f"line {source.line} (`{short(ast.unparse(node))}`)"


def dimension_of(first: Side, second: Side) -> int | None:
    """The one in which both differ; of several that differ by the same numbers (a square), the first."""
    pairs = [*zip(first[1].sizes, second[1].sizes, strict=False)]
    rows = [n for n, (a, b) in enumerate(pairs) if a != b]
    alike = len({pairs[n] for n in rows}) == 1
    return rows[0] if alike and len(first[1].sizes) == len(second[1].sizes) else None


def _source_advice(first: Side, second: Side, what: str, source: SizeSource, members: int) -> str:
    dimension = dimension_of(first, second) or 0
    sides = [f"{item.sizes[dimension]} on rank {other.process.rank}" for other, item in (first, second)]
    origin = capital(_from_words(first, second, source, members))
    said = f"Dimension {dimension} of {what} is {' and '.join(sides)}. {origin}"
    if _whole(first, second, source, members) is not None:
        pad = PAD if first[1].op == GATHERS[0] else "pad the parts to one length, or drop what is over."
        shared = _makes_loader(source.spot)
        sampler = "let DistributedSampler share the data, which repeats some samples to pad; or " if shared else ""
        return f"{said}. Either {sampler}{pad}"
    if source.split is not None and first[1].op not in GATHERS:
        return (
            f"{said}: the parts are alike only where the length is a multiple of the number of ranks. Pad it to one "
            "there and cut the result, or drop what is over."
        )
    if source.selects == "bincount":
        return f"{said}: bincount(minlength=...) with the number of classes makes it alike on all ranks."
    if first[1].op in GATHERS:
        return f"{said}: {PAD}"
    if source.counts:
        return (
            f"{said}. Take a number that is the same on all ranks (a constant, the number of classes), or agree on it "
            "first: all_reduce() it with MAX."
        )
    if first[1].op == "all_reduce":
        return (
            f"{said}. all_reduce() adds entry to entry: reduce what has one shape on all ranks (the sum over these "
            "rows, and their number), or pad to the largest."
        )
    return f"{said}: make it alike on all ranks, or pad to the largest."


def _made_advice(first: Side, second: Side, dimension: int) -> str | None:
    """The line that makes the tensor, or the variable that it has its size from."""
    for view, call in (first, second):
        line = failing_line(view.process.snapshot, view.exception, view.exception_stack) if view.raised else None
        passed = passed_tensor(view, call)
        if line is None or passed is None or call.state != "failed":
            continue
        given, spot = passed
        made = _shaped(line, given, spot, call.sizes[dimension])
        if made.line == spot.line or isinstance(made.node, (ast.Name, ast.Attribute)):
            continue
        sides = [f"{item.sizes[dimension]} on rank {other.process.rank}" for other, item in (first, second)]
        loader = " (drop_last=True)" if _makes_loader(spot) else ""
        comes = (
            f"Dimension {dimension} of `{shortened(ast.unparse(given), _LONGEST)}` is {' and '.join(sides)}. It comes "
            f"from line {made.line} (`{short(as_written(made))}`)"
        )
        if isinstance(made.node, ast.Call) and called_name(made.node) in _PACKS and call.op not in GATHERS:
            return (
                f"{comes}, which packs several tensors: compare which they are, and their sizes, on each rank. Do not "
                "pad or cut what is packed: all behind the part that differs would meet entries of other tensors."
            )
        return (
            f"{comes}: make it alike on all ranks. Agree on the size first (all_reduce() it with MAX) and pad to it, "
            f"or drop what is over{loader}."
        )
    return None


def _makes_loader(spot: Spot) -> bool:
    return any(isinstance(item, ast.Call) and called_name(item) == "DataLoader" for item in nodes_of(spot.tree))


def _shaped(line: FailingLine, node: ast.AST, spot: Spot, number: int) -> Made:
    """Back from a tensor, as long as one variable of the expression has a dimension of that size."""
    made = line.slice.made(node, spot, calls=True)
    for _ in range(_MOST):
        inside = {
            ast.unparse(item): item
            for item in variables_in(made.node)
            if item is not made.node
            if (shape := shape_of(line.value_at(item, made.spot))) is not None and number in shape.sizes
        }
        if len(inside) != 1:
            break
        before, made = made, line.slice.made(next(iter(inside.values())), made.spot, calls=True)
        if made.node is before.node:
            break
    return made


def passed_tensor(view: ProcessView, call: Collective) -> tuple[ast.expr, Spot] | None:
    """The tensor that the line's only call of that operation passes."""
    found = call_in_line(view, call)
    place = 1 if call.op in _SECOND else 0
    return (found[0].args[place], found[1]) if found is not None and place < len(found[0].args) else None


def call_in_line(view: ProcessView, call: Collective) -> tuple[ast.Call, Spot] | None:
    """The line's only call of that operation."""
    found = only_call(view.process.snapshot, call)
    spot = Slice(view.process.snapshot, way_to(view, call)[::-1]).spot(0)
    return (found, spot) if spot is not None and found is not None else None


def _chosen(view: ProcessView, call: Collective) -> tuple[Made, str] | None:
    """The line that selects rows by what is in them, and that selection."""
    passed = passed_tensor(view, call)
    if passed is None or call.op not in GATHERS:
        return None
    made = Slice(view.process.snapshot, way_to(view, call)[::-1]).made(*passed, calls=True)
    by = next(_selections(made), None)
    return (made, by) if by is not None else None


def _chosen_by_data(view: ProcessView, call: Collective) -> str | None:
    """A tensor of rows that were selected by what is in them."""
    passed, found = passed_tensor(view, call), _chosen(view, call)
    if passed is None or found is None:
        return None
    (given, spot), (made, by) = passed, found
    line = f" comes from line {made.line} (`{short(as_written(made))}`), which" if made.line != spot.line else ""
    return (
        f"`{shortened(ast.unparse(given), _LONGEST)}`{line} selects by the data (`{by}`): its size differs by rank. "
        f"{call.op}() needs one shape: {PAD}"
    )


def _selections(made: Made) -> Iterator[str]:
    """`keep` of `boxes[keep]`, where it is a comparison; `nonzero`."""
    for item in nodes_of(made.node):
        if isinstance(item, ast.Call) and called_name(item) in SELECTING:
            yield called_name(item) or ""
        if isinstance(item, ast.Subscript) and isinstance(item.slice, ast.Name):
            bound = [value for line, value in lines_that_bind(made.spot.scope, item.slice.id) if line <= made.spot.line]
            if bound and isinstance(bound[-1], ast.Compare):
                yield item.slice.id
        elif isinstance(item, ast.Subscript) and isinstance(item.slice, ast.Compare):
            yield shortened(ast.unparse(item.slice), _LONGEST)


def _counted(view: ProcessView, number: int) -> str | None:
    """The one recorded variable with that number or length, and the line by which it depends on the rank."""
    line = failing_line(view.process.snapshot, view.exception, view.exception_stack) if view.raised else None
    if line is None or number < _LEAST:
        return None
    held = {0: line.values, **line.outer}
    found = [
        (name, depth, value)
        for depth, values in held.items()
        for name, value in values.items()
        if (told := _COUNTED.match(value)) is not None and int(told[1]) == number
    ]
    if len({name for name, _, _ in found}) != 1:
        return None
    name, depth, value = found[-1]
    spot = line.slice.spot(depth)
    made = _by_rank(line.slice, ast.parse(name, mode="eval").body, spot) if spot is not None else None
    if made is None:
        return None
    has = f"a {value}" if " of " in value else value
    text = short(as_written(made))
    return f"`{name}` is {has} on rank {view.process.rank}, which depends on the rank (line {made.line}: `{text}`)"


def _by_rank(slice_: Slice, node: ast.AST, spot: Spot) -> Made | None:
    """The expression with the number of the rank that a value is made of."""
    waiting: list[tuple[ast.AST, Spot]] = [(node, spot)]
    for _ in range(_MOST):
        if not waiting:
            break
        made = slice_.made(*waiting.pop(0), calls=True)
        if RANK.search(ast.unparse(made.node)):
            return made if not isinstance(made.node, ast.Name) else None
        waiting += [(item, made.spot) for item in variables_in(made.node) if item is not made.node]
    return None
