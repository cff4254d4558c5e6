"""What is at fault at the line of a native crash, as data: for the lines of code that the report shows.

The rules put findings into words; here the same findings give the variables that are to be followed, and the lines
that made them what they are.
"""

from __future__ import annotations

import ast

from pytracer.analyze.behind import Behind, places_in
from pytracer.analyze.evidence.indices.reached_row import ReachedRow
from pytracer.analyze.evidence.indices.segments import Segments
from pytracer.analyze.evidence.indices.sparse_source import SparseSource, sparse_source
from pytracer.analyze.evidence.lifetime.file_mappers import file_mapper
from pytracer.analyze.evidence.lifetime.variables import (
    parameter_name,
    plain_expression,
    program_frames,
    variable_name,
)
from pytracer.analyze.evidence.lifetime.where_made import line_that_made
from pytracer.analyze.evidence.operators.channels import UnfitChannels
from pytracer.analyze.evidence.operators.in_backward import backward
from pytracer.analyze.evidence.operators.operator import OperatorTensor
from pytracer.analyze.evidence.operators.recurrent_weights import CutWeight
from pytracer.analyze.evidence.operators.unfit_operands import Unfit, unfit_operands
from pytracer.analyze.evidence.own_code.expanded import Expanded
from pytracer.analyze.evidence.own_code.looked_up import LookedUp
from pytracer.analyze.evidence.own_code.unfit_memory import UnfitMemory
from pytracer.analyze.evidence.preconditions.module_lines import module_line
from pytracer.analyze.evidence.preconditions.violated import Violated
from pytracer.analyze.evidence.syntax.lines import attributes_of_line, names_of_line
from pytracer.analyze.evidence.syntax.names import names_of
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.evidence.wild.looked_up_index import LookedUpIndex
from pytracer.analyze.evidence.wild.misread_elements import MisreadElements
from pytracer.analyze.evidence.wild.misread_floats import MisreadFloats
from pytracer.analyze.evidence.wild.sparse_index import SparseIndex
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

# Calls that give several elements of a tensor the same memory, and those that make an array of others' memory.
_EXPANDING = ("expand", "expand_as", "broadcast_to", "broadcast_tensors", "as_strided", "unfold")

# Calls that read numbers from a file: where that lies is not what is wrong about them.
READERS = ("fromfile", "load", "loadtxt", "memmap", "open_memmap", "frombuffer", "from_file", "imread", "read_csv")


def of_unfit(view: ProcessView, unfit: Unfit) -> Behind:
    """Of an operand that does not fit the others: it, and the line that allocated it."""
    if isinstance(unfit, Violated):
        culprit = unfit.culprit
        made = line_that_made(view, culprit.base, quote=False) if culprit.base else None
        name, call = plain_expression(culprit.name.strip("`")), unfit.call
        if unfit.before and call.place is None:
            place = (call.file, call.line)
            return Behind(
                lines=(*places_in([made]), place), makers=frozenset(READERS), sizes=not unfit.is_of_values,
                elsewhere=((place, (name,)),),
            )  # fmt: skip
        module = module_line(view, culprit.base) if culprit.base and made is not None else None
        names = [] if unfit.before else [name]
        return Behind.of(
            names, made, module, unfit.counted, unfit.padding, makers=READERS, sizes=not unfit.is_of_values
        )
    if isinstance(unfit, Segments):
        return of_values(view, unfit.lengths)
    if isinstance(unfit, CutWeight):
        return Behind.of([], line_that_made(view, unfit.base, quote=False))
    if isinstance(unfit, UnfitChannels):
        return Behind.of([name for item in unfit.small for name in names_on_line(view, item)])
    return Behind.of([unfit.name])


def of_values(view: ProcessView, item: OperatorTensor) -> Behind:
    """Of a tensor whose values lead out of another one; in a backward, what it was made of and where it was used."""
    made = line_that_made(view, item.item.base, quote=False)
    saved = backward(view)
    if saved is None:
        return Behind.of(names_on_line(view, item), made, makers=READERS)
    name = item.name if item.name is not None and " " not in item.name else None
    return Behind.of([name], made, saved.forward.frame if saved.forward is not None else None, makers=READERS)


def names_on_line(view: ProcessView, item: OperatorTensor) -> list[str]:
    """The expressions of the failing line that may be it: `self.weight`, of `parameter weight of Net`."""
    if item.name is None or " " not in item.name:
        return [item.name] if item.name is not None else []
    frame = next(iter(program_frames(view)), None)
    registered = item.name.startswith(("parameter ", "buffer "))
    attribute = (parameter_name(item.name) if registered else item.name.partition(" of ")[0]).rpartition(".")[2]
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or frame.line is None:
        return []
    named = (*names_of_line(tree, frame.line), *attributes_of_line(tree, frame.line))
    return [name for name in named if name.rpartition(".")[2] == attribute]


def of_row(view: ProcessView, way: ReachedRow) -> Behind:
    """Of an index that leads to a row that is not there, else of the tensor that has too few."""
    source = sparse_source(view) if way.index is not None and way.index.name is None else None
    if source is not None:
        return of_sparse(source)
    return of_values(view, way.index if way.index is not None else way.data)


def of_looked_up(found: LookedUp) -> Behind:
    """Of an index that was looked up: the array that is too short, and the numbers that it was indexed by."""
    return Behind.of([found.table.name, found.by.name], found.short)


def of_expanded(wide: Expanded) -> Behind:
    """Of a tensor whose elements share memory: followed to the call that made it so."""
    return Behind.of([wide.name], makers=_EXPANDING)


def of_sparse(source: SparseSource) -> Behind:
    """Of a sparse tensor with wrong indices: what its constructor was given for them is followed."""
    place = (source.spot.file, source.line)
    size = [source.size] if source.size and not source.is_compressed else []
    given = (*source.indices, *size)
    names = [name for text in given for name in names_of(ast.parse(text, mode="eval"))]
    lost = [(source.discarded.file, source.discarded.line)] if source.discarded is not None else []
    return Behind(lines=(*lost, place), elsewhere=((place, tuple(dict.fromkeys(names))),))


def of_mapping(view: ProcessView, path: str) -> Behind:
    """Of a file that is mapped: the variable of its memory, and the line that maps it; not what is written there."""
    storage = view.place.storage if view.place is not None else None
    mapper = file_mapper(view, path)
    return Behind.of(
        [variable_name(view, storage.base) if storage is not None else None], mapper.place if mapper else None
    )


def of_array(unfit: UnfitMemory) -> Behind:
    """Of an array whose elements have another type: followed from the line that takes its address."""
    whole = unfit.name.partition("[")[0]
    if unfit.pointed is None or unfit.pointed == unfit.line:
        return Behind.of([whole])
    place = (unfit.file, unfit.pointed)
    return Behind(lines=(place,), elsewhere=((place, (whole,)),))


def of_wild(view: ProcessView, explanation: Explanation) -> Behind | None:
    """Of an address that belongs to nothing; None where nothing is known of what led there."""
    if isinstance(explanation, SparseIndex):
        return of_sparse(explanation.source)
    if isinstance(explanation, LookedUpIndex):
        return of_looked_up(explanation.found)
    if isinstance(explanation, MisreadElements):
        return Behind.of([explanation.name])
    if isinstance(explanation, MisreadFloats):
        return of_array(explanation.unfit)
    found = Behind.of([], explanation)
    if found.lines:
        return found
    unfit = unfit_operands(view) if not explanation.is_sufficient else None
    return of_unfit(view, unfit) if unfit is not None else None
