"""Loops that nothing in their head ends: generators that go on for ever, tries without a limit."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.bindings import bound_value, lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.changes import PURE, RANDOM, bound_in, is_among, is_own, names_read, touched
from pytracer.analyze.evidence.syntax.loops import PLAIN_LOOPS
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes

EndlessLoop = ast.While | ast.For
LONGEST = 60
_ENDLESS = frozenset({"count", "cycle", "repeat"})
_ONCE = frozenset({"iter", "map", "filter", "zip", "enumerate", "reversed", "open", "reader"})
_ENDS = frozenset({"exit", "_exit", "quit", "kill", "abort"})


class Reason(msgspec.Struct, frozen=True):
    """Why a loop went on, after "the loop of line 3", and what to change. `sure`: the source alone shows it."""

    words: str
    advice: str
    sure: bool = False
    by_others: bool = False
    """Whether another thread or process has to end it."""
    idle: bool = False
    """Whether it did no step since, and the tensors that it makes are no work, such as the order of a sampler."""
    spins: bool = False
    """Whether the recording shows that its passes came and changed nothing: it computed for ever."""
    tries: bool = False
    """Whether it tries something until that works."""
    of_pause: bool = False
    """Whether it holds only where nothing was done any more: work that goes on looks the same in the source."""


def head_of(loop: EndlessLoop) -> str:
    """`while item in seen`."""
    if isinstance(loop, ast.While):
        return shortened(f"while {ast.unparse(loop.test)}", LONGEST)
    return shortened(f"for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}", LONGEST)


def is_unbounded(loop: ast.AST) -> bool:
    """`while True`, `for step in itertools.count()`: nothing in its head ends it."""
    if isinstance(loop, ast.While):
        return isinstance(loop.test, ast.Constant) and bool(loop.test.value)
    is_call = isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call)
    name = called_name(loop.iter) if is_call and isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) else None
    return name in _ENDLESS and not (name == "repeat" and isinstance(loop, ast.For) and _has_count(loop.iter))


def _has_count(call: ast.expr) -> bool:
    return isinstance(call, ast.Call) and (len(call.args) > 1 or bool(call.keywords))


def loops_at(scope: Scope, line: int) -> list[EndlessLoop]:
    """The `while` loops and unbounded `for` loops of a function with a line in their body or head, innermost first."""
    found = [
        item
        for item in own_nodes(scope)
        if isinstance(item, PLAIN_LOOPS) and (isinstance(item, ast.While) or is_unbounded(item))
        if item.lineno <= line <= (item.body[-1].end_lineno or 0)
    ]
    return sorted(found, key=lambda item: -item.lineno)


def body_of(loop: EndlessLoop | ast.For | ast.AsyncFor) -> Sequence[ast.AST]:
    """The nodes of its body, without those of functions inside."""
    return own_nodes(ast.Module([*loop.body], []))


def leaves(loop: EndlessLoop) -> list[ast.AST]:
    """What leaves it from its body: `break`, `return`, `raise`, a call that ends the process."""
    inner = [
        id(part) for item in body_of(loop) if isinstance(item, (*PLAIN_LOOPS, ast.AsyncFor)) for part in body_of(item)
    ]
    return [
        item
        for item in body_of(loop)
        if isinstance(item, (ast.Return, ast.Raise, ast.Assert))
        or (isinstance(item, ast.Break) and id(item) not in inner)
        or (isinstance(item, ast.Call) and called_name(item) in _ENDS)
    ]


def yields(nodes: Sequence[ast.AST]) -> bool:
    """Whether one of them gives a value to the caller and waits until it asks for more."""
    return any(isinstance(item, (ast.Yield, ast.YieldFrom, ast.Await)) for item in nodes)


def given_by(loop: EndlessLoop) -> list[ast.Yield | ast.YieldFrom]:
    """What its body yields."""
    return [item for item in body_of(loop) if isinstance(item, (ast.Yield, ast.YieldFrom))]


def not_entered_again(scope: Scope, loop: EndlessLoop, line: int) -> Reason | None:
    """`while True` around a loop whose end is final: nothing in the outer one begins the inner one anew."""
    if not is_unbounded(loop) or leaves(loop) or not yields(body_of(loop)):
        return None
    inner = [item for item in loop.body if isinstance(item, PLAIN_LOOPS)]
    if len(inner) != 1 or inner[0].lineno < line <= (inner[0].body[-1].end_lineno or 0):
        return None
    outside = [part for item in loop.body if item is not inner[0] for part in (item, *own_nodes(item))]
    if yields(outside) or any(isinstance(item, (ast.Try, ast.With)) for item in outside):
        return None
    return _used_up(scope, loop, inner[0], outside)


def _used_up(scope: Scope, loop: EndlessLoop, inner: EndlessLoop, outside: Sequence[ast.AST]) -> Reason | None:
    changed_outside = touched(outside)
    if isinstance(inner, ast.While):
        changed = bound_in(body_of(inner))
        names = [name for name in names_read(inner.test) if name in changed]
        if not names or any(is_among(name, changed_outside) for name in names_read(inner.test)):
            return None
        only = f"and in it only by the loop of line {inner.lineno}"
        ended = f"once `{short_text(inner.test)}` is false"
    elif isinstance(inner.iter, ast.Name) and inner.iter.id not in changed_outside:
        names = [inner.iter.id]
        bound = lines_that_bind(scope, names[0])
        if len(bound) != 1 or not _is_used_up(bound[0][1]):
            return None
        only, ended = "and not anew in it", f"once line {inner.lineno} has taken its last item"
    else:
        return None
    name = names[0]
    value = bound_value(scope, name, loop.lineno)
    if value is None or value[0] >= loop.lineno or not is_own(scope, name):
        return None
    made = f": `{name} = {short_text(value[1])}`" if value[1] is not None else ""
    return Reason(
        f"`{name}` is set before it (line {value[0]}), {only}: {ended}, the loop of line {inner.lineno} is not entered "
        "again, and nothing is yielded",
        f"Set `{name}` anew inside of `{head_of(loop)}` (line {loop.lineno}), before line {inner.lineno}{made}. If one "
        f"pass is all there is, let the generator end behind the loop of line {inner.lineno} (`return`).",
        sure=True,
    )


def _is_used_up(value: ast.AST | None) -> bool:
    """An iterator, which a second `for` finds at its end."""
    return isinstance(value, ast.GeneratorExp) or (isinstance(value, ast.Call) and called_name(value) in _ONCE)


def only_draws(loop: EndlessLoop) -> bool:
    """Whether it calls nothing that could end it by an exception, such as next()."""
    calls = [item for item in body_of(loop) if isinstance(item, ast.Call)]
    return all(called_name(item) in PURE or RANDOM.search(ast.unparse(item.func)) for item in calls)


def never_asked_to_stop(loop: EndlessLoop) -> bool:
    """An unbounded loop that yields and that nothing leaves."""
    return is_unbounded(loop) and not leaves(loop) and yields(body_of(loop))


def yields_only_where(loop: EndlessLoop, line: int) -> Reason | None:
    """A generator without end, all of whose `yield` stand below one `if`, at a line outside of it."""
    if not never_asked_to_stop(loop):
        return None
    guards = [_closest_if(loop, item) for item in given_by(loop)]
    guard = guards[0]
    if guard is None or any(item is not guard for item in guards) or line > guard.lineno:
        return None
    test = short_text(guard.test)
    return Reason(
        f"it yields only where `{test}` (line {guard.lineno}) holds: with nothing for which it does, it goes round for "
        "ever and yields nothing",
        f"Print what `{test}` (line {guard.lineno}) reads. Raise or end the generator where a whole pass of the loop "
        f"of line {loop.lineno} has yielded nothing.",
    )


def _closest_if(loop: EndlessLoop, node: ast.AST) -> ast.If | None:
    """The innermost one around a node, in whose `else` it is not."""
    around = [item for item in body_of(loop) if isinstance(item, ast.If)]
    found = [item for item in around if any(part is node for part in own_nodes(ast.Module([*item.body], [])))]
    return max(found, key=lambda item: item.lineno, default=None)


def catches_all_tries(loop: EndlessLoop, line: int) -> ast.ExceptHandler | None:
    """The `except`, the only one of a `try` around a line, by which an unbounded loop goes on with the next try."""
    if not is_unbounded(loop):
        return None
    inner = [item for item in body_of(loop) if isinstance(item, PLAIN_LOOPS) and item.lineno < line]
    if any(line <= (item.end_lineno or 0) for item in inner):
        return None
    tries = [item for item in body_of(loop) if isinstance(item, ast.Try)]
    found = [item for item in tries if item.handlers and item.lineno <= line <= (item.handlers[-1].end_lineno or 0)]
    if len(found) != 1 or any(isinstance(item, (ast.Raise, ast.Return, ast.Break)) for item in _handled(found[0])):
        return None
    done = ast.Module([*found[0].body, *found[0].orelse], [])
    leaving = any(isinstance(item, (ast.Return, ast.Break)) for item in own_nodes(done))
    return found[0].handlers[0] if leaving and len(found[0].handlers) == 1 else None


def _handled(node: ast.Try) -> Iterator[ast.AST]:
    for handler in node.handlers:
        yield from own_nodes(handler)


def short_text(node: ast.AST | None) -> str:
    """Its source, cut."""
    return shortened(ast.unparse(node), LONGEST) if node is not None else ""
