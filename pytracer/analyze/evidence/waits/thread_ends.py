"""What should have ended a thread that a program waits for at its end, by its loop; or cancel() of a Timer.

The loop asks a flag, or an Event (`while not stop.wait(5)`), or takes from a queue until a mark. What sets or puts that
may stand in a function that nothing calls, or whose only call was left out.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, calls_on
from pytracer.analyze.evidence.syntax.endless import only_exit
from pytracer.analyze.evidence.syntax.leaving import obstacles
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.passing import names_of_object
from pytracer.analyze.evidence.syntax.scopes import (
    class_around,
    classes_below,
    function_named,
    own_nodes,
    scope_of,
    spans,
    statement_at,
)
from pytracer.analyze.evidence.syntax.unbounded import leaves
from pytracer.analyze.evidence.waits.queue_marks import Taking, may_be_mark, puts_into, taking
from pytracer.analyze.evidence.waits.standing_threads import ThreadReason
from pytracer.analyze.evidence.waits.unread_at_exit import scripts_of
from pytracer.analyze.evidence.waits.wait_advice import LET_THREAD_END
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import end_of
from pytracer.analyze.evidence.waits.watched_flags import Function, Setter, is_passed_on, setter_of
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import PythonFrame

_TIMER = Pattern(r"/threading\.py$")
_LONGEST, _SOON = 60, 5  # characters, seconds


def thread_end(job: JobView, view: ProcessView, wait: ProcessWait) -> ThreadReason | None:
    """Of a program that had come to its end."""
    if wait.kind != "thread-at-exit":
        return None
    if wait.at is not None:
        return _flag(view, wait.at)
    return _timer(view, list(scripts_of(job, view)))


def let_thread_end(job: JobView, view: ProcessView, wait: ProcessWait) -> str:
    """What to do about it, of a program that an exception has ended before."""
    way = view.exception_stack_of_program
    found = _flag(view, wait.at, way) if wait.at is not None else thread_end(job, view, wait)
    return found.advice if found is not None else LET_THREAD_END


def _flag(view: ProcessView, at: PythonFrame, way: Sequence[PythonFrame] = ()) -> ThreadReason | None:
    """The line that sets what the thread's loop asks, and why the call that leads there was left out.

    `way`: of an exception that left these functions.
    """
    files = program_files(view.process.snapshot, [at])
    tree = files.get(at.file or "")
    loop = _loop_at(tree, at.line) if tree is not None and at.line is not None else None
    setter = _ender(files, tree, loop, at) if tree is not None and loop is not None else None
    if setter is None or loop is None or _is_called_otherwise(files, setter):
        return None
    sets = setter.words(at.file)
    calls = _calls_of(files, setter.function.name)
    words = f"only {sets} in {setter.name} ends its loop (line {loop.lineno})"
    places = ((setter.file, setter.node.lineno),)
    if not calls:
        return ThreadReason(
            f"{words}, and no line calls {setter.function.name}()",
            f"Call {setter.function.name}() where the work of the thread is done, best in a `finally`; or start the "
            "thread with daemon=True if it may be cut off.",
            places,
        )
    if len(calls) > 1:
        return None
    file, other, call = calls[0]
    line = line_in(file, call.lineno, at.file)
    in_finally = any(isinstance(item, ast.Try) and any(part is call for one in item.finalbody for part in nodes_of(one))
                     for item in nodes_of(other))  # fmt: skip
    if in_finally or not _is_of(files, setter, call):
        return None
    text = shortened(ast.unparse(call), _LONGEST)
    passed = _left_by(way, file, other, call)
    if passed is not None:
        return ThreadReason(
            f"{words}, which {line} (`{text}`) alone calls: the exception left that function before",
            f"The exception left line {passed.line}, so that {line} (`{text}`), which "
            "alone ends that thread, was not reached: put it into a `finally` around what comes before it. Or start "
            "the thread with daemon=True if it may be cut off.",
            (*places, (file, call.lineno)),
        )
    left = next((item for item in obstacles(other, call.lineno) if not item.caught), None)
    if left is None:
        return None
    return ThreadReason(
        f"{words}, which {line} (`{text}`) alone calls, {left.words}",
        f"Put `{text}` ({line}) into a `finally` around what comes before it: a `return` or an error there leaves it "
        "out, and the thread goes on. Or start the thread with daemon=True if it may be cut off.",
        (*places, (file, call.lineno)),
        sure=tree is not None and ((setter.wakes and _asks(tree, at.line or 0)) or _asks_soon(tree, at.line or 0)),
    )


def _left_by(way: Sequence[PythonFrame], file: str, tree: ast.Module, call: ast.Call) -> PythonFrame | None:
    """The frame of an exception that left the function of a call above it."""
    scope = scope_of(tree, call.lineno)
    inside = (item for item in way if item.file == file and item.line is not None and item.line < call.lineno)
    return next((item for item in inside if scope_of(tree, item.line or 0) is scope), None)


def _loop_at(tree: ast.Module, line: int) -> ast.While | ast.For | None:
    """The innermost loop of a line's function that has it, in its head, too."""
    loops = (item for item in own_nodes(scope_of(tree, line)) if isinstance(item, (ast.While, ast.For)))
    return max((item for item in loops if spans(item, line)), default=None,
               key=lambda item: item.lineno)  # fmt: skip


