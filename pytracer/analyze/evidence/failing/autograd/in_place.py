"""The line that changed in place what backward() still needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.failing.autograd.backward_losses import loss_of
from pytracer.analyze.evidence.failing.autograd.changed_outputs import ChangedOutput, changed_output
from pytracer.analyze.evidence.failing.autograd.first_values import first_values
from pytracer.analyze.evidence.failing.autograd.forward_lines import given
from pytracer.analyze.evidence.failing.autograd.last_operations import by_operation, last_operation
from pytracer.analyze.evidence.failing.autograd.optimizer_steps import (
    is_optimizer,
    may_be_left_before,
    stepped_optimizer,
)
from pytracer.analyze.evidence.failing.autograd.owned_parameters import (
    is_only_without_graph,
    is_parameter,
    module_of,
    own_parameter,
)
from pytracer.analyze.evidence.failing.autograd.part_writes import part_words, part_writes
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import loops_of
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of, spans_body, statement_at

IN_PLACE = "modified by an inplace operation"
_WEIGHT = Pattern(r"output 0 of (?:T|AsStrided|Transpose|Permute|Accumulate)(?:Backward0|Grad)?,")
_OUTPUT = Pattern(r"which is output \d+ of \w+")
_APART = frozenset({"data", "grad", "init"})
_MOST = 2
_MOST_NAMED = 3
_LISTED = (ast.List, ast.Tuple, ast.Dict, ast.Set)
_OF_OTHERS = Pattern(r"(?:np|numpy)\.|(?:\w+\.)?(?:list|dict|defaultdict|OrderedDict|deque|Counter|bytearray|set)$")
_IF = ", if it ran"
_BEHIND = "backward() and the optimizer's step()"


def changed_in_place(at: FailingLine) -> str | None:
    """Statements that change a tensor in place, where they are few; with those that change parameters."""
    known = changed_output(at, [*_statements(at)])
    if known is not None:
        return _of_output(at, known)
    parts = part_writes(at, _statements(at))
    if parts is not None:
        return part_words(at, parts)
    found = may_change(at)
    if len(found) > _MOST:
        return _of_operation(at, found)
    if not found:
        return None
    own, listed = all(file == at.frame.file for file, _ in found), _listed(at, found)
    lines = (
        f"In this file {listed}"
        if own
        else f"{listed[:1].upper()}{listed[1:]}"
        if at.frame.file in {file for file, _ in found}
        else listed
    )
    steps = _changes_of_parameters(at)
    if steps:
        others = [_named(at, number, steps[number]) for number in sorted(steps)][:_MOST]
        seem, change = ("seems", "seem")[len(found) > 1], ("changes", "change")[len(others) > 1]
        return (
            f"{lines} {seem} to change a tensor in place, and {' and '.join(others)} "
            f"{change} parameters: backward() still needs what one of them changed. Call every backward() before the "
            "parameters change, or compute this loss after that; of a tensor of the forward, make a new one "
            "(`x = x + y`, `x.relu()`, torch.where, clone() before)."
        )
    the = "the only line" if own else "the only line of the program's files"
    only = f"is {the} that seems to change a tensor in place" if len(found) == 1 else "seem to change a tensor in place"
    kept = _parameters_of(at)
    if kept is not None:
        return f"{lines} {only}, and backward() still needs {kept} in the forward: do that behind {_BEHIND}."
    return (
        f"{lines} {only}, and backward() still needs what was there: write it so that it "
        "makes a new one (`x = x + y`, `x.relu()`, torch.where, clone() before)."
    )


def in_place_subject(at: FailingLine) -> str | None:
    """For the headline, which has the tensor before: `line 40 (...) and line 41 (...) seem to change it in place`."""
    found = may_change(at) if IN_PLACE in at.message else {}
    known = changed_output(at, [*_statements(at)]) if found else None
    if known is not None and len(known.lines) <= _MOST_NAMED:
        return f"{_listed(at, _texts(found, known))} {_verb(known)} in place {known.words(at)}"
    parts = part_writes(at, _statements(at)) if found else None
    if parts is not None:
        return parts.words(at)
    found = by_operation(at, found) if len(found) > _MOST else found
    if not 0 < len(found) <= _MOST or _changes_of_parameters(at):
        return None
    return f"{_listed(at, found)} {'seem' if len(found) > 1 else 'seems'} to change it in place"


def _of_operation(at: FailingLine, found: dict[tuple[str, int], str]) -> str | None:
    """Of many lines those with the operation that the message names as the tensor's last one."""
    few, named = by_operation(at, found), last_operation(at.message)
    if not few:
        return None
    lines = f"{capital(_listed(at, few))} {'seem' if len(few) > 1 else 'seems'} to change it in place"
    return (
        f"{lines}: the last operation of that tensor is {named}. backward() still needs what was there: write it so "
        "that it makes a new one (`x = x * y`, clone() before)."
    )


