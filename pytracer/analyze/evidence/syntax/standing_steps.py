"""A loop whose condition is about numbers that its steps leave as they are: `at -= width // size`, where that is 0.

With the recorded values: all that the loop sets of what the condition reads gives the value that it has already, so no
pass changes anything. Without them: where the step is a floor division or int(), which may be 0.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.syntax.changes import is_own, names_read
from pytracer.analyze.evidence.syntax.constants import is_order
from pytracer.analyze.evidence.syntax.endless import only_exit
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.outcomes import ValueOf, number, outcome
from pytracer.analyze.evidence.syntax.scopes import Scope
from pytracer.analyze.evidence.syntax.unbounded import (
    LONGEST,
    EndlessLoop,
    Reason,
    body_of,
    is_unbounded,
    leaves,
    short_text,
    yields,
)

_MOST = 12  # names that are followed
_FEW = 4  # values that are shown
_Step = ast.AugAssign | ast.Assign


class _Test(msgspec.Struct, frozen=True):
    """A condition, and how it has to come out for the loop to go on."""

    node: ast.expr
    wanted: bool

    @property
    def words(self) -> str:
        return f"`{short_text(self.node)}` {'true' if self.wanted else 'false'}"


def standing_steps(scope: Scope, loop: EndlessLoop, value_of: ValueOf) -> Reason | None:
    """Why the loop never ends, by the recorded values; None where one of its steps changes something, or may.

    Args:
        scope: The function.
        loop: The loop, wherever in it the function was.
        value_of: The recorded value of a variable of the function.
    """
    test = _test(loop)
    if test is None or yields(body_of(loop)):
        return None
    held = _held(scope, loop, test, value_of)
    found = next(iter(held), None)
    if found is None:
        return None
    step = next(item for name in names_read(found.node) for item in _steps(loop, name) or [])
    name, value = _name(step), value_of(_target(step))
    does, zero = _does(step, value_of)
    return Reason(
        f"`{name}` stays {value}, and {found.words}: line {step.lineno} (`{shortened(ast.unparse(step), LONGEST)}`) "
        f"{does}{_where(step, value_of)}",
        _advice(loop, test, found, step) if zero else _other_advice(loop, step, name),
        sure=True,
        spins=True,
    )


def may_stand(scope: Scope, loop: EndlessLoop, value_of: ValueOf) -> Reason | None:
    """Why it may not end: a step that is rounded to a whole number. None where it is known not to be 0."""
    test = _test(loop)
    if test is None or yields(body_of(loop)):
        return None
    for found in _deciding(test):
        for name in names_read(found.node):
            steps = _steps(loop, name)
            if not is_own(scope, name) or steps is None or len(steps) != 1:
                continue
            zero = _zero_where(steps[0])
            if zero is not None and not _other_than_zero(steps[0], value_of):
                return Reason(
                    f"`{name}` changes only by line {steps[0].lineno} "
                    f"(`{shortened(ast.unparse(steps[0]), LONGEST)}`), which is nothing where {zero}: then "
                    f"`{name}` stays as it is, and the loop goes on for ever",
                    _advice(loop, test, found, steps[0]),
                )
    return None


def _test(loop: EndlessLoop) -> _Test | None:
    """The condition alone on which it ends."""
    if isinstance(loop, ast.While) and not is_unbounded(loop):
        return _Test(loop.test, wanted=True) if not leaves(loop) else None
    only = only_exit(loop)
    return _Test(only.test, wanted=False) if only is not None and isinstance(loop, ast.While) else None


def _parts(test: _Test) -> tuple[list[_Test], bool]:
    """Those of `a and b`, and whether one alone keeps the loop going."""
    node = test.node
    if not isinstance(node, ast.BoolOp):
        return [test], True
    return [_Test(item, test.wanted) for item in node.values], isinstance(node.op, ast.Or) == test.wanted


def _held(scope: Scope, loop: EndlessLoop, test: _Test, value_of: ValueOf) -> list[_Test]:
    """The conditions that stay as they are and keep the loop going; of several that it needs, all."""
    parts, alone = _parts(test)
    stays = [item for item in parts if _stays(scope, loop, item, value_of)]
    moved = [item for item in stays if any(_steps(loop, name) for name in names_read(item.node))]
    return moved if alone or len(stays) == len(parts) else []


def _stays(scope: Scope, loop: EndlessLoop, test: _Test, value_of: ValueOf) -> bool:
    if outcome(test.node, value_of) is not test.wanted:
        return False
    todo, seen = names_read(test.node), set[str]()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        steps = _steps(loop, name)
        if steps is None or not is_own(scope, name) or len(seen) > _MOST:
            return False
        value = number(ast.Name(name, ast.Load()), value_of)
        for step in steps:
            given = number(_result(step), value_of)
            if given is None or given != value or type(given) is not type(value):
                return False
            todo += names_read(step.value)
        if value is None:
            return False
    return True


def _steps(loop: EndlessLoop, name: str) -> list[_Step] | None:
    """The statements of the loop that set a variable; None where something else sets it, too, such as a `for`."""
    stored = [
        item
        for part in (*body_of(loop), *nodes_of(loop.test if isinstance(loop, ast.While) else loop.iter))
        for item in [part]
        if isinstance(item, ast.Name) and item.id == name and not isinstance(item.ctx, ast.Load)
    ]
    steps: list[_Step] = [
        item for item in body_of(loop) if isinstance(item, (ast.AugAssign, ast.Assign)) and _name(item) == name
    ]
    named = any(
        isinstance(item, (ast.ExceptHandler, ast.alias, ast.MatchAs))
        and name in (item.name, getattr(item, "asname", 0))
        for item in body_of(loop)
    )
    return steps if len(stored) == len(steps) and not named else None


def _target(step: _Step) -> ast.expr:
    return step.target if isinstance(step, ast.AugAssign) else step.targets[0]


def _name(step: _Step) -> str:
    single = isinstance(step, ast.AugAssign) or len(step.targets) == 1
    target = _target(step)
    return target.id if single and isinstance(target, ast.Name) else ""


def _result(step: _Step) -> ast.expr:
    """What it sets the variable to."""
    if isinstance(step, ast.Assign):
        return step.value
    return ast.BinOp(ast.Name(_name(step), ast.Load()), step.op, step.value)


def _does(step: _Step, value_of: ValueOf) -> tuple[str, bool]:
    """What it does, and whether that is to add a 0."""
    given = number(step.value, value_of)
    if isinstance(step, ast.AugAssign) and isinstance(step.op, (ast.Add, ast.Sub)) and given is not None:
        verb = "adds {} to it" if isinstance(step.op, ast.Add) else "takes {} from it"
        if given == 0:
            return verb.format(0), True
        return f"{verb.format(f'{given:g}')}, too little to change a float of that size", False
    return "gives that value again", False


def _where(step: _Step, value_of: ValueOf) -> str:
    """`, where `width` is 30 and `height` is 127`."""
    names = [name for name in names_read(step.value) if name != _name(step)][:_FEW]
    known = [(name, value_of(ast.Name(name, ast.Load()))) for name in names]
    told = [f"`{name}` is {value}" for name, value in known if value is not None]
    return f", where {list_words(told)}" if told else ""


def _zero_where(step: _Step) -> str | None:
    """`width` is less than `size`; None of a step that is no floor division or int()."""
    if not isinstance(step, ast.AugAssign) or not isinstance(step.op, (ast.Add, ast.Sub)):
        return None
    value = step.value
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.FloorDiv):
        return f"`{short_text(value.left)}` is less than `{short_text(value.right)}`"
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and len(value.args) == 1:
        given = value.args[0]
        divides = any(isinstance(item, (ast.BinOp, ast.Name, ast.Attribute)) for item in nodes_of(given))
        if value.func.id == "int" and divides:
            return f"`{short_text(given)}` is less than 1"
    return None


def _other_than_zero(step: _Step, value_of: ValueOf) -> bool:
    given = number(step.value, value_of)
    return given is not None and given != 0


def _deciding(test: _Test) -> list[_Test]:
    """The comparisons, each of which alone keeps the loop going."""
    parts, alone = _parts(test)
    return [item for item in parts if alone and is_order(item.node)]


def _advice(loop: EndlessLoop, test: _Test, found: _Test, step: _Step) -> str:
    """A step of at least 1, where that leads to the end; also of what the condition reads besides."""
    if not isinstance(step, ast.AugAssign) or not _leads_to_end(found, step):
        return _other_advice(loop, step, _name(step))
    text = f"{_name(step)} {'+' if isinstance(step.op, ast.Add) else '-'}= max(1, {ast.unparse(step.value)})"
    others = [str(item.lineno) for item in _alike(loop, test) if item is not step]
    so = f", and line{'s' if len(others) > 1 else ''} {list_words(others)} alike" if others else ""
    return (
        f"Make the step of line {step.lineno} at least 1: `{text}`{so}. Or leave out, before the loop of line "
        f"{loop.lineno}, what gives a step of 0."
    )


def _alike(loop: EndlessLoop, test: _Test) -> Iterator[_Step]:
    """Steps of the condition's other variables that may be 0 as well."""
    parts, _ = _parts(test)
    for part in parts:
        for name in names_read(part.node):
            yield from (item for item in _steps(loop, name) or [] if _zero_where(item) is not None)


def _leads_to_end(found: _Test, step: ast.AugAssign) -> bool:
    """Whether a positive step makes the comparison come out otherwise."""
    node = found.node
    if not isinstance(node, ast.Compare) or not is_order(node) or not isinstance(step.op, (ast.Add, ast.Sub)):
        return False
    left = _name(step) in names_read(node.left)
    if left == (_name(step) in names_read(node.comparators[0])) or not isinstance(
        node.left if left else node.comparators[0], ast.Name
    ):
        return False
    greater = isinstance(node.ops[0], (ast.Gt, ast.GtE)) == left
    return (greater == found.wanted) == isinstance(step.op, ast.Sub)


def _other_advice(loop: EndlessLoop, step: _Step, name: str) -> str:
    return (
        f"Let line {step.lineno} change `{name}` in each pass, or end the loop of line {loop.lineno} by `break` where "
        f"a pass has left `{name}` as it was."
    )
