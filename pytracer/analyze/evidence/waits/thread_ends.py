"""What should have ended a thread that a program waits for at its end: the flag of its loop, or cancel() of a Timer."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.leaving import obstacles
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import function_named, scope_of
from pytracer.analyze.evidence.waits.standing_threads import ThreadReason
from pytracer.analyze.evidence.waits.unread_at_exit import scripts_of
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import end_of
from pytracer.analyze.evidence.waits.watched_flags import setter_of
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import PythonFrame

_TIMER = Pattern(r"/threading\.py$")
_LONGEST = 60


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
    setter = setter_of(files, loops[-1].test, at) if loops else None  # type: ignore[union-attr]
    if setter is None:
        return None
    sets = setter.words(at.file)
    calls = _calls_of(files, setter.function.name)
    words = f"only {sets} in {setter.name} ends its loop (line {loops[-1].lineno})"
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
    if in_finally:
        return None
    why = f", {left.words}" if left is not None else ""
    text = shortened(ast.unparse(call), _LONGEST)
    return ThreadReason(
        f"{words}, which {line} (`{text}`) alone calls{why}",
        f"Put `{text}` ({line}) into a `finally` around what comes before it: a `return` or an error there leaves it "
        "out, and the thread goes on. Or start the thread with daemon=True if it may be cut off.",
        (*places, (file, call.lineno)),
    )


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
    given = call.args[1] if len(call.args) > 1 else keyword_value(call, "function")
    name = last_name(given) if given is not None else None
    function = function_named(tree, name) if name is not None else None
    scope = scope_of(tree, call.lineno)
    again = function is not None and any(
        isinstance(item, ast.Call) and (called_name(item) == getattr(scope, "name", None) or item is call)
        for item in nodes_of(function)
    )
    line, text = line_in(file, call.lineno, None), shortened(ast.unparse(call), _LONGEST)
    more = f", whose {name}() starts the next one each time" if again else ""
    return ThreadReason(
        f"it is the Timer of {line} (`{text}`){more}",
        "Keep the Timer and cancel() it when the work is done, in a `finally`; or set its `daemon` to True before "
        "start(): then the end of the program does not wait for it.",
        ((file, call.lineno),),
    )
