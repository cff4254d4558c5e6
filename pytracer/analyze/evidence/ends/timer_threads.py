"""A `threading.Timer` that ended its own process: the line of the program that made it."""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.own_code.own_libraries import allocating_frames
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import is_parameter, scope_of
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_RUN, _FILE = "Timer.run", "/threading.py"
_KILLS = ("os.kill", "os.killpg", "signal.raise_signal", "signal.pthread_kill")
_LONGEST = 80


class TimerThread(msgspec.Struct, frozen=True):
    """`place`: `job.py:14 in start_deadline`. `set_by`: the only call of its function, if that has the time."""

    place: str
    text: str
    set_by: str | None

    @property
    def advice(self) -> str:
        """Raise its time, or take it back."""
        by = f", called at {self.set_by}" if self.set_by is not None else ""
        return (
            f"The time of the timer made at {self.place} (`{self.text}`{by}) had passed: raise it, do less per run, or "
            "cancel() it when the work is done."
        )


def timer_thread(view: ProcessView, frame: PythonFrame) -> TimerThread | None:
    """The only timer of the program's files that calls os.kill() itself, as the frame does, which is a timer's own."""
    if frame.function != _RUN or not (frame.file or "").endswith(_FILE):
        return None
    files = program_files(view.process.snapshot, allocating_frames(view))
    found = [
        (file, tree, item)
        for file, tree in files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) == "Timer" and _kills(item)
    ]
    if len(found) != 1:
        return None
    file, tree, call = found[0]
    scope = scope_of(tree, call.lineno)
    function = getattr(scope, "name", "<module>")
    time = call.args[0] if call.args else None
    given = isinstance(time, ast.Name) and is_parameter(scope, time.id)
    set_by = _only_call(files, function) if given else None
    text = shortened(ast.unparse(call), _LONGEST)
    return TimerThread(f"{short_file(file)}:{call.lineno} in {function}", text, set_by)


def _kills(call: ast.Call) -> bool:
    named = [item.value for item in call.keywords if item.arg == "function"]
    target = call.args[1] if len(call.args) > 1 else next(iter(named), None)
    return target is not None and ast.unparse(target) in _KILLS


def _only_call(files: dict[str, ast.Module], function: str) -> str | None:
    calls = [
        (file, item)
        for file, tree in files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) == function
    ]
    if len(calls) != 1:
        return None
    file, call = calls[0]
    return f"{short_file(file)}:{call.lineno}: `{shortened(ast.unparse(call), _LONGEST)}`"
