"""A state of an optimizer that is of another size than its parameter: they do not belong together.

`Optimizer.load_state_dict()` gives saved states to parameters by their order, not by name, and compares no shapes; a
fused operator then reads or writes the state as if it were as large as the parameter (torch 2.13, optim/optimizer.py).
So it does where the parameter was made larger after the optimizer had made the state, here or before it was saved.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec

from pytracer._text import size_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.lifetime.where_made import line_that_made, place_of
from pytracer.analyze.evidence.operators.grown_states import grown_parameter
from pytracer.analyze.evidence.operators.operator import find_operator, shape_words
from pytracer.analyze.evidence.operators.state_orders import StateOrder, state_order
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.parameter_lists import ParameterLists, is_optimizer, parameter_lists
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.journal import lived_at
from pytracer.analyze.tensors.origins import origin_kind
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import NamedTensor, Storage

_OF = " of "
_FUSED = "aten::_fused_"
_SEVERAL = 2
_COUNTER = "step"  # one number for each parameter, of any size
_OF_OTHER_TYPES = {1, 2, 4, 8}  # states of float32 for parameters of bfloat16, of 8 bits for float32, ...


class StateSize(msgspec.Struct, frozen=True):
    """`state`: `exp_avg_sq`; `parameter`: its name; both in bytes."""

    state: str
    parameter: str
    nbytes: int
    parameter_nbytes: int
    bases: tuple[int, int] = (0, 0)  # of their storages
    resized: bool = False  # whether the parameter had memory of the state's size before
    later: bool = False  # whether the optimizer got the state after the parameter got the memory that it has
    owner: str | None = None  # another parameter, whose state it was before
    from_file: bool = False  # whether torch.load() made it

    @property
    def is_gradient(self) -> bool:
        """Whether it is the gradient, which a program may replace by `.grad.data = ...`."""
        return self.state == "gradient"


def state_size(view: ProcessView) -> StateSize | None:
    """Of the storage at the fault; where that one is large enough, of what a fused operator works on.

    Registers of a loop over several parameters may point at the storage of another one, which the access only reached.
    None where no state is known that differs from its parameter.
    """
    storage = view.place.storage if view.place is not None else None
    there = _of_storage(view, storage) if storage is not None else None
    if there is not None and _is_small(there):
        return there
    return _of_fused(view) or there


def _of_fused(view: ProcessView) -> StateSize | None:
    """The state that is smaller than its parameter; of several, the one that would reach the address if it were not."""
    operator = find_operator(view)
    if operator is None or not operator.name.startswith(_FUSED):
        return None
    bases = [item.item.base for item in operator.tensors if item.item.base]
    recorded = (item for items in view.process.snapshot.named.values() for item in items)
    states = (item.base for item in recorded if item.role == "optimizer state")  # what the handler read may be damaged
    live = (view.space.live_around(base) for base in chain(bases, states))
    each = (item for storage in live if storage is not None and (item := _of_storage(view, storage)) is not None)
    small = [item for item in each if _is_small(item)]
    return next((item for item in small if _would_reach(view, item)), next(iter(small), None))


def _is_small(found: StateSize) -> bool:
    return found.nbytes < found.parameter_nbytes


def _would_reach(view: ProcessView, found: StateSize) -> bool:
    """Whether the address of the fault is where the state would be, if it were as large as the parameter."""
    base = found.bases[0]
    return view.place is not None and base + found.nbytes <= view.place.addr < base + found.parameter_nbytes


def _of_storage(view: ProcessView, storage: Storage) -> StateSize | None:
    named = view.space.uses.named
    names = named.of_storage(storage, storage.base)[0]
    for item in names:
        state, of, parameter = item.name.partition(_OF)
        if item.role not in ("optimizer state", "gradient") or not of or state == _COUNTER:
            continue
        known = [other for other in named.with_name(f"parameter {parameter}") if other.role == "parameter"]
        alike = _current(view, known)
        nbytes = item.nbytes
        if item.role == "gradient":  # recorded with the size of the parameter; a bucket of DDP is larger
            nbytes = min(nbytes, storage.nbytes)
        if len({other.nbytes for other in alike}) == 1 and not _alike(nbytes, alike[0].nbytes):
            others = [_held(view, other) for other in known if other.base != alike[0].base]
            before = any(held is not None and _alike(nbytes, held) for held in others)
            later = before and _is_later(view, named.with_name(item.name), alike[0])
            bases, owner = (storage.base, alike[0].base), _owner(names, item)
            loaded = item.role == "optimizer state" and origin_kind(storage) == "torch-load"
            return StateSize(state, parameter, nbytes, alike[0].nbytes, bases, before, later, owner, loaded)
    return None


def _owner(names: Iterable[NamedTensor], of: NamedTensor) -> str | None:
    """The parameter of another name that has, or had, the same state: optimizers share what load_state_dict() gives."""
    state, _, parameter = of.name.partition(_OF)
    others = [item.name.partition(_OF) for item in names if item.role == of.role == "optimizer state"]
    short = parameter.partition(_OF)[0]
    found = {name for kind, _, name in others if kind == state and name.partition(_OF)[0] != short}
    return found.pop() if len(found) == 1 else None


def _current(view: ProcessView, known: list[NamedTensor]) -> list[NamedTensor]:
    """Of the storages that a parameter has had, the living one; of several, what the running operator has."""
    if len(known) < _SEVERAL:
        return known
    living = [item for item in known if _lives(view, item)]
    if len({item.nbytes for item in living}) < _SEVERAL:
        return living or known
    operator = find_operator(view)
    bases = {item.item.base for item in (operator.tensors if operator is not None else ())}
    return [item for item in living if item.base in bases] or known


def _lives(view: ProcessView, item: NamedTensor) -> bool:
    storage = view.space.live_around(item.base)
    return storage is not None and lived_at(storage, item.epoch)


def _is_later(view: ProcessView, states: list[NamedTensor], parameter: NamedTensor) -> bool:
    """Names of states are recorded where they are loaded, and after each step()."""
    storage = view.space.live_around(parameter.base)
    return storage is not None and any(item.epoch > storage.allocated.epoch for item in states)


def _held(view: ProcessView, item: NamedTensor) -> int | None:
    """How large the storage was that a parameter had then: the size on record may be that of a later one."""
    storages = (one for one in view.process.snapshot.storages.at(item.base) if lived_at(one, item.epoch))
    return next((min(item.nbytes, one.nbytes) for one in storages), None)


def _alike(one: int, other: int) -> bool:
    """Whether both may have the same number of elements, of other types."""
    least, most = sorted((one, other))
    return least == 0 or (most % least == 0 and most // least in _OF_OTHER_TYPES)


def small_state(view: ProcessView) -> str | None:
    """`` `exp_avg` of emb.weight [4000, 128] is smaller than the parameter [64000, 128] ``; None where it is not."""
    found = state_size(view)
    if found is None or found.nbytes >= found.parameter_nbytes:
        return None
    state, parameter = (_sized(view, base, nbytes) for base, nbytes in zip(found.bases, _both(found), strict=True))
    order = _order(view, found)
    if order is not None:
        return _order_words(order, found, _loading_line(view) or "", (state, parameter))
    name = "the gradient" if found.is_gradient else f"`{found.state}`"
    resized = _resizing_line(view, found)
    brought = found.later if resized is not None else found.from_file or found.owner is not None
    loaded = _loading_line(view) if brought and not found.is_gradient else None
    state, parameter = (text if text.startswith("[") else f"({text})" for text in (state, parameter))
    of = f"{found.parameter} {state}{f', which load_state_dict(){loaded} brought,' if loaded else ''}"
    since = f", which {resized} made larger" if resized is not None else ""
    return f"{name} of {of} is smaller than the parameter {parameter}{since}"


def _order(view: ProcessView, found: StateSize) -> StateOrder | None:
    """Where the optimizer was given the states of the same model's parameters in another order."""
    return state_order(view, found.state, found.parameter) if not found.is_gradient and not found.resized else None


