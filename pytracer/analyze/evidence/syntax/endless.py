"""Why a loop may not end, as far as its source shows: what it reads to go on, and what its body changes of that."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.changes import (
    PURE,
    RANDOM,
    bound_in,
    compares_numbers,
    is_among,
    is_own,
    is_plain,
    names_read,
    touched,
)
from pytracer.analyze.evidence.syntax.constants import ORDERS
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.refilled import refilled
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes
from pytracer.analyze.evidence.syntax.seeded_draws import seeded_draw
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

_TOLERANCE = Pattern(r"tol|eps|thresh|delta|diff|err|change|gap|resid", re.IGNORECASE)
_TIME = frozenset({"sleep", "time", "monotonic", "perf_counter", "info", "debug", "warning"})
_CLOCKS = frozenset(
    {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "now", "utcnow"}
)


def reason_of(scope: Scope, loop: EndlessLoop, line: int) -> Reason | None:
    """Why the loop around a line may not end."""
    end = _end_of(loop)
    if end is None or any(isinstance(item, ast.Call) and called_name(item) == "input" for item in body_of(loop)):
        return None
    test, words, leaves_there = end
    names = names_read(test)
    changes = _changes(loop, names)
    if compares_numbers(test) and all(is_own(scope, name) for name in names):
        changes = _changes_by(loop, names, passed=False)  # a number that is passed stays as it is
    if not changes:
        return _unchanged(scope, loop, test, leaves_there)
    drawn = [item for item in changes if item.drawn]
    if drawn and len(drawn) == len(changes):
        return _drawn(loop, test, words, drawn)
    skipped = _skipped(loop, changes, line) or _skipped_inside(loop, changes)
    if skipped is not None:
        return skipped
    return (
        _of_tolerance(test, changes, leaves_there)
        or _of_links(loop, test, changes, leaves_there)
        or refilled(loop, test)
        or _limited(loop, test, changes)
        or _of_equality(test, changes, leaves_there)
        or _of_result(test, changes, leaves_there)
    )


class _Change(msgspec.Struct, frozen=True):
    """A statement of the body that changes a name of the condition; `within`: the closest `if` around it."""

    name: str
    node: ast.stmt
    value: ast.AST | None
    drawn: bool
    within: ast.If | None

    @property
    def text(self) -> str:
        return short_text(self.node)


def _end_of(loop: EndlessLoop) -> tuple[ast.expr, str, bool] | None:
    """The condition on which it ends, in words, and whether it is the one of an `if` that leaves."""
    leaving = leaves(loop)
    if isinstance(loop, ast.While) and not is_unbounded(loop):
        return (loop.test, f"`{short_text(loop.test)}` is false", False) if not leaving else None
    guards = [_guard(loop, item) for item in leaving]
    guard = guards[0] if len(guards) == 1 else None
    return (
        (guard.test, f"`{short_text(guard.test)}` (line {guard.lineno}) is true", True) if guard is not None else None
    )


def only_exit(loop: EndlessLoop) -> ast.If | None:
    """The one `if` by which an unbounded loop is left."""
    leaving = leaves(loop)
    return _guard(loop, leaving[0]) if is_unbounded(loop) and len(leaving) == 1 else None


def _guard(loop: EndlessLoop, leaving: ast.AST) -> ast.If | None:
    """The `if` of the loop's own body that leaves, where it has no `else` before that."""
    return next((item for item in loop.body if isinstance(item, ast.If) and leaving in item.body), None)


def _changes(loop: EndlessLoop, names: Sequence[str]) -> list[_Change]:
    """Those that the loop makes itself; where it makes none, what it passes to functions that may."""
    return _changes_by(loop, names, passed=False) or _changes_by(loop, names, passed=True)


def _changes_by(loop: EndlessLoop, names: Sequence[str], *, passed: bool) -> list[_Change]:
    found: list[_Change] = []

    def walk(statements: Sequence[ast.stmt], within: ast.If | None) -> None:
        for item in statements:
            changed = touched(_without_blocks(item), passed=passed)
            for name in names:
                if is_among(name, changed):
                    value = getattr(item, "value", None)
                    found.append(_Change(name, item, value, _is_drawn(loop, value), within))
            for block in ("body", "orelse", "finalbody"):
                walk(getattr(item, block, []), item if isinstance(item, ast.If) else within)
            for handler in getattr(item, "handlers", []):
                walk(handler.body, within)

    walk(loop.body, None)
    return found