def _of_output(at: FailingLine, known: ChangedOutput) -> str:
    """Of the tensor that torch names: which lines change it, and which made it."""
    lines = _listed(at, _texts(may_change(at), known)) if len(known.lines) <= _MOST_NAMED else ""
    first = lines or f"{len(known.lines)} lines from {at.in_file(*known.lines[0])} on"
    copy = f"put `{known.name} = {known.name}.clone()` before {at.in_file(known.lines[0][0], known.before)}"
    new = f"Make a new tensor there (`{known.name} = {known.name} + ...`, torch.where()), or {copy}."
    if known.alias is not None:
        new = (
            f"{capital(copy)}, or write `{known.name} = {known.name} * ...`: `{known.alias}`, assigned anew, would "
            f"leave `{known.name}` as it is."
        )
    made = f"{at.place(known.made.spot, known.made.line)} (`{source(known.made.node)}`)"
    return (
        f"{capital(first)} {_verb(known)} `{known.name}` in place, which {made} made and backward() still needs as it "
        f"was. {new}"
    )


def _parameters_of(at: FailingLine) -> str | None:
    """What changes, where that is parameters alone: `these parameters of net as they were`, `fc.weight as it was`."""
    if not may_be_parameter(at.message):
        return None
    changed = [(module_of(tree, item), own_parameter(tree, item)) for _, tree, item in _statements(at)]
    if any(pair == (None, None) for pair in changed):
        return None
    modules = sorted({f"`{module}`" for module, _ in changed if module is not None})
    own = sorted({f"`{name}`" for module, name in changed if module is None})
    if modules:
        return f"these parameters of {' and '.join([*modules, *own])} as they were"
    return f"{' and '.join(own)} as {'it was' if len(own) == 1 else 'they were'}"


def _verb(known: ChangedOutput) -> str:
    return "change" if len(known.lines) > 1 else "changes"


def _texts(found: dict[tuple[str, int], str], known: ChangedOutput) -> dict[tuple[str, int], str]:
    return {key: text for key, text in found.items() if key in known.lines}


def _listed(at: FailingLine, found: dict[tuple[str, int], str]) -> str:
    return " and ".join(f"{at.in_file(*key)} (`{text}`)" for key, text in sorted(found.items(), key=_order(at)))


def _named(at: FailingLine, number: int, text: str) -> str:
    return f"{at.here(number)} (`{text.removesuffix(_IF)}`{_IF if text.endswith(_IF) else ''})"


def _order(at: FailingLine) -> Callable[[tuple[tuple[str, int], str]], tuple[bool, str, int]]:
    """The failing line's file first."""
    return lambda item: (item[0][0] != at.frame.file, *item[0])


def may_be_parameter(message: str) -> bool:
    """Whether torch's message can be about one: a leaf, or the transposed weight that a Linear saves."""
    return _OUTPUT.search(message) is None or _WEIGHT.search(message) is not None


def may_change(at: FailingLine) -> dict[tuple[str, int], str]:
    """The statements of the program that change a tensor in place and may have run since the forward, by their lines.

    Not those of `x.data`, which has a version of its own, and of gradients.
    """
    found: dict[tuple[str, int], str] = {}
    for file, _, item in _statements(at):
        found.setdefault((file, item.lineno), source(item))
    return found


def _statements(at: FailingLine) -> Iterator[tuple[str, ast.Module, ast.stmt | ast.expr]]:
    for file, tree in at.trees.items():
        for item in nodes_of(tree):
            if not isinstance(item, (ast.stmt, ast.expr)):
                continue
            if not _changes_in_place(tree, item) and not _is_recorded_tensor(at, tree, item):
                continue
            if not can_have_run(at, item.lineno, file) or is_only_without_graph(at, tree, item):
                continue
            if may_be_parameter(at.message) or not is_parameter(tree, item):
                yield file, tree, item


def _is_recorded_tensor(at: FailingLine, tree: ast.Module, item: ast.AST) -> bool:
    """`x += 1`, which reads like a count, of what is a tensor with elements at the failing line."""
    if not isinstance(item, ast.AugAssign) or not isinstance(item.target, ast.Name):
        return False
    shape = at.shape(item.target.id) if scope_of(tree, item.lineno) is at.scope else None
    return shape is not None and bool(shape.sizes)


def _changes_of_parameters(at: FailingLine) -> dict[int, str]:
    """An optimizer's step(), load_state_dict(), behind what made the loss; none where it cannot be a parameter."""
    if not may_be_parameter(at.message) or "changed parameter" in at.values:  # changed_weights.py knows that one's step
        return {}
    loss, found = loss_of(at), dict[int, str]()
    names = names_in(loss.value) if loss is not None else []
    made = [line for name in names if loss is not None for line, _ in given(loss.spot.scope, name, loss.spot.line)]
    for item in nodes_of(at.tree):
        line = getattr(item, "lineno", 0)
        if loss is not None and line < min(made, default=0) and scope_of(at.tree, line) is loss.spot.scope:
            continue
        if (
            isinstance(item, ast.Call)
            and isinstance(item.func, ast.Attribute)
            and can_have_run(at, item.lineno, at.frame.file)
        ):
            owner = stepped_optimizer(item)
            if (owner is not None and is_optimizer(owner)) or item.func.attr == "load_state_dict":
                left = may_be_left_before(scope_of(at.tree, item.lineno), item)
                found[item.lineno] = f"{source(item)}{_IF}" if left else source(item)
    return found