def _order_words(order: StateOrder, found: StateSize, at: str, sizes: tuple[str, str]) -> str:
    if not all(text.startswith("[") for text in sizes):
        sizes = size_words(found.nbytes), size_words(found.parameter_nbytes)
    state, parameter = (text if text.startswith("[") else f"({text})" for text in sizes)
    of = f"is that of {order.owner} {state}" if order.owner is not None else f"has {sizes[0]}"
    return (
        f"load_state_dict(){at} gave the parameters of {order.model} the states of others, as these were saved in "
        f"another order: `{found.state}` of {order.parameter} {parameter} {of}"
    )


class UnfitState(msgspec.Struct, frozen=True):
    """A state that the running fused operator writes to as far as its parameter goes: past the end of the state."""

    summary: str
    size: StateSize

    def advice(self, view: ProcessView) -> str:
        """Where the states were loaded or made, and what to do there."""
        return state_advice(view, self.size)


def unfit_state(view: ProcessView) -> UnfitState | None:
    """Of a fused operator that was running when its thread died; None where no state is known to be too small."""
    operator, found = find_operator(view), state_size(view)
    words = small_state(view) if operator is not None and operator.name.startswith(_FUSED) else None
    if words is None or found is None or found.is_gradient:
        return None
    return UnfitState(f"{words}, and the fused optimizer takes both to be alike", found)


