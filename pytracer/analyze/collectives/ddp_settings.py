"""Options of DistributedDataParallel that decide which collectives it calls, and that differ between two ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.collectives.call_sites import stacks_of
from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.collectives.rank_value_words import value_words
from pytracer.analyze.collectives.rank_values import Compared
from pytracer.analyze.collectives.ways import quoted
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.journal import Buckets, Hook, Module
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import PythonFrame

# Where DDP's own collectives are called from: its forward and join(), and the backward, whose hooks reduce (2.13).
_OF_DDP = Pattern(r"/torch/(?:nn/parallel/distributed|autograd/(?:graph|__init__)|_tensor)\.py$")
_BITMAP = "find_unused_parameters"
HOOK = "communication hook"
_REGISTER = ("register_comm_hook", "_register_builtin_comm_hook")
Value = bool | float | str | None


class DifferingOption(msgspec.Struct, frozen=True):
    """`values`: of the two ranks; `frames`: the lines that wrapped the module."""

    module: str
    option: str
    values: tuple[Value, Value]
    frames: tuple[PythonFrame | None, PythonFrame | None]


def differing_option(
    first: ProcessView, mine: Collective, second: ProcessView, theirs: Collective
) -> DifferingOption | None:
    """The first that has an effect, where DDP itself called one of two collectives that do not match."""
    if not (is_of_ddp(first, mine) or is_of_ddp(second, theirs)):
        return None
    others = {item.module: item for item in _modules(second)}
    hooks = _hooks(first), _hooks(second)
    for one in _modules(first):
        other = others.get(one.module)
        mine_hook, other_hook = (found.get(one.module) for found in hooks)
        if other is not None and mine_hook != other_hook:
            return DifferingOption(one.module, HOOK, (mine_hook, other_hook), (_frame(one), _frame(other)))
        for option in one.settings if other is not None else ():
            if other is None or option not in other.settings or one.settings[option] == other.settings[option]:
                continue
            if _has_effect(option, one, other) and (option != "bucket_cap_mb" or _other_buckets(first, second, one)):
                frames = _frame(one), _frame(other)
                return DifferingOption(one.module, option, (one.settings[option], other.settings[option]), frames)
    return None


def is_of_ddp(view: ProcessView, call: Collective) -> bool:
    """By the file that called it, or by the line: that which wraps a module calls nothing else."""
    if call.python is not None and _OF_DDP.search(call.python.file):
        return True
    return place_of(call) in [_frame(module) for module in _modules(view) if module.caller is not None]


def _modules(view: ProcessView) -> list[Module]:
    """Each as it was noted last."""
    return list({fact.data.module: fact.data for fact in view.process.snapshot.recorded(Module)}.values())


def _hooks(view: ProcessView) -> dict[str | None, str]:
    return {fact.data.module: fact.data.hook for fact in view.process.snapshot.recorded(Hook)}


def _has_effect(option: str, one: Module, other: Module) -> bool:
    if option == "broadcast_buffers":
        return all(any(item.role == "buffer" for item in module.tensors) for module in (one, other))
    if option in (_BITMAP, "skip_all_reduce_unused_params"):  # a static graph ignores them
        return not any(module.settings.get("static_graph") for module in (one, other))
    return True


def _other_buckets(first: ProcessView, second: ProcessView, module: Module) -> bool:
    """Whether a layout that both recorded has buckets of other sizes."""
    layouts = [
        {
            fact.data.generation: [item.nbytes for item in fact.data.buckets]
            for fact in view.process.snapshot.recorded(Buckets)
            if fact.data.module == module.module
        }
        for view in (first, second)
    ]
    return any(layouts[0][number] != layouts[1][number] for number in layouts[0].keys() & layouts[1].keys())


def _frame(module: Module) -> PythonFrame | None:
    caller = module.caller
    return PythonFrame(file=caller.file, function=caller.function, line=caller.line) if caller is not None else None


def option_words(found: DifferingOption, ranks: tuple[int, int]) -> str:
    """`DistributedDataParallel has find_unused_parameters=True on rank 0 and False on rank 1`."""
    one, other = (_value(item) for item in found.values)
    if found.option == HOOK:
        (name, rank), (other, last) = sorted(((one, ranks[0]), (other, ranks[1])), key=lambda side: side[0] == "none")
        return f"DistributedDataParallel has the {HOOK} {name} on rank {rank} and {other} on rank {last}"
    return f"DistributedDataParallel has {found.option}={one} on rank {ranks[0]} and {other} on rank {ranks[1]}"


def _value(value: Value) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def option_advice(
    found: DifferingOption, first: tuple[ProcessView, Collective], second: tuple[ProcessView, Collective]
) -> str:
    """With the line that passes it, and where its value comes from."""
    if found.option == HOOK:
        return _hook_advice(found, first[0], second[0])
    same = f"Pass the same {found.option} on all ranks{_why(found)}"
    frame = found.frames[0]
    if frame is None or is_library_file(frame.file):
        return f"{same}."
    spot = _spot(first[0], frame)
    given = next(_passed(spot, found.option), None) if spot is not None else None
    if spot is None or given is None:
        lines = sorted({item.line for item in found.frames if item is not None and item.line is not None})
        at = " and ".join(f"line {line}" for line in lines)
        return f"{same}: {at} wrap{'s' * (len(lines) == 1)} the module."
    if isinstance(given, ast.Constant):
        return f"{same}: line {frame.line} passes `{found.option}={ast.unparse(given)}`."
    compared = Compared(*first, *second)
    value = compared.follow(given, spot)
    ranks = first[0].process.rank or 0, second[0].process.rank or 0
    if value is None:
        return f"{same}: line {frame.line} passes `{found.option}={ast.unparse(given)}`."
    values = _value(found.values[0]), _value(found.values[1])
    return f"{same}. At line {frame.line} {value_words(compared, value, ranks, values)}"


def _hook_advice(found: DifferingOption, first: ProcessView, second: ProcessView) -> str:
    """With the only line of the program that registers one, and the branch that it is below."""
    same = "Register the same communication hook on all ranks, or on none: it decides what is sent, and of which dtype"
    view = first if found.values[0] is not None else second
    stack = view.exception_stack if view.raised else view.python_stack or []
    frames = [frame for stack in (stack, *stacks_of(view)) for frame in stack if not is_library_file(frame.file)]
    places = {
        (frame.file, item.lineno): tree
        for frame in frames
        if (tree := syntax_tree(view.process.snapshot, frame)) is not None
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) in _REGISTER
    }
    if len(places) != 1:
        return f"{same}."
    ((file, line), tree) = next(iter(places.items()))
    said = f"{same}. Line {line} ({quoted(view.process.snapshot, PythonFrame(file=file, line=line), line)})"
    around = next((item for item, is_around in deciding_ifs(tree, line) if is_around), None)
    if around is None:
        return f"{said} registers it."
    head = quoted(view.process.snapshot, PythonFrame(file=file, line=line), around.lineno)
    return f"{said} registers it below {head} (line {around.lineno}): decide that alike on all ranks."


def _why(found: DifferingOption) -> str:
    if found.option == _BITMAP:
        return " (with True, DDP all-reduces in each backward also which parameters were used)"
    return ""


def _spot(view: ProcessView, frame: PythonFrame) -> Spot | None:
    tree = syntax_tree(view.process.snapshot, frame)
    return Spot(frame.file, tree, scope_of(tree, frame.line), frame.line) if tree is not None and frame.line else None


def _passed(spot: Spot, option: str) -> Iterator[ast.expr]:
    """By keyword, as all but the first options are."""
    for item in calls_on(spot.tree, spot.line):
        yield from (word.value for word in item.keywords if word.arg == option)
