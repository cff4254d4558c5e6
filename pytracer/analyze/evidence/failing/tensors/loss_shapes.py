"""An output and a target, or a gradient, whose shapes do not fit."""

from __future__ import annotations

import ast
import math
import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import sizes_in
from pytracer.analyze.evidence.failing.tensors.last_layers import layer_that_gives
from pytracer.analyze.evidence.failing.tensors.planes import folded

_JOINS = Pattern(r"\.(?:view|reshape)\(-1\)|\.flatten\(\)|\.squeeze\(")


def unfit_gradient(at: FailingLine, found: re.Match[str]) -> str | None:
    """Of torch.autograd.backward(outputs, gradients), output.backward(gradient), torch.autograd.grad()."""
    call = at.only(ast.Call)
    if call is None or not isinstance(call.func, ast.Attribute):
        return None
    own = call.func.attr == "backward" and isinstance(call.func.value, ast.Name) and call.func.value.id != "torch"
    place = 0 if own else 1 if call.func.attr == "backward" else 2
    named = {item.arg: item.value for item in call.keywords}
    given = named.get("gradient") or named.get("grad_tensors") or named.get("grad_outputs")
    given = given if given is not None or place >= len(call.args) else call.args[place]
    if given is None:
        return None
    came = at.came(given)
    which = "its shape" if own else f"the shape of number {found[1]} of it"
    return (
        f"`{source(given)}`{came}: {which} is {found[2]}, and that of the output {found[3]}; they must be equal. "
        "Make it by torch.ones_like(output), or call backward() on the sum of the outputs, without one."
    )


def unlike_target(at: FailingLine, found: re.Match[str]) -> str | None:
    """Of a loss that takes both of one shape."""
    target, given = sizes_in(found[1]), sizes_in(found[2])
    names = {shape.sizes: name for name, shape in at.shapes.items()}
    goal, output = names.get(target, "the target"), names.get(given, "the output")
    goal, output = (f"`{item}`" if item in at.shapes else item for item in (goal, output))
    has = f"{output} is {found[2]} and {goal} {found[1]}"
    has = has[0].upper() + has[1:] if has[0] != "`" else has
    if given == (*target, 1):
        return f"{has}: the output has a last dimension of 1 too many. {_squeezed(output)}"
    if target == (*given, 1):
        return f"{has}: the target has a last dimension of 1 too many. {_squeezed(goal)}"
    if given[:1] == target[:1] and len(given) == len(target) + 1:
        shape = at.shapes.get(goal.strip("`"))
        if shape is not None and shape.dtype.startswith("float"):
            return (
                f"{has}: the target has one number for each row, and the output {given[-1]}. Give the last layer one "
                "output, and squeeze(-1) it, or the target as many columns."
            )
        if shape is None:
            return (
                f"{has}. Where the target has class numbers, use CrossEntropyLoss, with the outputs before a sigmoid; "
                "for a yes or no give the last layer one output, and squeeze(-1) it."
            )
        return (
            f"{has}: class numbers where one value for each of {given[-1]} outputs is expected. Use CrossEntropyLoss, "
            f"or F.one_hot({goal.strip('`')}, {given[-1]}).float()."
        )
    each = _of_each(at, output, given, target) if len(given) == len(target) == 1 else None
    if each is not None:
        return f"{has}: {each}"
    if given[:1] != target[:1] and given[1:] == target[1:]:
        return f"{has}: their batches differ{_from_both(at, output, goal)}."
    by_layer = _of_channels(at, given, target, at.came(goal.strip("`")))
    if by_layer is not None:
        return f"{has}: {by_layer}"
    return f"{has}, and both must be alike{_from_both(at, output, goal)}."


def _of_channels(at: FailingLine, given: tuple[int, ...], target: tuple[int, ...], came: str) -> str | None:
    """Where only the sizes of dimension 1 differ, and a single layer of the program gives that of the output."""
    if len(given) != len(target) or given[:1] != target[:1] or given[2:] != target[2:]:
        return None
    layer = layer_that_gives(at, given[1])
    if layer is None:
        return None
    return (
        f"they differ in dimension 1, {given[1]} and {target[1]}. {layer} is the only layer that is seen to make "
        f"{given[1]}: let it make as many as the target{came} has classes or channels, {target[1]}, or the target "
        f"{given[1]}."
    )


def _squeezed(name: str) -> str:
    """Of a variable as code."""
    return f"Pass `{name.strip('`')}.squeeze(-1)`." if name[:1] == "`" else f"Pass {name} by .squeeze(-1)."


def _of_each(at: FailingLine, output: str, given: tuple[int, ...], target: tuple[int, ...]) -> str | None:
    """`D(x).view(-1)`, which joins several outputs of a sample with those of the others."""
    made = at.came(output.strip("`"))
    if not target[0] or given[0] <= target[0] or given[0] % target[0] or not _JOINS.search(made):
        return None
    count = given[0] // target[0]
    if math.isqrt(count) ** 2 != count:
        return None  # no map: real and generated samples in one batch, as likely
    return (
        f"{count} outputs for each of {target[0]} samples, in one row{made}. Images of another size than the network "
        "was made for give it such a map: resize them, change its last layers, or average the map of each sample."
    )


def _from_both(at: FailingLine, *names: str) -> str:
    came = [f"{name}{words}" for name in names if (words := at.came(name.strip("`")))]
    return f": {' and '.join(came)}" if came else ""


def unequal_batches(at: FailingLine, found: re.Match[str]) -> str | None:
    """Of a loss that takes one class number for each row."""
    given, target = int(found[1]), int(found[2])
    output = next((name for name, shape in at.shapes.items() if shape.sizes[:1] == (given,)), None)
    goal = next(
        (name for name, shape in at.shapes.items() if shape.elements == target or shape.sizes[:1] == (target,)), None
    )
    if output is None or goal is None or output == goal:
        return None
    one, other = at.shapes[output], at.shapes[goal]
    has = f"`{output}` is {one.words} and `{goal}` {other.words}"
    if target and given % target == 0 and given != target:
        by = folded(at, output, given // target)
        if by is not None:
            return by
        return (
            f"{has}: {given} predictions for {target} targets, {given // target} for each. Another dimension may be "
            f"folded into the batch{at.came(output)}: keep the batch first (`x.view(x.size(0), -1)`), or flatten the "
            "target alike."
        )
    return f"{has}: their first sizes must be equal{_from_both(at, f'`{output}`', f'`{goal}`')}."


def target_of_classes(at: FailingLine, found: re.Match[str]) -> str | None:
    """Of a loss over images or sequences: which shape the target needs."""
    wanted, got = sizes_in(found[1]), sizes_in(found[2])
    output = next((name for name, shape in at.shapes.items() if (shape.sizes[:1] + shape.sizes[2:]) == wanted), None)
    if output is None:
        return None
    shape = at.shapes[output]
    has = f"`{output}` is {shape.words} (batch, classes, ...), so the target must be {found[1]}, and is {found[2]}"
    if len(got) == len(wanted) + 1:
        lacking = [size for size in got if got.count(size) > shape.sizes.count(size)]
        which = f", of size {lacking[0]}," if len(lacking) == 1 else ""
        if len(shape.sizes) == len(got):
            return (
                f"{has}: `{output}` lacks a dimension{which} that the target has{at.came(output)}. Look for a "
                "squeeze(), mean(), max() or [0] in what makes it."
            )
    if shape.sizes[-1:] != got[-1:] and sorted(shape.sizes[1:-1]) == sorted(got[1:]):
        return f"{has}: the classes are last. Pass `{output}.transpose(1, -1)`."
    return f"{has}{at.came(output)}."
