"""group-mismatch: ranks made different process groups, or the same ones in another order.

What: the lists of ranks that were passed to new_group() (or that a DeviceMesh made) differ between ranks, at the same
position in the order of creation. Members and non-members are compared alike.

Why it happens: new_group() must be called by all ranks of the job, members or not, in the same order; code calls it
only on the members, or orders its groups by something that depends on the rank.

What to do: make all groups on all ranks, in the same order; or pass use_local_synchronization=True and let only the
members call it.

How it can be wrong: a rank that died or hung before it made its next group has fewer of them: then only the groups that
it did make are compared. Groups made with use_local_synchronization are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import permutations
from typing import NamedTuple

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital, count_words
from pytracer.analyze.collectives.description import span_words
from pytracer.analyze.collectives.group_branches import group_branch_words, own_list_words
from pytracer.analyze.collectives.matching import VOTERS
from pytracer.analyze.collectives.rounds import rank_order_words
from pytracer.analyze.deaths.attribution import longest_group_wait_ns, longest_wait_ns, symptom_evidence, views_of
from pytracer.analyze.naming import place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.rules.account import account
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView
from pytracer.decode.types.journal import Members
from pytracer.decode.types.snapshot import Group, GroupList, PythonFrame
from pytracer.report.job import Evidence

_HASHED = Pattern(r"[0-9a-f]{16,}(:|$)")  # c10d names groups so that only their members make
_LISTED = 4


class _Group(NamedTuple):
    ranks: tuple[int, ...]
    description: str | None
    place: PythonFrame | None  # the line that began to make it


_Made = list[_Group]  # in order of creation


class _Sides(msgspec.Struct, frozen=True):
    """What each rank made, and by the members of the group at `position` who made it, the most frequent ones first."""

    made: dict[int, _Made]
    position: int
    sides: list[tuple[tuple[int, ...], list[int]]]

    @property
    def tie(self) -> bool:
        """Whether there is no majority to decide which ranks are wrong."""
        voters, most = sum(len(ranks) for _, ranks in self.sides), len(self.sides[0][1])
        return voters < VOTERS or most * 2 <= voters

    @property
    def odd(self) -> list[int]:
        """All ranks that did not make what most of them made."""
        return sorted(rank for _, ranks in self.sides[1:] for rank in ranks)


_SAME_ORDER = "Call new_group() on all ranks, members or not, in the same order."


class GroupMismatch:
    """Fires for the first group on which ranks differ."""

    id = "group-mismatch"
    needs = ("GROUP",)

    def check(self, job: JobView) -> tuple[Judgement[_Sides], ...] | NoFinding:
        """At most one judgement: what follows the first difference is not comparable."""
        made = _made(job)
        if len(made) < 2 or not any(made.values()):
            return not_found("no process groups were made beside the default one")
        kinds = list({id(items): items for items in made.values()}.values())  # thousands of ranks share one list
        longest = max(len(items) for items in kinds)
        for position in range(longest):
            if len({items[position].ranks for items in kinds if position < len(items)}) > 1:
                sides = _sides_at(made, position)
                shown = {ranks[0] for _, ranks in sides[:_LISTED]}
                return (_judge(job, _Sides({**made, **_made(job, shown)}, position, sides)),)
            if any(position >= len(items) for items in kinds):
                break
        return not_found(f"all ranks made the same groups in the same order ({count_words(longest, 'group')})")

    def describe(self, job: JobView, judgement: Judgement[_Sides]) -> Description:
        """See Rule."""
        found = judgement.found
        return Description(
            f"{_summary(found)}.",
            [*(_order(found.made[ranks[0]], ranks) for _, ranks in found.sides[:_LISTED]), *symptom_evidence(job)],
            _advice(job, found),
            ["a third rank: which of the two is wrong is undecidable"] if found.tie else [],
        )


def _advice(job: JobView, found: _Sides) -> str:
    """With the loop around the line of `new_group` whose order depends on the rank."""
    ranks = found.sides[0][1]
    place, views = found.made[ranks[0]][found.position].place, views_of(job, ranks[:1])
    frame = python_frame(place) if place is not None else None
    words = rank_order_words(views[0].process.snapshot, frame) if views else None
    if words is not None:
        return f"{_SAME_ORDER} {words}: go through the same list on all."
    said = _branch(job, found)
    if said is None and views and frame is not None and _are_own(found, place):
        tree = syntax_tree(views[0].process.snapshot, frame)
        said = own_list_words(tree, frame) if tree is not None else None
    return f"{_SAME_ORDER} {said}" if said is not None else _SAME_ORDER


def _are_own(found: _Sides, place: PythonFrame | None) -> bool:
    """Whether each rank is in all groups that it makes at a line."""
    shown = [makers[0] for _, makers in found.sides[:_LISTED]]
    return all(rank in item.ranks for rank in shown for item in found.made[rank] if item.place == place)


def _branch(job: JobView, found: _Sides) -> str | None:
    """The branch around the line that made a group which other ranks left out."""
    for (members, makers), (_, others) in permutations(found.sides[:_LISTED], 2):
        made, theirs = found.made[makers[0]], found.made[others[0]]
        place, other = made[found.position].place, theirs[found.position].place
        views = views_of(job, makers[:1])
        if place is None or other is None or not views or members not in _left_out(theirs, made):
            continue
        frame, elsewhere = python_frame(place), python_frame(other)
        tree = syntax_tree(views[0].process.snapshot, frame)
        if tree is not None:
            return group_branch_words(tree, frame, elsewhere, makers, others)
    return None


def _sides_at(made: dict[int, _Made], position: int) -> list[tuple[tuple[int, ...], list[int]]]:
    sides: dict[tuple[int, ...], list[int]] = {}
    for rank, items in made.items():
        if position < len(items):
            sides.setdefault(items[position].ranks, []).append(rank)
    return sorted(sides.items(), key=lambda item: -len(item[1]))


def _judge(job: JobView, found: _Sides) -> Judgement[_Sides]:
    odd, tie = found.odd, found.tie
    views = views_of(job, odd if not tie else sorted(rank for _, ranks in found.sides for rank in ranks))
    judgement = Judgement("collective-mismatch", "certain", tuple(views), found, undecided=tie)
    if not job.deaths:
        return replace(judgement, accompanies=True)
    did = {} if tie else dict.fromkeys(odd, "made other process groups than the others, or in another order")
    waited_ns = max(longest_wait_ns(job), longest_group_wait_ns(job))
    return account(job, judgement, "the ranks made different process groups", did, waited_ns=waited_ns)


def _made(job: JobView, described: Collection[int] = ()) -> dict[int, _Made]:
    """What each rank made after the default group, without groups that only their members make.

    Thousands of ranks share what they all made. `described`: only of these ranks, with their own descriptions.
    """
    local = {
        _ascending(group.ranks)
        for process in job.job.ranks
        for group in process.snapshot.own_groups
        if group.ranks is not None and _HASHED.match(group.name or "")
    }
    known: dict[tuple[int, tuple[int | None, ...]], _Made] = {}
    made = {}
    for process in job.job.ranks:
        if described and process.rank not in described:
            continue
        groups = process.snapshot.groups
        same = groups.made if isinstance(groups, GroupList) and not described else groups
        default = tuple(item.index for item in process.snapshot.own_groups if item.description == "default_pg")
        key = (id(same), default)
        if key not in known:
            known[key] = _of(same, default, local)
        if process.rank is not None:
            made[process.rank] = known[key]
    return made


def _of(groups: Sequence[Group], default: Collection[int | None], local: set[tuple[int, ...]]) -> _Made:
    found = []
    for group in groups:
        if group.index is None or group.ranks is None or group.index in default:
            continue
        ranks = _ascending(group.ranks)
        if ranks not in local:
            found.append(_Group(ranks, group.description, group.made_at))
    return found


def _ascending(ranks: tuple[int, ...]) -> tuple[int, ...]:
    return ranks.ascending if isinstance(ranks, Members) else tuple(sorted(ranks))


def _summary(found: _Sides) -> str:
    if found.tie:
        return f"Ranks made different process groups: as group {found.position + 1}, " + "; ".join(
            f"{span_words(ranks)} made {list(members)}{_at(found, ranks)}" for members, ranks in found.sides[:_LISTED]
        )
    (common, many), (other, _) = found.sides[0], found.sides[1]
    made, odd = found.made, found.odd
    return (
        f"{capital(span_words(odd))} {_how(made[odd[0]], made[many[0]])} {span_words(many)}: as group "
        f"{found.position + 1}, {list(other)}{_at(found, odd)} where {span_words(many)} made {list(common)}"
        f"{_at(found, many)}"
    )


def _at(found: _Sides, ranks: list[int]) -> str:
    """` at train.py:12 in setup`: where the first of the ranks made the group on which they differ; or nothing."""
    place = found.made[ranks[0]][found.position].place
    return f" at {place_words(python_frame(place))}" if place is not None else ""


def _how(odd: _Made, common: _Made) -> str:
    """What an outvoted rank did differently."""
    mine, theirs = Counter(group.ranks for group in odd), Counter(group.ranks for group in common)
    if mine == theirs:
        return "made process groups in another order than"
    left_out = _left_out(odd, common)
    if left_out:
        return f"left out the process group {list(left_out[0])} in comparison with"
    return "made process groups in another order, or other ones, than"


def _left_out(odd: _Made, common: _Made) -> list[tuple[int, ...]]:
    """The groups by which what some ranks made is less than what others did; none where it has others, too."""
    mine, theirs = Counter(group.ranks for group in odd), Counter(group.ranks for group in common)
    return [*(theirs - mine)] if not mine - theirs else []


def _order(items: _Made, ranks: list[int]) -> Evidence:
    """`ranks 0 and 2 made, in this order: [0, 1] (tp), [1, 2] (pp)`."""
    shown = [f"{list(members)}{f' ({about})' if about and about != 'undefined' else ''}" for members, about, _ in items]
    more = f", and {len(shown) - _LISTED} more" if len(shown) > _LISTED else ""
    words = f"{span_words(ranks)} made, in this order: {', '.join(shown[:_LISTED])}{more}"
    return Evidence("process-group", words, ranks=ranks, count=len(items))
