"""A key that a dict of all ranks' parts lacks: each rank took its part of a list that has another order on each.

`files[rank::world_size]` is all of the files together only where every rank has them in one order. Of an unsorted
glob(), listdir() or set, some are taken twice and some by none, and each rank misses another one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.exceptions.done_by_all import came_further
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.slicing.key_orders import container_of
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.slicing.unordered_lists import UnorderedList, unordered_list
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS, loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import reads_rank
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, own_nodes, scope_of
from pytracer.analyze.naming import LineWords, name_words
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence, ExceptionReport, NearNamesReport

_GATHERS = frozenset({"all_gather_object", "gather_object", "all_gather", "gather", "gather_for_metrics"})
_COUNT = Pattern(r"^\w+ of (\d+)$")
_LONGEST = 60
_FEW = 4


class UnequalLists(msgspec.Struct, frozen=True):
    """`table`: the dict; `items`: the list, and `listed`: what lists it; `part`: what each rank takes of it.

    `twice`: what two ranks took, both, and which ranks; `lacks`: the key of each rank.
    """

    table: str
    items: str
    listed: UnorderedList
    listed_at: LineWords
    part: str
    part_at: LineWords
    counts: tuple[int, int] | None
    twice: tuple[tuple[str, ...], str] | None
    lacks: tuple[tuple[int, str], ...]

    @property
    def subject(self) -> str:
        """For the headline, behind the message."""
        some = f"has {self.counts[0]} of the {self.counts[1]}" if self.counts is not None else "lacks some"
        sure = "" if self.twice is not None else "probably "
        return (
            f"`{self.table}` {some} in `{self.items}`, since `{self.part}` ({self.part_at}) takes each rank's part of "
            f"a list that {sure}has another order on each ({self.listed_at}: `{self._text}`)"
        )

    @property
    def advice(self) -> str:
        """One order for all."""
        ordered = "Sort it there (`sorted(...)`)"
        if self.listed.kind == "results":
            ordered = "Take the results in the order in which they were asked for"
        all_there = ": no file need be missing" if self.listed.kind == "folder" else ""
        may = "" if self.twice is not None else "may "
        return (
            f"`{self.items}` {self.listed.reason}, so that the parts of {self.part_at} {may}overlap, and leave out the "
            f"rest{all_there}. {ordered}, at {self.listed_at}, or take the list of rank 0 on all "
            f"(broadcast_object_list()). To check, print `{self.items}` on each rank before {self.part_at}."
        )

    @property
    def evidence(self) -> Evidence | None:
        """The keys that each rank lacks, and what two of them took."""
        words = [f"rank {rank} found no {key}" for rank, key in self.lacks]
        if self.twice is not None:
            keys, ranks = self.twice
            words.append(f"{ranks} each took {list_words([*keys], _FEW)} as their part")
        text = "; ".join(words)
        return Evidence("variables", text, text=text, ranks=[rank for rank, _ in self.lacks]) if words else None

    @property
    def behind(self) -> Behind:
        """The list, and its part."""
        return Behind.of([], self.listed_at, self.part_at)

    @property
    def _text(self) -> str:
        return shortened(source(self.listed.node), _LONGEST)


def unequal_lists(job: JobView, view: ProcessView) -> UnequalLists | None:
    """None where all ranks lack the same key, have lists of other lengths, or took parts that do not overlap."""
    try:
        return _unequal_lists(job, view)
    except Exception:  # a program may be written in any way; what is said otherwise is enough
        return None


def _unequal_lists(job: JobView, view: ProcessView) -> UnequalLists | None:
    if view.process.role != "rank" or view.exception is None or (view.exception.type or "") != "KeyError":
        return None
    others = [item for item in job.views if item.process.role == "rank" and item.process.rank != view.process.rank]
    alike = [item for item in others if _failed_there(item, view)]
    keys = {item.exception.message for item in alike if item.exception is not None}
    if not others or keys == {view.exception.message} or any(came_further(job, view, item) for item in others):
        return None
    at = failing_line(view.process.snapshot, view.exception, view.exception_stack)
    node = at.only(ast.Subscript) if at is not None and at.own else None
    if at is None or node is None:
        return None
    ranks = [view, *alike]
    for items, spot in _gone_through(at):
        part = _part(at, items, spot)
        listed = unordered_list(at.slice, at.files, items, spot) if part is not None else None
        if part is not None and listed is not None:
            return _of_part(at, ranks, source(node.value), source(items), part, listed, world=len(others) + 1)
    return None


def _of_part(
    at: FailingLine,
    ranks: Sequence[ProcessView],
    table: str,
    items: str,
    part: tuple[str, ast.expr],
    listed: UnorderedList,
    *,
    world: int,
) -> UnequalLists | None:
    """`ranks`: those that failed there, this one first."""
    file, taken = part
    exceptions = [item.exception for item in ranks if item.exception is not None]
    lengths = [_count(item, items) for item in exceptions]
    held, many = _count(exceptions[0], table), lengths[0]
    if len({*lengths} - {None}) > 1 or (held and many and held >= many):
        return None  # other files on each rank
    own = _kept(at.files[file], taken)
    twice = _twice(ranks, own) if own is not None else None
    if twice is None and (own == table or (held and many and held * world < many + world)):
        return None  # the rank's own part, which nothing was added to
    if twice is None and own is not None and len(ranks) == world and all(_names(item, own) for item in ranks):
        return None  # no rank took what another one did
    lacks = sorted((item.process.rank or 0, (item.exception.message or "") if item.exception else "") for item in ranks)
    return UnequalLists(
        table,
        items,
        listed,
        at.in_file(listed.spot.file, listed.line),
        source(taken),
        at.in_file(file, taken.lineno),
        (held, many) if held and many else None,
        twice,
        tuple(lacks[:_FEW]) if len(lacks) > 1 else (),
    )


def _failed_there(other: ProcessView, view: ProcessView) -> bool:
    theirs = other.exception
    return theirs is not None and theirs.type == "KeyError" and other.python_frame == view.python_frame


def _gone_through(at: FailingLine) -> Iterator[tuple[ast.expr, Spot]]:
    """The variables that loops around the line go through, also those of the callers."""
    for depth in range(len(at.frames)):
        spot = at.slice.spot(depth)
        if spot is None:
            continue
        heads = [item.iter for item in reversed(loops_around(spot.tree, spot.line)) if isinstance(item, ast.For)]
        for item in own_nodes(spot.scope):
            if isinstance(item, COMPREHENSIONS) and item.lineno <= spot.line <= (item.end_lineno or 0):
                heads += [part.iter for part in item.generators]
        for head in heads:
            given = head.args if isinstance(head, ast.Call) and called_name(head) == "zip" else [head]
            yield from ((found, spot) for item in given if (found := container_of(item)) is not None)


def _part(at: FailingLine, items: ast.expr, spot: Spot) -> tuple[str, ast.expr] | None:
    """`files[rank::world]` of the same variable, where what each rank made of it is gathered behind it."""
    text, owner = ast.unparse(items), class_around(spot.tree, spot.scope)
    for file, tree in at.files.items():
        for item in nodes_of(tree):
            if not isinstance(item, ast.Subscript) or not _is_of_rank(item, text):
                continue
            scope = scope_of(tree, item.lineno)
            is_same = scope is spot.scope or (text.startswith("self.") and class_around(tree, scope) is owner)
            if is_same and _gathers([scope, spot.scope]):
                return file, item
    return None


def _is_of_rank(node: ast.Subscript, text: str) -> bool:
    """`files[rank::world]`, `files[rank * n:(rank + 1) * n]`, `array_split(files, world)[rank]`."""
    if isinstance(node.slice, ast.Slice):
        bounds = [item for item in (node.slice.lower, node.slice.upper) if item is not None]
        return ast.unparse(node.value) == text and any(map(reads_rank, bounds))
    given = node.value.args[:1] if isinstance(node.value, ast.Call) else []
    return bool(given) and ast.unparse(given[0]) == text and reads_rank(node.slice)


def _gathers(scopes: list[Scope]) -> bool:
    calls = (item for scope in scopes for item in own_nodes(scope) if isinstance(item, ast.Call))
    return any(called_name(item) in _GATHERS for item in calls)


def _count(exception: ExceptionReport, name: str) -> int | None:
    """Of a container in the failing frame."""
    value = next((item.value for item in exception.variables or [] if item.name == name), None)
    found = _COUNT.search(value or "")
    return int(found[1]) if found is not None else None


def _kept(tree: ast.Module, part: ast.expr) -> str | None:
    """The dict that the loop over the part fills, one key for each of its items."""
    loops = (item for item in nodes_of(tree) if isinstance(item, ast.For))
    for loop in (item for item in loops if any(inner is part for inner in nodes_of(item.iter))):
        for item in loop.body:
            target = item.targets[0] if isinstance(item, ast.Assign) else None
            if isinstance(target, ast.Subscript):
                return ast.unparse(target.value)
    return None


def _twice(views: Sequence[ProcessView], name: str) -> tuple[tuple[str, ...], str] | None:
    """The keys that two ranks both had in that dict, where all of its keys are recorded."""
    held = [(view, names) for view in views if (names := _names(view, name)) is not None]
    for number, (view, names) in enumerate(held):
        common = [(other, {*names} & {*theirs}) for other, theirs in held[number + 1 :]]
        shared = [(other, keys) for other, keys in common if keys]
        if shared:
            keys = set.intersection(*(keys for _, keys in shared)) or shared[0][1]
            return tuple(sorted(keys)), name_words([view, *(other for other, own in shared if keys <= own)])
    return None


def _names(view: ProcessView, name: str) -> list[str] | None:
    near: list[NearNamesReport] = (view.exception.near or []) if view.exception is not None else []
    found = next((item for item in near if item.of == name), None)
    names = (found.names or []) if found is not None else []
    return names if found is not None and names and len(names) == found.count else None