def _changes_in_place(tree: ast.Module, item: ast.stmt | ast.expr) -> bool:
    """`names["a"] = 1` is a dict's."""
    if isinstance(item, ast.AugAssign):
        return _is_tensor_like(tree, item) and _counts(item.target)
    if isinstance(item, ast.Call):
        return isinstance(item.func, ast.Attribute) and _is_in_place(item.func.attr) and _counts(item.func.value)
    held = [
        target for target in (item.targets if isinstance(item, ast.Assign) else ()) if isinstance(target, ast.Subscript)
    ]
    if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call) and called_name(item.value) == "item":
        return False
    return any(not _is_keyed(part) and _counts(part) and not _is_container(tree, part.value) for part in held)


def _is_keyed(node: ast.Subscript) -> bool:
    return isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)


def _is_container(tree: ast.Module, node: ast.AST) -> bool:
    """A NumPy array, list or dict, by what it was first."""
    root = node
    while isinstance(root, ast.Subscript):
        root = root.value
    for value in first_values(tree, root):
        made = value.left if isinstance(value, ast.BinOp) else value
        if isinstance(made, (*_LISTED, ast.ListComp, ast.DictComp)):
            return True
        if isinstance(made, ast.Call) and _OF_OTHERS.match(ast.unparse(made.func)):
            return True
    return False


def _counts(node: ast.expr) -> bool:
    """Whether a change of it raises a version that the graph can have saved: not of `x.data`, `x.grad`, `nn.init`."""
    return not any(isinstance(item, ast.Attribute) and item.attr in _APART for item in nodes_of(node))


def _is_in_place(name: str) -> bool:
    inits = ("grad_", "__", "uniform_", "normal_", "memory_", "detach_", "unscale_")
    return name.endswith("_") and not name.startswith(("_", "clip_grad")) and not name.endswith(inits)


def _is_tensor_like(tree: ast.Module, item: ast.AugAssign) -> bool:
    """No count: `n += 1`, `total += loss.item()`, `seen += len(y)`; no list, and no sum that began as a number."""
    text = ast.unparse(item.value)
    if isinstance(item.value, (*_LISTED, ast.ListComp, ast.SetComp, ast.DictComp, ast.JoinedStr)):
        return False
    if re.search(r"\.item\(\)|^len\(|\.size\(|float\(|int\(", text):
        return False
    first = first_values(tree, item.target)
    if any(_is_number(value) or isinstance(value, _LISTED) for value in first) or _is_container(tree, item.target):
        return False
    if not isinstance(item.value, ast.Constant):
        return True
    whole = type(item.value.value) is int and isinstance(item.op, (ast.Add, ast.Sub))
    return not whole and type(item.value.value) in (int, float) and any(_is_made(value) for value in first)


def _is_made(value: ast.AST) -> bool:
    return isinstance(value, ast.Call) and called_name(value) not in (
        "float",
        "int",
        "len",
        "get",
        "max",
        "min",
        "item",
    )


def _is_number(node: ast.AST) -> bool:
    """`0`, `-1.0`."""
    value = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(value, ast.Constant) and type(value.value) in (int, float, str)


def can_have_run(at: FailingLine, line: int, file: str | None) -> bool:
    """Whether a line of a file can have run between the forward and this backward().

    Not one behind the line where a running function is, without a loop around both. A function that only got the loss
    may have run before, for another one.
    """
    loss = loss_of(at)
    for depth, frame in enumerate(at.frames):
        spot = at.slice.spot(depth) if frame.file == file else None
        if spot is None or scope_of(spot.tree, line) is not spot.scope or line <= (_end(spot.tree, spot.line)):
            continue
        if any(spans_body(item.body, line) and spans_body(item.body, spot.line) for item in loops_of(spot.scope)):
            continue
        if loss is not None and any(item.scope is spot.scope for item in loss.inner) and _is_called_again(at, depth):
            continue
        return False
    return True


def _end(tree: ast.Module, line: int) -> int:
    found = statement_at(tree, line)
    return (found.end_lineno or line) if found is not None and not hasattr(found, "body") else line


def _is_called_again(at: FailingLine, depth: int) -> bool:
    """Whether the program calls that function in more than one place, or in a loop."""
    spot, outer = at.slice.spot(depth), at.slice.spot(depth + 1)
    name = getattr(spot.scope, "name", None) if spot is not None else None
    calls = [
        item
        for tree in at.files.values()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call)
        if called_name(item) == name
    ]
    loops = loops_of(outer.scope) if outer is not None else ()
    return len(calls) != 1 or any(outer is not None and spans_body(item.body, outer.line) for item in loops)
