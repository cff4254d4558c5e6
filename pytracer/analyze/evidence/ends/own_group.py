"""A signal for the process group of a child that reached the sender itself: the child had no group of its own.

os.killpg(os.getpgid(child.pid), ...) is meant for the child and what it started. Without start_new_session or
process_group the child is in the group of its parent, and so are the parent and whoever started it.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._library_files import is_library_file
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.slicing.makers import makers
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView, RecordedSender
from pytracer.report.job import ExceptionReport, PythonFrame

_POPEN = ("Popen", "create_subprocess_exec", "create_subprocess_shell")
_PROCESS = ("Process", "SpawnProcess", "ForkProcess")
_GROUPED = ("start_new_session", "process_group", "preexec_fn")
_LEAVES = ("setsid", "setpgid", "setpgrp")


class OwnGroup(msgspec.Struct, frozen=True):
    """`owner`: what the program calls the child; `starts`: the line that starts it, by `call`."""

    owner: str
    call: str
    starts: LineWords

    @property
    def behind(self) -> Behind:
        """That line."""
        return Behind.of([], self.starts)

    @property
    def words(self) -> str:
        """`; it was for the process group of `child`, which is the program's own: line 4 starts it without one`."""
        how = "start_new_session" if self.call in _POPEN else "a group of its own"
        return (
            f"; it was for the process group of `{self.owner}`, which is the program's own: {self.starts} starts it "
            f"without {how}"
        )

    @property
    def advice(self) -> str:
        """How the child gets a group."""
        if self.call in _POPEN:
            return (
                f"Pass start_new_session=True to {self.call}() at {self.starts}, so that `{self.owner}` and what it "
                "starts have a group that killpg() can end alone."
            )
        return (
            f"End `{self.owner}` alone, by its kill() or terminate(); or call os.setsid() first of all in what "
            f"{self.starts} starts, so that it and its children have a group that killpg() can end alone."
        )


def group_of_child(view: ProcessView) -> OwnGroup | None:
    """Of the signal that ended a process, where one process alone may have sent it."""
    senders = view.senders
    return own_group(senders[0]) if len({item.sender.snapshot.path for item in senders}) == 1 else None


def own_group(item: RecordedSender) -> OwnGroup | None:
    """None where another group was meant, the program's own was, or the child has one of its own."""
    stack = (PythonFrame(function=frame.function, file=frame.file, line=frame.line) for frame in item.send.stack)
    frames = [frame for frame in stack if not is_library_file(frame.file)]
    if not frames or not _reached_itself(item):
        return None
    at = failing_line(item.sender.snapshot, ExceptionReport(), frames)
    spot = at.slice.spot(0) if at is not None else None
    target = _target(at) if at is not None else None
    if at is None or spot is None or target is None:
        return None
    owner = _owner(at, target, spot)
    if owner is None or not isinstance(owner[0].value, (ast.Name, ast.Attribute)):
        return None
    found = makers(at.files, at.slice, owner[0].value, owner[1])
    calls = [_started(made) for made in found]
    first = calls[0] if calls else None
    if first is None or not all(calls) or (called_name(first) in _PROCESS and _changes_group(at)):
        return None
    starts = at.place(found[0].spot, first.lineno)
    return OwnGroup(ast.unparse(owner[0].value), called_name(first) or "", starts)


def _reached_itself(item: RecordedSender) -> bool:
    own = item.sender.snapshot
    return item.send.to_group and item.send.target in (own.pid, own.process_group)


def _changes_group(at: FailingLine) -> bool:
    """Whether the program gives a process a group: a child does so a moment after it has started."""
    calls = (item for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.Call))
    return any(called_name(item) in _LEAVES for item in calls)


def _target(at: FailingLine) -> ast.expr | None:
    """`os.killpg(group, ...)`, `os.kill(-group, ...)`."""
    statement = at.statement
    for call in nodes_of(statement) if statement is not None else ():
        if not isinstance(call, ast.Call) or not call.args:
            continue
        first = call.args[0]
        if called_name(call) == "killpg":
            return first
        if called_name(call) == "kill" and isinstance(first, ast.UnaryOp) and isinstance(first.op, ast.USub):
            return first.operand
    return None


def _owner(at: FailingLine, target: ast.expr, spot: Spot) -> tuple[ast.Attribute, Spot] | None:
    """`child.pid` of `os.getpgid(child.pid)`."""
    made = at.slice.made(target, spot, calls=False)
    if not isinstance(made.node, ast.Call) or called_name(made.node) != "getpgid" or len(made.node.args) != 1:
        return None
    asked = made.node.args[0]
    if not isinstance(asked, ast.Attribute):
        again = at.slice.made(asked, made.spot, calls=False)
        asked, made = (again.node, again) if isinstance(again.node, ast.Attribute) else (asked, made)
    return (asked, made.spot) if isinstance(asked, ast.Attribute) and asked.attr == "pid" else None


def _started(made: Made) -> ast.Call | None:
    """The call that starts a child in the group of its parent."""
    call = made.node.value if isinstance(made.node, ast.Await) else made.node
    if not isinstance(call, ast.Call) or called_name(call) not in (*_POPEN, *_PROCESS):
        return None
    given = [item for item in call.keywords if item.arg in _GROUPED and not _is_off(item.value)]
    return None if given or any(item.arg is None for item in call.keywords) else call


def _is_off(node: ast.expr) -> bool:
    return is_none(node) or (isinstance(node, ast.Constant) and node.value is False)
