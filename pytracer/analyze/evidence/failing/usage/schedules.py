"""A learning rate schedule that is stepped more often than it counts to, and what made it count to that.

`total_steps` of its making is evaluated from the recorded values: a state that is loaded later replaces that number,
since load_state_dict() of a schedule puts back every attribute of the saved one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.failing.autograd.optimizer_steps import is_optimizer, stepped_optimizer
from pytracer.analyze.evidence.failing.expressions import names_in, short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.numbers import Number, number_at
from pytracer.analyze.evidence.failing.usage.epoch_batches import Counted, counted_otherwise
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.bindings import is_loop_variable, lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.loops import LEAVES, deciding_ifs, loop_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans, spans_body

_STEPS = Pattern(r"Tried to step (\d+) times\. The specified number of total steps is (\d+)")
_ROUNDS_DOWN = Pattern(r"//|\bfloor\(|\bint\(")
_LOADER = Pattern(r"DataLoader, batch_size=(\d+), drop_last=(True|False), (\d+) samples$")
_TOTAL, _EPOCHS, _EACH = "total_steps", "epochs", "steps_per_epoch"
_PLACES = {2: _TOTAL, 3: _EPOCHS, 4: _EACH}  # OneCycleLR(optimizer, max_lr, total_steps, epochs, steps_per_epoch)
_ALIKE = (
    "Count both alike: as many as that line runs in all epochs (math.ceil where a last, smaller part steps, too; a "
    "resumed run counts on)."
)
_BOTH = "Step it at one of these places only (OneCycleLR: after each batch), or count the steps of all."
_OWN_ORDER = ("sampler", "batch_sampler")


class _Counted(msgspec.Struct, frozen=True):
    """The arguments that a schedule took its number of steps from: `total_steps`, or `epochs` and `steps_per_epoch`."""

    given: dict[str, ast.expr]
    spot: Spot

    @property
    def line(self) -> int:
        """The first one's."""
        return min(getattr(item, "lineno", self.spot.line) for item in self.given.values())


class _Load(msgspec.Struct, frozen=True):
    """Of a state, which may be the schedule's. `surely`: by the name of what it is loaded into."""

    place: str
    call: ast.Call
    surely: bool


def schedule_too_short(at: FailingLine) -> str | None:
    """Made for fewer steps, or its number of steps put back by a loaded state."""
    steps, call = _STEPS.search(at.message), at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    if steps is None or owner is None:
        return None
    counted, total = _counted(at, owner), int(steps[2])
    if counted is None:
        return None
    made, loads = _evaluated(at, counted), [*_loads(at, owner)]
    other = _otherwise(at, counted, total) if not loads or made == total else None
    if other is not None:
        return _of_epochs(at, counted, other, total)
    if not loads:
        return _fewer_steps(at, counted, total) if made in (total, None) else None
    if made == total:
        return _fewer_steps(at, counted, total)
    alone = [item for item in loads if item.surely] or loads
    if made is not None and len(alone) == 1 and alone[0].call.args:
        return _put_back(at, counted, alone[0], int(made), total)
    return _either(at, counted, loads[0], total)


def schedule_subject(at: FailingLine) -> str | None:
    """What the headline says of one that counts to other epochs than the loader has."""
    steps, call = _STEPS.search(at.message), at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    counted = _counted(at, owner) if steps is not None and owner is not None else None
    if steps is None or owner is None or counted is None:
        return None
    other = None if [*_loads(at, owner)] else _otherwise(at, counted, int(steps[2]))
    return f"the schedule was {other.words}" if other is not None else None


def _otherwise(at: FailingLine, counted: _Counted, total: int) -> Counted | None:
    """Where it has steps_per_epoch, and the loop that steps it more batches."""
    if _EACH not in counted.given:
        return None
    epochs = _number(at, counted.given[_EPOCHS], counted.spot)
    return counted_otherwise(
        at, counted.given[_EACH], counted.spot, epochs if type(epochs) is int and epochs else None, total
    )


def _of_epochs(at: FailingLine, counted: _Counted, other: Counted, total: int) -> str:
    """With the loader's own number, which changes with batch_size."""
    return (
        f"The schedule of {_place(at, counted)} was {other.words}: line {at.line} steps it after each batch, and its "
        f"{total} steps last for {total / other.batches.count:.3g} epochs. {other.advice}, as many as the loop has."
    )


