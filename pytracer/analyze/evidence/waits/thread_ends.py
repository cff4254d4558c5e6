"""What should have ended a thread that a program waits for at its end: the flag of its loop, or cancel() of a Timer."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, calls_on
from pytracer.analyze.evidence.syntax.leaving import obstacles
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, classes_below, function_named, own_nodes, scope_of
from pytracer.analyze.evidence.syntax.unbounded import leaves
from pytracer.analyze.evidence.waits.standing_threads import ThreadReason
from pytracer.analyze.evidence.waits.unread_at_exit import scripts_of
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


def _flag(view: ProcessView, at: PythonFrame) -> ThreadReason | None:
    """The line that sets what the thread's loop asks, and why the call that leads there was left out."""
    files = program_files(view.process.snapshot, [at])
    tree = files.get(at.file or "")
    loops = loops_around(tree, at.line, (ast.While,)) if tree is not None and at.line is not None else []
    loop = loops[-1] if loops else None
    setter = setter_of(files, loop.test, at) if isinstance(loop, ast.While) else None
    if setter is None or not isinstance(loop, ast.While) or leaves(loop) or _is_called_otherwise(files, setter):
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
    left = next((item for item in obstacles(other, call.lineno) if not item.caught), None)
    in_finally = any(isinstance(item, ast.Try) and any(part is call for one in item.finalbody for part in nodes_of(one))
                     for item in nodes_of(other))  # fmt: skip
    if in_finally or left is None or not _is_of(files, setter, call):
        return None
    text = shortened(ast.unparse(call), _LONGEST)
    return ThreadReason(
        f"{words}, which {line} (`{text}`) alone calls, {left.words}",
        f"Put `{text}` ({line}) into a `finally` around what comes before it: a `return` or an error there leaves it "
        "out, and the thread goes on. Or start the thread with daemon=True if it may be cut off.",
        (*places, (file, call.lineno)),
        sure=tree is not None and _asks_soon(tree, at.line or 0),
    )


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
