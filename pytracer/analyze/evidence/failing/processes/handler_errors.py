"""An exception that a signal handler raised: the line that it came in the middle of, and an alarm that was still on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import last_name, names_of
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, is_method, own_nodes, parameters, scope_of
from pytracer.analyze.naming import LineWords

_TIMERS = {"alarm": 0, "setitimer": 1}  # where the seconds stand
_OF_TIMERS = ("SIGALRM", "SIGVTALRM", "SIGPROF")
_DEEPEST = 4
_SENDS = ("kill", "raise_signal", "pthread_kill", "killpg")
_TAKES = 2  # the signal and the frame


class _Handler(msgspec.Struct, frozen=True):
    """`signal` by its name, the line that sets the handler, and the line that ran when it came."""

    signal: str
    place: LineWords
    ran: LineWords


def raised_by_handler(at: FailingLine) -> str | None:
    """That line is not at fault: what to do about the alarm, or in the handler."""
    found, subject = _handler(at), raised_by_handler_subject(at)
    if found is None or subject is None:
        return None
    if found.signal not in _OF_TIMERS:
        return (
            f"{capital(subject)}: that line is only what ran then. Find out who sent {found.signal}; let the handler "
            "set a flag that the loop asks for, since what it raises comes anywhere."
        )
    left = _left_on(at)
    if left is not None:
        return (
            f"{capital(subject)}. Turn it off when what it limits is done, in a `finally` behind {left[0]}: "
            f"signal.{_off(left[1])}."
        )
    return (
        f"{capital(subject)}: see what that time was to limit, and that the timer is off (signal.alarm(0), in a "
        "`finally`) before the `try` that expects the exception is left."
    )


def raised_by_handler_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _handler(at)
    if found is None:
        return None
    raised = f"the handler of {found.signal} ({found.place}) raised it in the middle of {found.ran}"
    left = _left_on(at) if found.signal in _OF_TIMERS else None
    if left is None:
        return raised
    place, call = left
    return f"{raised}, as no line turns off the timer of {place} (`{source(call)}`)"


def _handler(at: FailingLine) -> _Handler | None:
    """The first function of the stack that handles a signal, and that the line below it does not call itself."""
    if not at.own or not isinstance(at.statement, ast.Raise):  # of another line that failed, its own reason counts
        return None
    for depth in range(min(len(at.frames) - 1, _DEEPEST)):
        spot, outer = at.slice.spot(depth), at.slice.spot(depth + 1)
        name = (at.frames[depth].function or "").rpartition(".")[2]
        if spot is None or outer is None or len([*_plain(spot)]) != _TAKES or _calls(outer, name, *_SENDS):
            continue
        for file, tree in at.files.items():
            for call in nodes_of(tree):
                if not isinstance(call, ast.Call) or called_name(call) != "signal" or len(call.args) != _TAKES:
                    continue
                signal = last_name(call.args[0]) or ""
                if last_name(call.args[1]) == name and signal.startswith("SIG") and _is_of(at, call, tree, spot):
                    return _Handler(signal, at.in_file(file, call.lineno), at.place(outer, outer.line))
    return None


def _plain(spot: Spot) -> Iterator[str]:
    yield from (name for name in parameters(spot.scope) if name not in ("self", "cls"))


def _is_of(at: FailingLine, call: ast.Call, tree: ast.Module, spot: Spot) -> bool:
    """Whether a call of signal() is given that function, and not one of the same name in another class or file."""
    given, name = call.args[1], getattr(spot.scope, "name", None)
    alike = [item for one in at.files.values() for item in nodes_of(one) if getattr(item, "name", None) == name]
    if len([item for item in alike if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]) == 1:
        return True
    if tree is not spot.tree:
        return False
    if isinstance(given, ast.Name):
        return not is_method(tree, spot.scope)
    own = isinstance(given, ast.Attribute) and ast.unparse(given.value) == "self"
    return own and class_around(tree, scope_of(tree, call.lineno)) is class_around(tree, spot.scope)


def _calls(spot: Spot, *names: str) -> bool:
    """Whether a call of that line may be of a function of such a name."""
    nodes = (item for item in nodes_of(spot.scope) if isinstance(item, ast.Call))
    return any(item.lineno <= spot.line <= (item.end_lineno or 0) and called_name(item) in names for item in nodes)


def _left_on(at: FailingLine) -> tuple[LineWords, ast.Call] | None:
    """The only call that sets a timer, where no other turns it off, and what it limits is done.

    That is something its function calls behind it, and the function has returned: what else the timer may limit, such
    as each step of a loop that sets it anew, is not known.
    """
    begins, ends = _timers(at)
    if len(begins) != 1 or ends:
        return None
    place, tree, call = begins[0]
    scope = scope_of(tree, call.lineno)
    running = (at.slice.spot(depth) for depth in range(len(at.frames)))
    later = (item for item in own_nodes(scope) if isinstance(item, ast.Call) and item.lineno > call.lineno)
    if any(item is not None and item.scope is scope for item in running) or next(later, None) is None:
        return None
    given = call.args[_TIMERS[called_name(call) or ""]]
    passed = any(name in names_of(given) for name in parameters(scope))
    return (place, call) if not passed or not _is_given_none(at, getattr(scope, "name", "")) else None


def _is_given_none(at: FailingLine, function: str) -> bool:
    """Whether a call of a function passes 0, which may turn a timer off."""
    calls = (item for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.Call))
    named = (item for item in calls if called_name(item) == function)
    values = (value for item in named for value in (*item.args, *(part.value for part in item.keywords)))
    return any(isinstance(value, ast.Constant) and not value.value for value in values)


def _timers(at: FailingLine) -> tuple[list[tuple[LineWords, ast.Module, ast.Call]], list[ast.Call]]:
    """The calls that set a timer, and those that turn it off, or may."""
    begins, ends = list[tuple[LineWords, ast.Module, ast.Call]](), list[ast.Call]()
    for file, tree in at.files.items():
        for call in nodes_of(tree):
            place = _TIMERS.get(called_name(call) or "") if isinstance(call, ast.Call) else None
            if place is None or not isinstance(call, ast.Call) or len(call.args) <= place:
                continue
            value = call.args[place]
            if isinstance(value, ast.Constant) and not value.value:
                ends.append(call)
            else:
                begins.append((at.in_file(file, call.lineno), tree, call))
    return begins, ends


def _off(call: ast.Call) -> str:
    return "alarm(0)" if called_name(call) == "alarm" else f"setitimer({source(call.args[0])}, 0)"
