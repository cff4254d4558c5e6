"""A loss computed before the step of an optimizer whose parameters it needs, by the statements of the program alone.

Of a weight that the recording names, changed_weights.py knows more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.failing.autograd.backward_losses import Loss, loss_of
from pytracer.analyze.evidence.failing.autograd.changed_weights import (
    behind_loop,
    is_no_linear_weight,
    rebound,
    recorded_parameter,
)
from pytracer.analyze.evidence.failing.autograd.forward_lines import ALL, forward_lines, given, is_of_another_module
from pytracer.analyze.evidence.failing.autograd.in_place import may_change
from pytracer.analyze.evidence.failing.autograd.linear_modules import has_only_linear
from pytracer.analyze.evidence.failing.autograd.optimizer_steps import OptimizerStep, steps_before
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import keyword_value
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, parameters

_IN_PLACE = "modified by an inplace operation"
_OUTPUT = Pattern(r"which is output \d+ of (\w+)")
_WEIGHT = Pattern(r"(?:T|AsStrided|Transpose|Permute|Accumulate)(?:Backward\d+|Grad)?$")  # a Linear saves it transposed
_LISTED = 4


class _Before(msgspec.Struct, frozen=True):
    """Lines that made the loss above the steps. `names`: the modules, as that function calls them; empty if unknown."""

    loss: Loss
    lines: tuple[int, ...]
    steps: tuple[OptimizerStep, ...]
    names: tuple[str, ...]
    sure: bool


def stepped_loss(at: FailingLine) -> str | None:
    """What to change: the order of the loss and the step."""
    found = _found(at)
    if found is None:
        return None
    name, where = source(found.loss.value), _made(at, found)
    back = f"line {at.line}" if not found.loss.inner else f"{at.here(at.line)}, called from {_here(at, found)},"
    if not found.sure:
        return (
            f"{_runs(at, found)} between {where}, which makes `{name}`, and its backward() at {back}. If that loss "
            f"goes through parameters of {_that(found)}, it needs their old values: compute it behind "
            f"{_behind(at, found)}, or call every backward() before the first step()."
        )
    them = "them" if len(found.names) > 1 else "it"
    which = _recorded(at, found) if len(found.steps) == 1 else ""  # no more than fits
    values = f"the old values (of {which})" if which else "the old values"
    return (
        f"{_runs(at, found)}, which {'change' if len(found.steps) > 1 else 'changes'} {_modules(found)}, but `{name}` "
        f"({where}) was computed with {them} before, and its backward() at {back} needs {values}. "
        f"{_remedy(at, found)}, or call every backward() before the first step()."
    )


def stepped_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _found(at)
    if found is None:
        return None
    name = source(found.loss.value)
    made = at.place(found.loss.spot, found.lines[-1])
    steps = list_words([f"`{item}.step()`" for item in _optimizers(found)])
    places = _places(at, found.steps)
    if not found.sure:
        return f"{steps} ({places}) may have changed what `{name}` ({made}) needs"
    return f"{steps} ({places}) changed {_modules(found)} after `{name}` was computed ({made})"


def _found(at: FailingLine) -> _Before | None:
    if _IN_PLACE not in at.message:
        return None
    output = _OUTPUT.search(at.message)
    if output is not None and _WEIGHT.match(output[1]) is None:
        return None  # an activation
    others = may_change(at)
    loss = loss_of(at) if output is not None or not others or _named(at) else None
    if loss is None:
        return None
    leaf = output is None
    known, possible = _Steps(), _Steps()
    for step in [item for spot in (loss.spot, *loss.inner) for item in steps_before(at, spot)]:
        modules = tuple(item for item in step.modules if not leaf or _named(at) or not has_only_linear(at, *item))
        if modules or not step.modules:
            _sort(at, loss, structs.replace(step, modules=modules), known, possible)
    one = recorded_parameter(at) is not None
    if not known.steps:
        return possible.before(loss, sure=False) if possible.steps and not one else None
    found = known.before(loss, sure=True)
    if one and not _recorded(at, found):
        return None  # changed_weights.py knows that one, and its optimizer
    unclear = bool(others) or leaf or _has_inplace_layers(at)  # a leaf may be a buffer
    sure = (bool(_recorded(at, found)) or not unclear) and not any(item.maybe for item in found.steps)
    return structs.replace(found, sure=sure)


def _recorded(at: FailingLine, found: _Before) -> str:
    """The parameters of these modules that have the shape and version of the message."""
    names, _, shape = _named(at).partition(" ")
    own = [item for item in names.split(",") if any(item.startswith(f"{name}.") for name in found.names)]
    return f"{list_words([f'`{item}`' for item in own], conjunction='or')} {shape}" if own else ""


def _named(at: FailingLine) -> str:
    """`self.critic.2.weight [1, 64]`, or several of that shape and version."""
    several = at.values.get("changed parameters", "")
    return recorded_parameter(at) or ("" if is_no_linear_weight(at.message, several) else several)


def _has_inplace_layers(at: FailingLine) -> bool:
    """`nn.ReLU(inplace=True)`: what that changes may be a view, which the message calls as a transposed weight."""
    calls = (item for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.Call))
    options = (keyword_value(item, "inplace") for item in calls)
    return any(isinstance(item, ast.Constant) and item.value is True for item in options)


class _Steps:
    """Those of one kind, with the lines above them that made the loss, and the modules."""

    def __init__(self) -> None:
        self.steps: list[OptimizerStep] = []
        self._lines: set[int] = set()
        self._names: dict[str, None] = {}

    def take(self, step: OptimizerStep, lines: Sequence[int], name: str | None) -> None:
        """A step of that module."""
        if step not in self.steps:
            self.steps.append(step)
        self._lines.update(lines)
        self._names.update({name: None} if name is not None else {})

    def before(self, loss: Loss, *, sure: bool) -> _Before:
        """All of them."""
        return _Before(loss, tuple(sorted(self._lines)), tuple(self.steps), tuple(self._names), sure)


def _sort(at: FailingLine, loss: Loss, step: OptimizerStep, known: _Steps, possible: _Steps) -> None:
    """As one of a module that the loss goes through, or may; of another module it is none."""
    last = step.line if step.spot is loss.spot else loss.spot.line
    made = _lines_of(loss, last)
    if not step.modules:
        if made:
            possible.take(step, made, None)
        return
    for module, where in step.modules:
        for name in _names_there(at, module, where, loss.spot):
            shown = _shown(at, loss, _parameter_of(at, name))
            if shown is not None and shown and shown[0] < last:
                known.take(step, shown, name)
            elif shown is None and made and not _is_of_another(at, loss, f"{name}.*"):
                possible.take(step, made, name)


def _parameter_of(at: FailingLine, name: str) -> str:
    """The recorded one of a module, or any: that of a part of a module needs not take part in each forward()."""
    own = [item for item in _named(at).partition(" ")[0].split(",") if item.startswith(f"{name}.")]
    return own[0] if len(own) == 1 else f"{name}{ALL}"


def _shown(at: FailingLine, loss: Loss, parameter: str) -> list[int] | None:
    """As forward_lines(); of an attribute that a method sets, the line that calls that."""
    if _is_followed(loss):
        return forward_lines(at, loss.spot, loss.value, parameter)
    for line, value, inside in _set_by_calls(at, loss):
        if forward_lines(at, inside, value, parameter) is not None:
            return [line]
    return None


def _is_of_another(at: FailingLine, loss: Loss, parameter: str) -> bool:
    if _is_followed(loss):
        return is_of_another_module(at, loss.spot, loss.value, parameter)
    sets = [*_set_by_calls(at, loss)]
    return bool(sets) and all(is_of_another_module(at, inside, value, parameter) for _, value, inside in sets)


def _is_followed(loss: Loss) -> bool:
    """Whether the function itself makes it."""
    name = variable(loss.value) or ""
    return not name.startswith("self.") or bool(given(loss.spot.scope, name, loss.spot.line))


def _set_by_calls(at: FailingLine, loss: Loss) -> Iterator[tuple[int, ast.expr, Spot]]:
    """Of `self.loss`: `self.compute()` above, which sets it."""
    name = variable(loss.value) or ""
    for call in own_nodes(loss.spot.scope):
        if not isinstance(call, ast.Call) or call.lineno >= loss.spot.line or not _is_own_method(call):
            continue
        called = at.slice.function(call, structs.replace(loss.spot, line=call.lineno))
        for item in own_nodes(called[0]) if called is not None else ():
            if called is not None and isinstance(item, ast.Assign) and any(variable(t) == name for t in item.targets):
                yield call.lineno, item.value, Spot(called[1].file, called[1].tree, called[0], item.lineno)


def _is_own_method(call: ast.Call) -> bool:
    return (isinstance(call.func, ast.Attribute) and variable(call.func.value) == "self") or (
        isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == "self"
    )


def _lines_of(loss: Loss, last: int) -> list[int]:
    """The lines above the step that gave the loss its value; none where the function does not show them all."""
    if not _is_followed(loss):
        return []
    names = names_in(loss.value)
    made = [line for name in names for line, _ in given(loss.spot.scope, name, loss.spot.line)]
    return sorted(set(made)) if made and max(made) < last else []


def _names_there(at: FailingLine, module: str, where: Spot, spot: Spot) -> list[str]:
    """How the function of the loss calls a module of another one: also by a parameter, or an attribute of its class."""
    if where.scope is spot.scope:
        return [module]
    own = class_around(spot.tree, spot.scope)
    if module.partition(".")[0] == "self":
        return [module] if own is not None and class_around(where.tree, where.scope) is own else []
    found = []
    for name in parameters(spot.scope):
        step = at.slice.argument(name, spot)
        if step is None or not isinstance(step[0], ast.expr):
            continue
        outer = ast.unparse(step[0])
        if any(item == outer or item.startswith(f"{outer}.") for item in _names_there(at, module, where, step[1])):
            found.append(f"{name}{module.removeprefix(outer)}" if module.startswith(outer) else name)
    if not found and isinstance(where.scope, ast.Module) and where.file == spot.file:
        return [module]
    return found


# ---- words


def _runs(at: FailingLine, found: _Before) -> str:
    places = _places(at, found.steps)
    calls = [ast.unparse(item.call.func) for item in found.steps]
    steps = list_words([f"`{item}.step()`" for item in _optimizers(found)])
    direct = all(item.endswith(".step") for item in calls)
    through = "" if direct or len(found.steps) > 1 else f" (through `{ast.unparse(found.steps[0].call.func)}()`)"
    maybe = " if it comes to it" if any(item.maybe for item in found.steps) else ""
    return (
        f"{places[:1].upper()}{places[1:]} {'run' if len(_lines(found.steps)) > 1 else 'runs'} {steps}{through}{maybe}"
    )


def _optimizers(found: _Before) -> list[str]:
    return [*dict.fromkeys(item.optimizer for item in found.steps)][:_LISTED]


def _lines(steps: Sequence[OptimizerStep]) -> list[int]:
    return sorted({item.line for item in steps})


def _places(at: FailingLine, steps: Sequence[OptimizerStep]) -> str:
    """`lines 78 and 79`; of several files each with its own."""
    lines = _lines(steps)
    if len(lines) == 1 or len({item.spot.file for item in steps}) > 1:
        return list_words([at.place(item.spot, item.line) for item in steps][:_LISTED])
    for line in lines[:_LISTED]:
        at.place(steps[0].spot, line)
    if at.frame.file != steps[0].spot.file:
        return list_words([str(at.place(steps[0].spot, line)) for line in lines][:_LISTED])
    return f"lines {list_words([str(line) for line in lines][:_LISTED])}"


def _modules(found: _Before) -> str:
    return list_words([f"`{item}`" for item in found.names][:_LISTED])


def _that(found: _Before) -> str:
    return _modules(found) if found.names else "that optimizer" if len(_optimizers(found)) == 1 else "these optimizers"


def _here(at: FailingLine, found: _Before) -> str:
    return at.place(found.loss.spot, found.loss.spot.line)


def _behind(at: FailingLine, found: _Before) -> str:
    own = [item for item in found.steps if item.spot is found.loss.spot]
    last = max(own or found.steps, key=lambda item: item.line)
    return behind_loop(at, last.spot, last.line)


def _made(at: FailingLine, found: _Before) -> str:
    """``line 77: `loss = agent.loss(batch)` ``, ``line 70: `q = net(x)`, then line 72``."""
    statement = _statement(found, found.lines[0]) if len(found.steps) == 1 else None  # the report shows its line
    words = f"{at.place(found.loss.spot, found.lines[0])}{f': `{source(statement)}`' if statement is not None else ''}"
    rest = [str(at.place(found.loss.spot, line)) for line in found.lines[1:_LISTED]]
    return f"{words}, then {list_words(rest)}" if rest else words


def _statement(found: _Before, line: int) -> ast.stmt | None:
    kinds = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)
    return next(
        (item for item in own_nodes(found.loss.spot.scope) if isinstance(item, kinds) and item.lineno == line), None
    )


def _remedy(at: FailingLine, found: _Before) -> str:
    """Move the line, where nothing above the step reads what it makes; otherwise compute the loss again."""
    behind = _behind(at, found)
    statement, spot = _statement(found, found.lines[0]), found.loss.spot
    own = max((item.line for item in found.steps if item.spot is spot), default=0)
    if len(found.lines) > 1:
        return f"Compute all of it behind {behind}"
    anew = rebound(at, spot, statement, own) if statement is not None else ""
    if anew or statement is None or not own or _is_read(statement, spot, own):
        return f"Compute it anew{anew} behind {behind}"
    return f"Move {at.place(spot, found.lines[0])} behind {behind}"


def _is_read(statement: ast.stmt, spot: Spot, last: int) -> bool:
    """Whether a line up to the last step reads what the statement makes, or the statement sets no plain variable."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = {name for part in targets for item in nodes_of(part) if (name := variable(item)) is not None}
    between = (item for item in own_nodes(spot.scope) if statement.lineno < getattr(item, "lineno", 0) <= last)
    return not names or any(variable(item) in names for item in between)