def _ender(
    files: Mapping[str, ast.Module], tree: ast.Module, loop: ast.While | ast.For, at: PythonFrame
) -> Setter | None:
    """What ends such a loop, where one line does."""
    taken = taking(tree, at.line or 0)
    if taken is not None:
        return _putter(tree, taken, at)
    if not isinstance(loop, ast.While):
        return None
    leaving, only = leaves(loop), only_exit(loop)
    if leaving and only is None:
        return None
    event = _event(only.test if only is not None else loop.test, sets=only is not None)
    if event is not None:
        return _event_setter(files, event, at)
    return setter_of(files, loop.test, at) if not leaving else None


def _putter(tree: ast.Module, taken: Taking, at: PythonFrame) -> Setter | None:
    """The only line that puts the mark at which it stops."""
    name, mark = last_name(taken.queue), (taken.mark or "").rpartition(".")[2]
    puts = puts_into(tree, names_of_object(tree, name)) if name is not None and mark else []
    marks = [item for item in puts if item.args and ast.unparse(item.args[0]).rpartition(".")[2] == mark]
    if any(may_be_mark(tree, item, mark) for item in puts if item not in marks):
        return None
    return _setter(at.file or "", tree, marks[0], taken.queue, at) if len(marks) == 1 else None


def _event(test: ast.expr, *, sets: bool) -> ast.expr | None:
    """`stop` of `not stop.is_set()`, on which a loop goes on, and of `stop.wait(5)`, on which it is left (`sets`)."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, sets = test.operand, not sets
    match test:
        case ast.Call(func=ast.Attribute(value=thing, attr="is_set" | "isSet" | "wait")) if sets:
            return thing
    return None


def _event_setter(files: Mapping[str, ast.Module], event: ast.expr, at: PythonFrame) -> Setter | None:
    """The only line of the program that sets an Event of that name."""
    name = last_name(event)
    found = [
        (file, tree, item)
        for file, tree in files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "set"
        if last_name(item.func.value) in (names_of_object(tree, name) if name is not None else ())
    ]
    return _setter(*found[0], event, at) if len(found) == 1 else None


def _setter(file: str, tree: ast.Module, call: ast.Call, thing: ast.expr, at: PythonFrame) -> Setter | None:
    """None of a line outside of a function, or of the function that waits."""
    statement, function = statement_at(tree, call.lineno), scope_of(tree, call.lineno)
    if statement is None or not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    waits = file == at.file and function is scope_of(tree, at.line or 0)
    return Setter(ast.unparse(thing), file, tree, statement, function, wakes=True) if not waits else None


def _is_called_otherwise(files: Mapping[str, ast.Module], setter: Setter) -> bool:
    """Whether the function may run without a call of that name, or a call of that name may be of another one."""
    name = setter.function.name
    alike = [item for tree in files.values() for item in nodes_of(tree)
             if isinstance(item, Function) and item.name == name]  # fmt: skip
    return name.startswith("__") or len(alike) > 1 or is_passed_on(files, name, ())


def _is_of(files: Mapping[str, ast.Module], setter: Setter, call: ast.Call) -> bool:
    """Whether a call is of that function: of an object that only its class makes, or of a function of the module."""
    owner = class_around(setter.tree, setter.function)
    if owner is None or not isinstance(call.func, ast.Attribute):
        return owner is None and isinstance(call.func, ast.Name)
    name = last_name(call.func.value)
    made = [value for tree in files.values() for item in nodes_of(tree) for target, value in set_by(item)
            if last_name(target) == name]  # fmt: skip
    kinds = {owner.name, *(item.name for item in classes_below([*files.values()], owner))}
    return bool(made) and all(isinstance(item, ast.Call) and called_name(item) in kinds for item in made)


def _asks(tree: ast.Module, line: int) -> bool:
    """Whether the thread stood in the wait itself: work of a pass may only take long before it asks again."""
    return taking(tree, line) is not None or any(called_name(item) in ("wait", "get") for item in calls_on(tree, line))


def _asks_soon(tree: ast.Module, line: int) -> bool:
    """Whether the thread only sleeps for a moment: it would have seen the flag."""
    return any(
        called_name(item) in ("sleep", "wait")
        and any(isinstance(part, ast.Constant) and isinstance(part.value, (int, float)) and part.value <= _SOON
                for part in (*item.args, *(one.value for one in item.keywords)))
        for item in calls_on(tree, line)
    )  # fmt: skip


def _calls_of(files: Mapping[str, ast.Module], name: str) -> list[tuple[str, ast.Module, ast.Call]]:
    return [
        (file, tree, item)
        for file, tree in files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) == name
    ]


def _timer(view: ProcessView, scripts: Sequence[PythonFrame]) -> ThreadReason | None:
    """The only line that makes a Timer, where a thread of one waits."""
    end = end_of(view)
    stacks = end.python_threads if end is not None else ()
    runs = any(
        (item.function or "") == "Timer.run" and _TIMER.search(item.file) is not None
        for _, frames in stacks
        for item in frames
    )
    files = program_files(view.process.snapshot, scripts) if runs else {}
    calls = _calls_of(files, "Timer")
    if len(calls) != 1:
        return None
    file, tree, call = calls[0]
    given = argument_at(call, 1, "function")
    name = last_name(given) if given is not None else None
    function = function_named(tree, name) if name is not None else None
    scope = scope_of(tree, call.lineno)
    starts = [
        item
        for item in (nodes_of(function) if function is not None else ())
        if isinstance(item, ast.Call) and (called_name(item) == getattr(scope, "name", None) or item is call)
    ]
    again = bool(starts)
    always = function is not None and any(
        not isinstance(part, (ast.If, ast.Try)) and any(item in starts for item in nodes_of(part))
        for part in function.body
    )  # fmt: skip
    always &= function is not None and not any(isinstance(item, ast.Return) for item in own_nodes(function))
    line, text = line_in(file, call.lineno, None), shortened(ast.unparse(call), _LONGEST)
    more = f", whose {name}() starts the next one{' each time' if always else ''}" if again else ""
    first = (
        "" if again else "It ends by itself after its interval and its work: if it is meant to run, wait longer. Else "
    )
    keep = "Keep the Timer" if again else "keep the Timer"
    return ThreadReason(
        f"it is the Timer of {line} (`{text}`){more}",
        f"{first}{keep} and cancel() it when the work is done, in a `finally`; or set its `daemon` to True before "
        "start(): then the end of the program does not wait for it.",
        ((file, call.lineno),),
        sure=always,
    )