def _without_blocks(statement: ast.stmt) -> list[ast.AST]:
    """The statement and its expressions, without the statements inside it."""
    found: list[ast.AST] = [statement]
    todo = [item for item in ast.iter_child_nodes(statement) if isinstance(item, (ast.expr, ast.withitem))]
    for item in todo:
        found += [item, *own_nodes(item)]
    return found


def _is_drawn(loop: EndlessLoop, value: ast.AST | None, depth: int = 2) -> bool:
    """Whether a value is drawn at random, itself or by the names that it reads."""
    if value is None:
        return False
    calls = [item for item in nodes_of(value) if isinstance(item, ast.Call)]
    if any(RANDOM.search(ast.unparse(item.func)) for item in calls):
        return True
    if not depth:
        return False
    read = set(names_read(value))
    bound = [item for item in body_of(loop) if isinstance(item, ast.Assign) and bound_in([item]) & read]
    return any(_is_drawn(loop, item.value, depth - 1) for item in bound)


def _drawn(loop: EndlessLoop, test: ast.expr, words: str, drawn: Sequence[_Change]) -> Reason | None:
    one = drawn[0]
    seeded = seeded_draw(loop, words, one.value)
    if seeded is not None:
        return seeded
    if not any(isinstance(item, ast.Compare) for item in nodes_of(test)):
        return None
    count = _counted(test, one)
    if count is not None:
        return Reason(
            f"line {one.node.lineno} adds what it draws at random, `{shortened(one.text, LONGEST)}`, until {words}: "
            "where there are fewer different values to draw than that, it never ends",
            f"Before the loop of line {loop.lineno}, compare the number of different values that line "
            f"{one.node.lineno} can draw with `{count}`. Draw them without repetition instead (random.sample(), "
            "torch.randperm()).",
        )
    last = _last_of(test, one)
    if last is not None:
        return Reason(
            f"line {one.node.lineno} adds what it draws at random, `{shortened(one.text, LONGEST)}`, until {words}, "
            f"and nothing limits how much `{one.name}` gets",
            f"Bound it: `while {short_text(test)} and len({one.name}) < max_length`. If `{last}` should come sooner, "
            f"print how probable it is in line {one.node.lineno}.",
        )
    held = _container(test)
    compare = f": compare `len(set({held}))` with the number of values that can be drawn" if held is not None else ""
    draws = (
        f"line {one.node.lineno} draws at random, `{shortened(one.text, LONGEST)}`,"
        if _is_drawn(loop, one.value, depth=0)
        else f"line {one.node.lineno} makes `{one.name}` of what is drawn at random"
    )
    return Reason(
        f"{draws} until {words}: with no value left for which that holds, it draws for ever",
        f"Before the loop of line {loop.lineno}, check that a value is left that fits{compare}. Or draw from what is "
        "left instead of trying, or bound the number of tries (`for _ in range(100):`, with an `else:`).",
    )


def _counted(test: ast.expr, change: _Change) -> str | None:
    """`k` of `while len(chosen) < k: chosen.add(draw())`."""
    left = test.left if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Lt, ast.NotEq)) else None
    is_len = isinstance(left, ast.Call) and called_name(left) == "len" and change.name in names_read(left)
    added = isinstance(change.value, ast.Call) and called_name(change.value) == "add"
    return short_text(test.comparators[0]) if isinstance(test, ast.Compare) and is_len and added else None


def _last_of(test: ast.expr, change: _Change) -> str | None:
    """`EOS` of `while tokens[-1] != EOS: tokens.append(draw())`."""
    added = isinstance(change.value, ast.Call) and called_name(change.value) == "append"
    if not added or not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.NotEq):
        return None
    is_last = isinstance(test.left, ast.Subscript) and ast.unparse(test.left) == f"{change.name}[-1]"
    return short_text(test.comparators[0]) if is_last else None


def _container(test: ast.expr) -> str | None:
    """`seen` of `item in seen`."""
    compares = [item for item in nodes_of(test) if isinstance(item, ast.Compare)]
    found = [item.comparators[0] for item in compares if isinstance(item.ops[0], (ast.In, ast.NotIn))]
    return short_text(found[0]) if len(found) == 1 else None