def _both(found: StateSize) -> tuple[int, int]:
    return found.nbytes, found.parameter_nbytes


def _sized(view: ProcessView, base: int, nbytes: int) -> str:
    """The shape, where an operator has the tensor; else bytes."""
    operator = find_operator(view)
    shapes = {
        shape_words(item.item) for item in (operator.tensors if operator is not None else ()) if item.item.base == base
    }
    return shapes.pop() if base and len(shapes) == 1 else size_words(nbytes)


def _replaced(view: ProcessView, found: StateSize) -> str | None:
    """What to do where the parameter's memory is newer than the state; None where that, or a line, is not known."""
    if not all(found.bases):
        return None
    state, parameter = (view.space.live_around(base) for base in found.bases)
    if state is None or parameter is None or state.older or parameter.older:
        return None
    line = line_that_made(view, parameter.base, also_failing=True)
    if line is None or (state.allocated.mono_ns or 0) >= (parameter.allocated.mono_ns or 0):
        return None
    return (
        f"Make a new optimizer after {line}, where {found.parameter} got memory of {size_words(found.parameter_nbytes)}"
        f", or resize its states in the same way: `{found.state}` was made before, and has {size_words(found.nbytes)}."
    )


def _resizing_line(view: ProcessView, found: StateSize) -> str | None:
    """Where the parameter got the memory that it has, if it had some of the state's size before."""
    return line_that_made(view, found.bases[1], also_failing=True, quote=False) if found.resized else None


def state_advice(view: ProcessView, found: StateSize) -> str:
    """What to do about it, with the program's line that loaded the states."""
    if found.is_gradient:
        made = line_that_made(view, found.bases[0], also_failing=True)
        since = f", which {made} made," if made is not None else ""
        return (
            f"Give the gradient of {found.parameter}{since} the shape of the parameter before {line_words(view)}: it "
            f"has {size_words(found.nbytes)}, the parameter {size_words(found.parameter_nbytes)}, and the operator "
            "takes both to be alike."
        )
    at, resized = _loading_line(view), _resizing_line(view, found)
    order = _order(view, found)
    if order is not None:
        return _order_advice(view, order, at or "")
    if at and resized is not None and found.later:
        state, parameter = (_sized(view, base, nbytes) for base, nbytes in zip(found.bases, _both(found), strict=True))
        return (
            f"Begin with the new optimizer, without load_state_dict(){at}; or give the states of {found.parameter} the "
            f"shape of the parameter in what that loads: `{found.state}` has {state}, as the parameter had before "
            f"{resized}, and the parameter {parameter}. load_state_dict() compares no shapes.{_refused(view)}"
        )
    sizes = (
        f"`{found.state}` of {found.parameter} has {size_words(found.nbytes)}, the parameter "
        f"{size_words(found.parameter_nbytes)}"
    )
    if found.owner is not None:
        sizes += f", and is the state of {found.owner}"
        return (
            f"{sizes}. load_state_dict() of an optimizer{at or ''} gives states out by order, not by name, and "
            "compares no shapes: give the parameters in the order in which they were saved, or begin with a new "
            "optimizer."
        )
    replaced = _replaced(view, found) if at is None or (found.resized and not found.later) else None
    if replaced is not None:
        return replaced
    if at is None:
        return (
            f"{sizes}: the optimizer made or loaded the state for another size of it. Make a new optimizer after the "
            "parameter was replaced or resized (`.data = ...`, new rows), or resize its states in the same way."
        )
    grown = grown_parameter(view, found.parameter, found.bases)
    if grown is not None:
        return grown.advice(at, _refused(view))
    return (
        f"{sizes}: the state is that of another parameter, or of one that had another size when it was saved. "
        f"load_state_dict() of an optimizer{at} gives states out by order, not by name, and compares no shapes: give "
        "the parameters in the order in which they were saved, or begin with a new optimizer."
    )