def _counted(at: FailingLine, owner: ast.expr) -> _Counted | None:
    made = at.made(owner)
    if made is None or not isinstance(made.node, ast.Call) or is_library_file(made.spot.file):
        return None
    call = made.node
    given: dict[str, ast.expr] = {
        name: item.value for name in (_TOTAL, _EPOCHS, _EACH) for item in call.keywords if item.arg == name
    }
    if called_name(call) == "OneCycleLR" and not any(isinstance(item, ast.Starred) for item in call.args):
        given |= {_PLACES[place]: item for place, item in enumerate(call.args) if place in _PLACES}
    known = {name: item for name, item in given.items() if not is_none(item)}
    if _TOTAL in known:
        return _Counted({_TOTAL: known[_TOTAL]}, made.spot)
    return _Counted(known, made.spot) if _EPOCHS in known and _EACH in known else None


def _evaluated(at: FailingLine, counted: _Counted) -> Number | None:
    """The number of steps that the arguments come to; None where a part is not known."""
    product: Number = 1
    for node in counted.given.values():
        number = _number(at, node, counted.spot)
        if number is None:
            return None
        product *= number
    return product


def _number(at: FailingLine, node: ast.expr, spot: Spot) -> Number | None:
    if spot.depth != 0 or any(line > node.lineno for name in names_in(node) for line in _bound(at, name)):
        return at.evaluated(node, spot)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _number(at, node.left, spot), _number(at, node.right, spot)
        return left * right if left is not None and right is not None else None
    if isinstance(node, ast.Name) and at.value(node) is None:
        made = at.made(node, calls=False)
        if made is not None and made.spot.depth == 0 and isinstance(made.node, (ast.BinOp, ast.Call)):
            return _number(at, made.node, made.spot)
    batches = _batches(at, node)
    return batches if batches is not None else number_at(at, node)


def _bound(at: FailingLine, name: str) -> list[int]:
    return [line for line, _ in lines_that_bind(at.scope, name)]


def _batches(at: FailingLine, node: ast.expr) -> int | None:
    """`len(loader)` of one that takes its dataset in its own order: a sampler may give fewer, as one for each rank."""
    if not isinstance(node, ast.Call) or called_name(node) != "len" or len(node.args) != 1:
        return None
    loader, made = _LOADER.match(at.value(node.args[0]) or ""), at.made(node.args[0])
    call = made.node if made is not None else None
    if loader is None or not isinstance(call, ast.Call) or called_name(call) != "DataLoader":
        return None
    if len(call.args) > len(("dataset", "batch_size", "shuffle")):
        return None
    if any(item.arg is None or item.arg in _OWN_ORDER for item in call.keywords):
        return None
    size, count = int(loader[1]), int(loader[3])
    return count // size if loader[2] == "True" else -(-count // size)


def _loads(at: FailingLine, owner: ast.expr) -> Iterator[_Load]:
    """Those that may be of this schedule; a wrapper (Accelerator.load_state(), a loop over objects) loads it, too."""
    own = source(owner).rpartition(".")[2]
    for file, tree in at.files.items():
        for item in nodes_of(tree):
            if not isinstance(item, ast.Call) or not isinstance(item.func, ast.Attribute):
                continue
            holder = item.func.value
            name = source(holder).rpartition(".")[2]
            if item.func.attr == "load_state":
                yield _Load(at.in_file(file, item.lineno), item, surely=False)
            elif item.func.attr == "load_state_dict" and item.args:
                if name == own:
                    yield _Load(at.in_file(file, item.lineno), item, surely=True)
                elif "sched" in name or _is_any(at, holder, item.lineno):
                    yield _Load(at.in_file(file, item.lineno), item, surely=False)


def _is_any(at: FailingLine, holder: ast.expr, line: int) -> bool:
    """`part.load_state_dict(state)` in a loop over several."""
    return isinstance(holder, ast.Subscript) or (
        isinstance(holder, ast.Name) and is_loop_variable(at.scope, holder.id, line)
    )