def _unchanged(scope: Scope, loop: EndlessLoop, test: ast.expr, leaves_there: bool) -> Reason | None:
    names = names_read(test)
    if not names or yields(body_of(loop)) or _reads_clock(test):
        return None
    read = list_words([f"`{name}`" for name in names[:3]])
    local = all(is_own(scope, name) for name in names) and is_plain(test)
    calls = {called_name(item) for item in body_of(loop) if isinstance(item, ast.Call)} - PURE - _TIME
    if calls and not (local and compares_numbers(test)):
        return None  # one of them may change it
    what = f"`{short_text(test)}`"
    if local and not leaves_there:
        return Reason(
            f"nothing in it sets {read}, and nothing in it leaves the loop, so {what} stays true",
            f"Change {read} in the body of the loop (lines {loop.body[0].lineno} to {loop.body[-1].end_lineno}), or "
            "leave it by `break`.",
            sure=True,
        )
    if calls or local:
        return None
    return Reason(
        f"nothing in it changes what {what} reads: another thread or process has to",
        f"See what should have changed {what} (line {test.lineno}), and whether the process or thread that does so "
        "still runs: let the loop look at that, too (`is_alive()`, `exitcode`), sleep in it, and give up after a time.",
        by_others=True,
    )


def _reads_clock(test: ast.expr) -> bool:
    """`time.time() - began < 5`, which becomes false by itself."""
    return any(isinstance(item, ast.Call) and called_name(item) in _CLOCKS for item in nodes_of(test))


def _skipped(loop: EndlessLoop, changes: Sequence[_Change], line: int) -> Reason | None:
    """A `continue` before all that changes the condition."""
    always = [item for item in changes if item.within is None]
    if not always:
        return None
    first, within = min(item.node.lineno for item in always), {id(item.within) for item in changes}
    for item in loop.body:
        if isinstance(item, ast.If) and item.lineno < first and isinstance(item.body[-1], ast.Continue):
            at = item.body[-1].lineno
            if line <= at and id(item) not in within:
                return _left_out(item, at, min(always, key=lambda one: one.node.lineno))
    return None


def _skipped_inside(loop: EndlessLoop, changes: Sequence[_Change]) -> Reason | None:
    """A `continue` of a loop inside, over batches or rows, before all that counts there."""
    counts = [item for item in changes if isinstance(item.node, ast.AugAssign)
              and ast.unparse(item.node.target) == item.name]  # fmt: skip
    sets = [item for item in changes if item not in counts and item.name in bound_in([item.node])]
    inner = [item for item in body_of(loop) if isinstance(item, (ast.For, ast.AsyncFor))]
    found = [item for item in inner if counts and all(one.node in item.body for one in counts)]
    if not found or sets:
        return None
    first = min(item.node.lineno for item in counts)
    for item in found[0].body:
        if isinstance(item, ast.If) and item.lineno < first and isinstance(item.body[-1], ast.Continue):
            reason = _left_out(item, item.body[-1].lineno, min(counts, key=lambda one: one.node.lineno))
            held = short_text(item.test)
            advice = (
                f"See why `{held}` (line {item.lineno}) holds for each one since then, such as for parameters that are "
                f"nan, which stay so: count how often it does in a row before the `continue` of line "
                f"{item.body[-1].lineno}, and raise an error above a limit."
            )
            return msgspec.structs.replace(reason, advice=advice, of_pause=True)
    return None


def _left_out(test: ast.If, at: int, change: _Change) -> Reason:
    """A counter must be moved on; of anything else, something has to be found that passes."""
    held, first, text = short_text(test.test), change.node.lineno, shortened(change.text, LONGEST)
    comes = f"the `continue` of line {at} comes before `{text}` (line {first})"
    if isinstance(change.node, ast.AugAssign):
        return Reason(
            f"{comes}: where `{held}` (line {test.lineno}) holds, `{change.name}` stays the same for the next pass",
            f"Change `{change.name}` before the `continue` of line {at} as well (`{text}`), or move line {first} above "
            f"line {test.lineno}. A `for` loop cannot forget it.",
        )
    return Reason(
        f"{comes}: while `{held}` (line {test.lineno}) holds in each pass, it does not come nearer to its end",
        f"Count how often `{held}` (line {test.lineno}) holds, and check that something can be found for which it does "
        f"not. Bound the number of tries, and raise or leave the loop when it is reached.",
    )


def _of_equality(test: ast.expr, changes: Sequence[_Change], leaves_there: bool) -> Reason | None:
    """`while token != end`, or `if token == end: break`: met exactly, or never."""
    wanted = ast.Eq if leaves_there else ast.NotEq
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], wanted):
        return None
    left, right = short_text(test.left), short_text(test.comparators[0])
    change = f" (line {changes[0].node.lineno}: `{shortened(changes[0].text, LONGEST)}`)"
    return Reason(
        f"it ends only when `{left}` equals `{right}`, and nothing else limits the number of passes{change}",
        f"Print `{left}` in each pass, and bound the passes: a value that only comes near `{right}`, or goes round, "
        "never equals it.",
    )


