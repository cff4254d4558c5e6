"""A signal handler that takes a lock which its own thread holds: Python ran it in the middle of the locked section.

CPython runs the handlers of signals in the main thread, between two of its instructions, wherever that is.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import PythonFrame as SnapshotFrame

_SETS = ("signal", "add_signal_handler")


class Interrupting(msgspec.Struct, frozen=True):
    """`name` handles `signal`, which `place` sets. `within`: the line of the locked section that it interrupted."""

    name: str
    signal: str
    place: LineWords
    within: int | None

    @property
    def words(self) -> str:
        """After "already": `: there, at line 22, SIGALRM came, and its handler Metrics.on_timer takes it again`."""
        return (
            f": there, at line {self.within}, {self.signal} came, and its handler {self.name} ({self.place}) takes it "
            "again"
        )

    def advice(self, lock: str) -> str:
        """No lock in a handler; an RLock lets it into a half-done change."""
        return (
            f"Take no lock in {self.name}: Python runs a handler in the main thread between any two of its steps, in a "
            f"section that `{lock}` protects, too. Let it only set a flag, and do the work in the program's loop where "
            f"that sees the flag; or do it in a thread of its own, which may wait for `{lock}`. An RLock would let the "
            "handler in while the section is half done."
        )


def handler_between(view: ProcessView, frames: Sequence[SnapshotFrame], place: int) -> Interrupting | None:
    """The outermost handler between the line that waits and the one at `place`, which holds the lock."""
    files = program_files(view.process.snapshot, [python_frame(frames[place])])
    handlers = {
        name: (last_name(call.args[0]) or "", line_in(file, call.lineno, frames[0].file))
        for file, tree in files.items()
        for call in nodes_of(tree)
        if isinstance(call, ast.Call) and called_name(call) in _SETS and len(call.args) > 1
        if (name := last_name(call.args[1])) is not None
    }
    for number in range(place - 1, -1, -1):
        frame, outer = frames[number], frames[number + 1]
        name = (frame.function or "").rpartition(".")[2]
        tree = syntax_tree(view.process.snapshot, python_frame(outer))
        if name not in handlers or tree is None or not handlers[name][0].startswith("SIG"):
            continue
        if any(called_name(item) == name for item in calls_on(tree, outer.line or 0)):
            continue  # the program's own call
        return Interrupting(frame.function or name, *handlers[name], outer.line)
    return None