def _put_back(at: FailingLine, counted: _Counted, load: _Load, made: int, total: int) -> str:
    """A state of a run that counted to another number."""
    state = source(load.call.args[0])
    return (
        f"`{source(load.call.func)}()` at {load.place} put back the {total} steps of the saved schedule in place of "
        f"the {made} of {_place(at, counted)}: that has `{_written(counted)}`. Take 'total_steps' and "
        f"'_schedule_phases' out of `{state}` (pop) before {load.place}, so that the {made} stay; or load no state, "
        "and make a new schedule for the steps that are left."
    )


def _either(at: FailingLine, counted: _Counted, load: _Load, total: int) -> str:
    """What it was made with is not known, or which load it was."""
    return (
        f"The schedule counts to {total} steps by {_place(at, counted)} or by a state that {load.place} loads: "
        f"`{_written(counted)}`, or the number of the run that saved it, which `{source(load.call)}` puts back. "
        "Compare both with the steps that this run takes; without 'total_steps' and '_schedule_phases' in the state, "
        "the new ones stay."
    )


def _place(at: FailingLine, counted: _Counted) -> str:
    return at.place(counted.spot, counted.line)


def _written(counted: _Counted) -> str:
    return short(", ".join(f"{name}={ast.unparse(item)}" for name, item in counted.given.items()))


def _origin(at: FailingLine, counted: _Counted) -> Made | None:
    if _TOTAL not in counted.given:
        return None
    found = at.slice.made(counted.given[_TOTAL], counted.spot, calls=False)
    return found if found.through and not isinstance(found.node, (ast.Name, ast.Attribute)) else None


def _fewer_steps(at: FailingLine, counted: _Counted, total: int) -> str:
    """A schedule that ends before the loop does."""
    found = _origin(at, counted)
    made = at.shown(found) if found is not None else f"{_place(at, counted)}: `{_written(counted)}`"
    computed = ast.unparse(found.node) if found is not None else _written(counted)
    rounds = " (it rounds down)" if _ROUNDS_DOWN.search(computed) else ""
    tests = [test for test, around in deciding_ifs(at.tree, at.line) if around]
    if not tests and loop_around(at.tree, at.line) is None:
        when = "once more"
    else:
        when = (
            f"whenever `{short(ast.unparse(tests[0].test))}` ({at.here(tests[0].lineno)})"
            if tests
            else "in every round"
        )
    also = _also_stepped(at)
    return (
        f"The schedule was made for {total} steps, {made}{rounds}, and line {at.line} steps {when}{also}. {_rarer(at)}"
        f"{_BOTH if also else _ALIKE}"
    )


def _also_stepped(at: FailingLine) -> str:
    """`` and line 24 (`sched.step()`) once more ``: other lines of the function that step the same schedule."""
    call = at.only(ast.Call)
    text = ast.unparse(call.func) if call is not None else None
    own = [item for item in own_nodes(at.scope) if isinstance(item, ast.Call) and ast.unparse(item.func) == text]
    lines = sorted({item.lineno for item in own} - {at.line})
    if not lines:
        return ""
    places = list_words([str(at.here(line)) for line in lines[:3]])
    return f", and {places} {'steps' if len(lines) == 1 else 'step'} it, too"


def _rarer(at: FailingLine) -> str:
    """An optimizer that the same function steps only below a condition, as one that accumulates gradients does."""
    steps = [item for item in own_nodes(at.scope) if isinstance(item, ast.Call) and _is_step(item)]
    if len(steps) != 1:
        return ""
    around = [
        item
        for item in own_nodes(at.scope)
        if isinstance(item, ast.If) and spans_body(item.body, steps[0].lineno) and not spans(item, at.line)
    ]
    if not around or any(isinstance(part, LEAVES) for item in around for part in nodes_of(item)):
        return ""
    test = max(around, key=lambda item: item.lineno)
    return (
        f"`{source(steps[0])}` ({at.here(steps[0].lineno)}) runs only where `{short(ast.unparse(test.test))}` holds: "
        "a schedule that counts the optimizer's steps belongs behind it, below the same condition. "
    )


def _is_step(call: ast.Call) -> bool:
    owner = stepped_optimizer(call)
    return owner is not None and is_optimizer(owner)
