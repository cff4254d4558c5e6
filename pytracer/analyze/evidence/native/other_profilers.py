"""Other threads that were in a profiler of torch's when one was stopped: a process has one trace for all of them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import own_nodes, qualified_name, scope_of, spans
from pytracer.analyze.naming import place_words
from pytracer.analyze.parts import innermost_of_program, python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import PythonFrame as Frame
from pytracer.report.job import PythonFrame

_PROFILER = Pattern(r"/torch/(profiler|autograd)/profiler\.py$")
_MAKES = ("profile", "_KinetoProfile")
_LONGEST = 50


class OtherProfilers(msgspec.Struct, frozen=True):
    """`others`: lines at which other threads were in one. `begins`: the line that begins that of the crashed thread.

    `function`: that has this line.
    """

    others: tuple[tuple[int, PythonFrame], ...]
    begins: tuple[int, str] | None
    function: str | None

    @property
    def words(self) -> str:
        """For the headline."""
        if not self.others:
            return ""
        tid, frame = self.others[0]
        more = f", as were {len(self.others) - 1} more" if len(self.others) > 1 else ""
        return f"; thread {tid} was in a profiler of its own at {place_words(frame)}{more}"

    @property
    def advice(self) -> str:
        """Behind that of such crashes."""
        if self.begins is None:
            return ""
        line, text = self.begins
        return f" Line {line} (`{text}`) begins one in each thread that runs {self.function}."


def other_profilers(view: ProcessView) -> OtherProfilers | None:
    """Of a thread that crashed below stop(); None where that is the main thread, and no other thread was in one."""
    crash, own = view.crash, innermost_of_program(view.python_stack or ())
    if crash is None or own is None or not any(_PROFILER.search(item.file or "") for item in view.python_stack or ()):
        return None
    stacks: dict[int | None, Sequence[Frame]] = {**dict(crash.python_threads)}
    others = []
    for thread in crash.threads:
        frames = stacks.get(thread.pthread, ()) if thread.tid != crash.tid else ()
        line = next((python_frame(item) for item in frames if not is_library_file(item.file)), None)
        if line is not None and any(_PROFILER.search(item.file) for item in frames):
            others.append((thread.tid, line))
    begins, function = _begins(view, own) if crash.tid != view.process.snapshot.pid else (None, None)
    return OtherProfilers(tuple(others), begins, function) if others or begins is not None else None


def _begins(view: ProcessView, own: PythonFrame) -> tuple[tuple[int, str] | None, str | None]:
    """`prof.start()` above `prof.stop()`, or the `with` around the line."""
    tree = syntax_tree(view.process.snapshot, own)
    if tree is None or own.line is None:
        return None, None
    scope = scope_of(tree, own.line)
    calls = [item for item in own_nodes(scope) if isinstance(item, ast.Call)]
    owners = [owner for item in calls if spans(item, own.line) and (owner := _owner(item, "stop")) is not None]
    if len(owners) == 1:
        starts = [item for item in calls if item.lineno < own.line and _owner(item, "start") == owners[0]]
        found = [(item.lineno, shortened(ast.unparse(item), _LONGEST)) for item in starts]
    else:
        around = [item for item in own_nodes(scope) if isinstance(item, ast.With) and spans(item, own.line)]
        found = [
            (item.lineno, shortened(f"with {ast.unparse(part)}", _LONGEST))
            for item in around
            for part in item.items
            if isinstance(part.context_expr, ast.Call) and called_name(part.context_expr) in _MAKES
        ]
    return (found[0], qualified_name(tree, scope)) if len(found) == 1 else (None, None)


def _owner(call: ast.Call, name: str) -> str | None:
    """`prof` of `prof.stop()`."""
    function = call.func
    return ast.unparse(function.value) if isinstance(function, ast.Attribute) and function.attr == name else None
