"""A rank that makes a process group, and waits in there for ranks that wait for it in a collective.

new_group() waits for all ranks of the job, members or not, unless use_local_synchronization is given
(torch 2.13, distributed_c10d.py, _new_group_with_tag: a barrier on the store). The recording notes a call that began;
ranks that began fewer had not called it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.collectives.absent_ranks import Absence
from pytracer.analyze.collectives.description import span_words
from pytracer.analyze.collectives.rank_branches import rank_branch_of
from pytracer.analyze.deaths.attribution import views_of
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.naming import line_in, place_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Group
from pytracer.report.job import PythonFrame

_C10D = "/torch/distributed/distributed_c10d.py"
_LOADER = "/torch/utils/data/dataloader.py"
_HANDS_ON = Pattern(
    r"/torch/distributed/(?:distributed_c10d|c10d_logger)\.py$|/pytracer/record/|/(?:contextlib|functools)\.py$"
)
_INSIDE = frozenset({"_new_group_with_tag", "_new_process_group_helper"})
_MAKE = ("new_group", "new_subgroups", "new_subgroups_by_enumeration", "init_device_mesh")


class GroupAlone(msgspec.Struct, frozen=True):
    """`words`: what the absent rank was in, behind its number, for the headline. `advice`: what to change."""

    words: str
    advice: str


def group_alone(job: JobView, item: Absence) -> GroupAlone | None:
    """Of one absent rank for which all others of the job wait, and that began to make a group that they did not.

    Args:
        job: All ranks.
        item: The ranks that wait, and the one that did not come.
    """
    group = item.wait.group
    if len(item.views) != 1 or item.fate != "late" or item.goes_on or group is None or not item.ranks:
        return None
    view, others = item.views[0], views_of(job, item.wait.waiters)
    if len(others) + 1 != view.process.world_size or len(others) != len(item.wait.waiters):
        return None  # another one may be on its way to new_group()
    made, at = _begun(view), _line_of_new_group(view)
    name = _called(view, at) if at is not None else None
    inner = _library_caller(view) if name is None else None
    name = _MAKE[0] if inner is not None else name
    if at is None or name is None or not made or any(len(_begun(other)) >= len(made) for other in others):
        return None
    last, count = made[-1], _made_at(made, at)
    if last.begun_ns is None or not _is_at(last, at) or any(_made_at(_begun(item), at) >= count for item in others):
        return None
    who, place = span_words(item.wait.waiters), place_words(at)
    by = f" of {_maker(inner)}" if inner is not None else ""
    words = f"was in {name}(){by} at {place}, which {who} had not called"
    if inner is not None:
        begin = f"{capital(_maker(inner))} calls {name}(), which all ranks must do, in the same order"
        why = _why(view, others[0], at, who, local=False)
        return GroupAlone(words, f"{begin}{_met(made, others[0], view)}: {why}{_without(inner)}")
    local = name == _MAKE[0] and last.ranks is not None and not {*last.ranks} & {*item.wait.waiters}
    return GroupAlone(words, f"All ranks must call {name}(), members or not: {_why(view, others[0], at, who, local)}")


def _why(view: ProcessView, other: ProcessView, at: PythonFrame, who: str, local: bool) -> str:
    """The branch on the rank around its line or one of its callers'; else what to look at."""
    pair = (view.process.rank or 0, other.process.rank or 0)
    own = [frame for frame in view.python_stack or () if not is_library_file(frame.file)]
    branch = next((found for frame in own if (found := rank_branch_of(view, frame, pair)) is not None), None)
    if branch is None:
        return f"see why {who} did not come to {place_words(at)}."
    out = f"move it before line {branch.line}"
    if branch.around:
        out = f"take it out of that {'function' if branch.decorates else 'branch'}"
    members = "; or pass use_local_synchronization=True there, as it has no other member" if local else ""
    return f"{capital(branch.words)}: {out}{members}."


def _maker(inner: PythonFrame) -> str:
    """`a DataLoader's iterator (torch/utils/data/dataloader.py:633)`: what of a library makes the group."""
    place = line_in(inner.file, inner.line, None)
    if (inner.file or "").endswith(_LOADER):
        return f"a DataLoader's iterator ({place})"
    return f"{inner.function} ({place})"


def _without(inner: PythonFrame) -> str:
    """What makes no group."""
    if not (inner.file or "").endswith(_LOADER):
        return ""
    return " Only one over a DataPipe does: for what one rank alone reads, use a Dataset or an IterableDataset."


def _met(made: Sequence[Group], other: ProcessView, view: ProcessView) -> str:
    """` (that of line 126 on rank 0 met that of line 112 on rank 1 before)`: the first two of different lines."""
    for own, theirs in zip(made, _begun(other), strict=False):
        here, there = own.made_at, theirs.made_at
        if here is not None and there is not None and (here.file, here.line) != (there.file, there.line):
            ranks = [item.process.rank for item in (view, other)]
            return (
                f" (that of {line_in(here.file, here.line, there.file)} on rank {ranks[0]} met that of "
                f"{line_in(there.file, there.line, here.file)} on rank {ranks[1]} before)"
            )
    return ""


def _library_caller(view: ProcessView) -> PythonFrame | None:
    """The function of a library that made the group, where the program's line called that."""
    inside = False
    for frame in view.python_stack or ():
        if not is_library_file(frame.file):
            return None
        inside = inside or ((frame.file or "").endswith(_C10D) and frame.function in _INSIDE)
        if inside and not _HANDS_ON.search(frame.file or ""):
            return frame
    return None


def _line_of_new_group(view: ProcessView) -> PythonFrame | None:
    """The program's line that the functions of c10d which make a group were called from, where the rank ended there."""
    inside = False
    for frame in view.python_stack or ():
        if not is_library_file(frame.file):
            return frame if inside else None
        inside = inside or ((frame.file or "").endswith(_C10D) and frame.function in _INSIDE)
    return None


def _begun(view: ProcessView) -> list[Group]:
    """The groups that a process made or began to make, in order."""
    return [group for group in view.process.snapshot.groups if group.index is not None]


def _made_at(groups: Sequence[Group], at: PythonFrame) -> int:
    return sum(_is_at(group, at) for group in groups)


def _is_at(group: Group, at: PythonFrame) -> bool:
    return group.made_at is not None and (group.made_at.file, group.made_at.line) == (at.file, at.line)


def _called(view: ProcessView, at: PythonFrame) -> str | None:
    """`new_group`: which function that makes groups the line calls by its name."""
    tree = syntax_tree(view.process.snapshot, at)
    names = {called_name(item) for item in calls_on(tree, at.line)} if tree is not None and at.line is not None else ()
    return next((name for name in _MAKE if name in names), None)
