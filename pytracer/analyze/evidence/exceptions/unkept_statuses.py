"""An exception about a child without an exit status: the kernel had kept none, or another line had taken it.

With SIGCHLD ignored, Process.exitcode stays None and is_alive() True for children that have ended: mp.spawn takes them
for failed ones, ends the others, and fails to compare None with a number. os.waitpid() raises ChildProcessError.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._text import list_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.deaths.raising_parents import lost_children
from pytracer.analyze.evidence.ends.ignored_children import LosingLine, losing_lines
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import LineWords, name_words
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import records_values
from pytracer.report.job import Evidence

_ACTION = "SIGCHLD action"
_JOINS = ("/torch/multiprocessing/spawn.py", "join")
_SPAWN = "torch.multiprocessing.spawn"
_STATUS = "exitcode"
_WAITS = ("wait", "waitpid", "wait3", "wait4", "waitid")
_SHOWN = 2
_WITH_ACTION = (1, 13)  # the recorder notes SIGCHLD where it is ignored


class UnkeptStatus(msgspec.Struct, frozen=True):
    """Why there is no exit status, as the explanation of an exception. `line`: the one that sees to that, if known."""

    subject: str
    advice: str
    line: LineWords | None
    evidence: Evidence | None

    @property
    def behind(self) -> Behind:
        """That line."""
        return Behind.of([], self.line)


class _Children(msgspec.Struct, frozen=True):
    """Those that ended with status 0, those that the kernel had removed, and whether others may have `failed`."""

    well: Sequence[ProcessView]
    gone: Sequence[ProcessView]
    failed: bool


def unkept_status(job: JobView, view: ProcessView) -> UnkeptStatus | None:
    """None where the exception is about something else, or nothing shows where the status went."""
    at = failing_line(view.process.snapshot, view.exception, view.exception_stack)
    asked = _asked(at) if at is not None else None
    children = children_of(job, view)
    if at is None or asked is None or not _may_be_none(at, asked, children):
        return None
    gone = lost_children(view, children)
    collected = not {item.pid for item in view.process.snapshot.waits}.isdisjoint(
        item.process.snapshot.pid for item in children
    )
    lines = losing_lines(at.files)
    ignoring, taking = ([item for item in lines if item.ignores == kind] for kind in (True, False))
    sure = at.values.get(_ACTION) == "ignored" or bool(gone)
    kept = collected and (not sure or asked.endswith(_STATUS))  # that of a child, perhaps of the one that is meant
    if not kept and (sure or (ignoring and not _would_note(at))):
        return _of_ignored(at, asked, ignoring, _children(view, children, gone), sure=sure)
    return _of_taken(at, asked, taking) if collected and len(taking) == 1 else None


def _children(view: ProcessView, children: Sequence[ProcessView], gone: Sequence[ProcessView]) -> _Children:
    well = [item for item in children if item.left_well]
    ended = [item for item in children if any(sent.sender.snapshot is view.process.snapshot for sent in item.senders)]
    return _Children(well, gone, len(well) + len(ended) < len(children))


def _may_be_none(at: FailingLine, asked: str, children: Sequence[ProcessView]) -> bool:
    """Whether a status that the program reads can be that of a child, and no other value of it was recorded."""
    return not asked.endswith(_STATUS) or (bool(children) and at.values.get(asked, "None") == "None")


def _would_note(at: FailingLine) -> bool:
    """Whether the recorder notes an ignored SIGCHLD: without such a note it was not ignored then."""
    return at.snapshot.version >= _WITH_ACTION and records_values(at.snapshot)


def _asked(at: FailingLine) -> str | None:
    """Who asked in vain: `mp.spawn`, `worker.exitcode`, or `waitpid`."""
    call, inner = at.only(ast.Call), at.stack[0]
    is_none = at.kind == "TypeError" and "'NoneType'" in at.message
    if is_none and (inner.file or "").endswith(_JOINS[0]) and (inner.function or "").endswith(_JOINS[1]):
        joins = call is None or called_name(call) == "join"
        return source(call.func) if call is not None and not joins else _SPAWN
    if at.kind == "ChildProcessError" and at.own and call is not None and called_name(call) in _WAITS:
        return _WAITS[1]
    decides = isinstance(at.statement, (ast.Raise, ast.Assert)) and at.own
    tests = [item.test for item, around in deciding_ifs(at.tree, at.line) if around][:1] if decides else []
    asked = [*tests, at.statement] if decides else [at.node] if is_none and at.own else []
    for part in asked:
        for item in nodes_of(part) if part is not None else ():
            if isinstance(item, ast.Attribute) and item.attr == _STATUS:
                return source(item)
    return None


def _of_ignored(
    at: FailingLine, asked: str, lines: Sequence[LosingLine], children: _Children, *, sure: bool
) -> UnkeptStatus:
    place = at.in_file(lines[0].file, lines[0].line) if len(lines) == 1 else None
    where = f" ({place})" if place is not None else ""
    ignores = f"SIGCHLD is {'' if sure else 'probably '}ignored{where}"
    well = children.well if asked != _WAITS[1] else ()
    subject = f"{_none(asked)}, as {ignores} and the kernel keeps none then{_ended_words(well)}"
    default = "signal.signal(signal.SIGCHLD, signal.SIG_DFL)"
    if place is not None:
        what = (
            f"Take out {place}, which sets SIGCHLD to SIG_IGN, and collect the children that it was meant for by their "
            "own wait(), poll() or os.waitpid(pid, os.WNOHANG)"
        )
    else:
        what = "Find what ignores SIGCHLD: the program, a library, or whoever started it (a process inherits that)"
    spawn = at.kind == "TypeError" and not asked.endswith(_STATUS)
    took = f" {asked} takes a process without a status for a failed one, and ends the others" if spawn else ""
    none = "" if not spawn else "." if children.failed else ": none of them had failed."
    return UnkeptStatus(
        subject,
        f"{what}; or call `{default}` before line {at.line}.{took}{none}",
        place,
        _gone_evidence(children.gone) if children.gone else None,
    )


def _of_taken(at: FailingLine, asked: str, lines: Sequence[LosingLine]) -> UnkeptStatus:
    place = at.in_file(lines[0].file, lines[0].line)
    text = source(ast.parse(lines[0].text, mode="eval").body)
    return UnkeptStatus(
        f"{_none(asked)} probably because `{text}` at {place} waits for any child, and had taken the status",
        f"Let {place} wait for its own children only: os.waitpid(pid, os.WNOHANG) with their numbers. `{text}` takes "
        "the status of whichever child has ended, also of one that multiprocessing waits for.",
        place,
        None,
    )


def _none(asked: str) -> str:
    if asked == _WAITS[1]:
        return "the exit status of a child was lost"
    if asked.endswith(_STATUS):
        return f"`{asked}` is None"
    return f"the exit status of a process of {asked}() is None"


def _ended_words(well: Sequence[ProcessView]) -> str:
    if not well:
        return ""
    names = name_words(well) if len(well) == 1 else list_words([name_words([item]) for item in well], _SHOWN)
    return f"; {names} had ended with status 0"


def _gone_evidence(gone: Sequence[ProcessView]) -> Evidence:
    pids = [item.process.snapshot.pid for item in gone]
    return Evidence(
        "lost-status",
        f"{name_words(gone[:1])} (pid {pids[0]}) was gone when it was sent a signal, though its parent had not waited "
        "for it: the kernel had removed it, as it does where SIGCHLD is ignored",
        pid=pids[0],
        rank=gone[0].process.rank,
        signal="SIGCHLD",
    )
