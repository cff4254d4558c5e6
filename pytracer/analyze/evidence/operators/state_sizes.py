"""A state of an optimizer that is of another size than its parameter: they do not belong together.

`Optimizer.load_state_dict()` gives saved states to parameters by their order, not by name, and compares no shapes; a
fused operator then reads or writes the state as if it were as large as the parameter (torch 2.13, optim/optimizer.py).
So it does where the parameter was made larger after the optimizer had made the state.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from pytracer._text import size_words
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.lifetime.where_made import line_that_made
from pytracer.analyze.evidence.operators.operator import find_operator, shape_words
from pytracer.analyze.naming import short_file
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Storage

_OF = " of "
_FUSED = "aten::_fused_"
_COUNTER = "step"  # one number for each parameter, of any size
_OF_OTHER_TYPES = {1, 2, 4, 8}  # states of float32 for parameters of bfloat16, of 8 bits for float32, ...


@dataclass(frozen=True)
class StateSize:
    """`state`: `exp_avg_sq`; `parameter`: its name; both in bytes."""

    state: str
    parameter: str
    nbytes: int
    parameter_nbytes: int
    bases: tuple[int, int] = (0, 0)  # of their storages

    @property
    def is_gradient(self) -> bool:
        """Whether it is the gradient, which a program may replace by `.grad.data = ...`."""
        return self.state == "gradient"


def state_size(view: ProcessView) -> StateSize | None:
    """Of the storage at the fault; where that is none, of the tensors of a fused operator.

    None where it is no state, or is as large as its parameter.
    """
    storage = view.place.storage if view.place is not None else None
    if storage is not None:
        return _of_storage(view, storage)
    operator = find_operator(view)
    if operator is None or not operator.name.startswith(_FUSED):
        return None
    bases = dict.fromkeys(item.item.base for item in operator.tensors if item.item.base)
    live = (view.space.live_around(base) for base in bases)
    found = (item for storage in live if storage is not None and (item := _of_storage(view, storage)) is not None)
    return next((item for item in found if item.nbytes < item.parameter_nbytes), None)


def _of_storage(view: ProcessView, storage: Storage) -> StateSize | None:
    named = view.space.uses.named
    for item in named.of_storage(storage, storage.base)[0]:
        state, of, parameter = item.name.partition(_OF)
        if item.role not in ("optimizer state", "gradient") or not of or state == _COUNTER:
            continue
        alike = [other for other in named.with_name(f"parameter {parameter}") if other.role == "parameter"]
        nbytes = item.nbytes
        if item.role == "gradient":  # recorded with the size of the parameter; a bucket of DDP is larger
            nbytes = min(nbytes, storage.nbytes)
        if len({other.nbytes for other in alike}) == 1 and not _alike(nbytes, alike[0].nbytes):
            return StateSize(state, parameter, nbytes, alike[0].nbytes, (storage.base, alike[0].base))
    return None


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
    name = "the gradient" if found.is_gradient else f"`{found.state}`"
    return f"{name} of {found.parameter} {state} is smaller than the parameter {parameter}"


@dataclass(frozen=True)
class UnfitState:
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
    return shapes.pop() if base and len(shapes) == 1 else f"({size_words(nbytes)})"


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
    at = _loading_line(view)
    sizes = (
        f"`{found.state}` of {found.parameter} has {size_words(found.nbytes)}, the parameter "
        f"{size_words(found.parameter_nbytes)}"
    )
    replaced = _replaced(view, found) if at is None else None
    if replaced is not None:
        return replaced
    if at is None:
        return (
            f"{sizes}: the optimizer made or loaded the state for another size of it. Make a new optimizer after the "
            "parameter was replaced or resized (`.data = ...`, new rows), or resize its states in the same way."
        )
    return (
        f"{sizes}: the state is that of another parameter. load_state_dict() of an optimizer{at} gives states out by "
        "order, not by name: give the parameters in the order in which they were saved, or begin with a new optimizer."
    )


def _loading_line(view: ProcessView) -> str | None:
    """` (line 39)`; empty where several lines do it or no source is there, None where no line does."""
    frames = program_frames(view)
    found, known = set(), False
    for file, frame in {frame.file: frame for frame in frames}.items():
        tree = syntax_tree(view.process.snapshot, frame)
        known = known or tree is not None
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = ast.unparse(node.func.value).lower()
                if node.func.attr == "load_state_dict" and "opt" in owner and "sched" not in owner:
                    found.add((file, node.lineno))
    if len(found) != 1:
        return "" if found or not known else None
    file, line = found.pop()
    return f" (line {line})" if frames and frames[0].file == file else f" ({short_file(file)}:{line})"