def _of_result(test: ast.expr, changes: Sequence[_Change], leaves_there: bool) -> Reason | None:
    """`while not done`, or `if done: break`, where a call gives `done`: an episode that may never be over."""
    asked = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
    if not isinstance(asked, (ast.Name, ast.Attribute)) or len(changes) != 1:
        return None
    change = changes[0]
    if not isinstance(change.node, ast.Assign) or not isinstance(change.value, ast.Call) or change.within is not None:
        return None
    gives = "true" if (asked is not test) != leaves_there else "false"
    return Reason(
        f"it ends only when line {change.node.lineno} (`{shortened(change.text, LONGEST)}`) gives a `{change.name}` "
        f"that is {gives}, and nothing limits the number of passes",
        f"Print `{change.name}` and what decides it in each pass: it may never become {gives} there. Bound the passes "
        f"(`for _ in range(max_steps):` with `break` on `{change.name}`).",
    )


def _of_tolerance(test: ast.expr, changes: Sequence[_Change], leaves_there: bool) -> Reason | None:
    compares = [item for item in nodes_of(test) if isinstance(item, ast.Compare) and len(item.ops) == 1]
    ordered = [item for item in compares if isinstance(item.ops[0], ORDERS)]
    counted = any(isinstance(item.node, ast.AugAssign) for item in changes)
    sized = any(isinstance(item, ast.Call) and called_name(item) == "len" for item in nodes_of(test))
    if not ordered or counted or sized or not _TOLERANCE.search(ast.unparse(test)):
        return None
    last = changes[-1]
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    nan = f"; where `{last.name}` is nan, `{short_text(ordered[0])}` is never true" if negated != leaves_there else ""
    becomes = "true" if leaves_there else "false"
    return Reason(
        f"it ends only when `{short_text(test)}` becomes {becomes} by line {last.node.lineno} "
        f"(`{shortened(last.text, LONGEST)}`), and nothing limits the number of passes{nan}",
        f"Print `{last.name}` in each pass: it may be nan, swing between two values, or stay above what the precision "
        "of its dtype allows. Bound the passes (`for _ in range(max_iter):` with `break`), and report where the bound "
        "was reached.",
    )


def _of_links(loop: EndlessLoop, test: ast.expr, changes: Sequence[_Change], leaves_there: bool) -> Reason | None:
    """`node = parent[node]`."""
    if len(changes) != 1 or changes[0].value is None or not isinstance(changes[0].node, ast.Assign):
        return None
    name, value = short_text(changes[0].node.targets[0]), changes[0].value
    linked = isinstance(value, (ast.Subscript, ast.Attribute)) or (
        isinstance(value, ast.Call) and called_name(value) == "get"
    )
    if not linked or all(ast.unparse(item) != name for item in nodes_of(value) if isinstance(item, ast.expr)):
        return None
    return Reason(
        f"line {changes[0].node.lineno} follows `{changes[0].text}`: where that comes back to a value it had before, "
        f"the loop goes round for ever, {'unless' if leaves_there else 'as long as'} `{short_text(test)}` holds",
        f"Look for a circle in what `{short_text(value)}` reads, from the value that `{name}` has before line "
        f"{loop.lineno}. Keep a set of the values of `{name}` and raise where one comes again.",
    )


def _limited(loop: EndlessLoop, test: ast.expr, changes: Sequence[_Change]) -> Reason | None:
    """All that changes the condition stands below an `if`."""
    within = {id(item.within): item.within for item in changes}
    guard = next(iter(within.values())) if len(within) == 1 else None
    if guard is None or any(item.node in guard.orelse for item in changes):
        return None
    names = {item.name for item in changes}
    if any(len(_changes_by(loop, [name], passed=True)) > len(changes) for name in names):
        return None  # a function that it is passed to may change it
    change = changes[0]
    return Reason(
        f"`{change.name}` changes only at line {change.node.lineno} (`{shortened(change.text, LONGEST)}`), where "
        f"`{short_text(guard.test)}` (line {guard.lineno}) holds: with nothing left for which it does, "
        f"`{short_text(test)}` stays as it is",
        f"Print what `{short_text(guard.test)}` (line {guard.lineno}) reads, and what is left of `{change.name}`. "
        f"Raise or leave the loop of line {loop.lineno} when a pass has changed nothing.",
    )