def _order_advice(view: ProcessView, order: StateOrder, at: str) -> str:
    lists = _lists(view)
    listed = f" {lists.words(lambda spot, line: place_of(view, spot.file, line))}" if lists is not None else ""
    of = f", {order.saved}," if order.saved is not None else ","
    return (
        f"Give the optimizer its parameters in the order in which the states were saved{of} or begin with the new "
        f"optimizer: load_state_dict(){at} gives states out by order, not by name, and compares no shapes; "
        f"{order.misfits} of {order.total} do not fit.{listed}{_refused(view)}"
    )


def _lists(view: ProcessView) -> ParameterLists | None:
    """The lines that list the parameters of the optimizer that is loaded, where their orders differ."""
    found, _ = _loading_calls(view)
    if len(found) != 1:
        return None
    frames = program_frames(view)
    files = program_files(view.process.snapshot, frames)
    return parameter_lists(files, Slice(view.process.snapshot, frames), next(iter(found))[2])


def state_behind(view: ProcessView, found: StateSize) -> Behind | None:
    """The lines that loaded the state, and that made the parameter larger, where they are known."""
    at, resized = _loading_line(view), _resizing_line(view, found)
    if at and _order(view, found) is not None:
        return Behind.of([], at, _lists(view))
    if resized is None:
        return Behind.of([], at) if at and (found.from_file or found.owner is not None) else None
    return Behind.of([], at if found.later else None, resized)


def _refused(view: ProcessView) -> str:
    operator = find_operator(view)
    if operator is None or not operator.name.startswith(_FUSED):
        return ""
    return " Without `fused=True` step() refuses such a state with an error that names both sizes."


def _loading_line(view: ProcessView) -> str | None:
    """` (line 39)`; empty where several lines do it or no source is there, None where no line does."""
    frames, (found, known) = program_frames(view), _loading_calls(view)
    if len(found) != 1:
        return "" if found or not known else None
    file, line, _ = next(iter(found))
    here = frames[0].file if frames else None
    return line_in(file, line, here).after(" (").then(")")


def _loading_calls(view: ProcessView) -> tuple[set[tuple[str | None, int, str]], bool]:
    """Where the state of an optimizer is loaded, and what that is called there; and whether any source is here."""
    found, known = set(), False
    for file, frame in {frame.file: frame for frame in program_frames(view)}.items():
        tree = syntax_tree(view.process.snapshot, frame)
        known = known or tree is not None
        made = {*_optimizers(tree)} if tree is not None else set()
        for node in nodes_of(tree) if tree is not None else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = ast.unparse(node.func.value)
                is_one = owner in made or ("opt" in owner.lower() and "sched" not in owner.lower())
                if node.func.attr == "load_state_dict" and is_one:
                    found.add((file, node.lineno, owner))
    return found, known


def _optimizers(tree: ast.Module) -> Iterator[str]:
    """`sgd` of `sgd = torch.optim.SGD(...)`, and of a function that returns one."""
    makers = {
        item.name
        for item in nodes_of(tree)
        if isinstance(item, ast.FunctionDef)
        for node in own_nodes(item)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Call) and is_optimizer(node.value)
    }
    for item in nodes_of(tree):
        call = item.value if isinstance(item, ast.Assign) else None
        if not isinstance(item, ast.Assign) or not isinstance(call, ast.Call):
            continue
        if is_optimizer(call) or called_name(call) in makers:
            yield from (ast.unparse(target) for target in item.targets)
