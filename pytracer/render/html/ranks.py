"""Ranks over time as a figure: a lane for each rank and group, equal ranks of a large job folded into one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytracer._text import count_words, span_words, time_words
from pytracer.render.frames import place_words
from pytracer.render.html.figure import Figure, Item, Lane, packed
from pytracer.render.processes import Row, names_words, status_words, why_words
from pytracer.report import job as r

FOLD_ABOVE = 16  # ranks; more are folded
MOST_LANES = 64
_COLLECTIVE_ROWS = 3
_OPEN = ("scheduled", "started", "queued")
_LEGEND = (
    ("completed", "completed"),
    ("open", "open at the end"),
    ("failed", "failed"),
    ("queue", "called, not started"),
    ("step", "step"),
    ("death", "death"),
)
_Key = tuple[str, int]  # description, or name, of a group, and its size


@dataclass(frozen=True)
class _Fold:
    """Processes that are drawn as one."""

    processes: tuple[r.ProcessReport, ...]

    @property
    def first(self) -> r.ProcessReport:
        return self.processes[0]

    @property
    def ranks(self) -> list[int]:
        return [item.rank for item in self.processes if item.rank is not None]


class _Groups:
    """Process groups by name. Those of one kind, such as all tensor-parallel ones, share a lane of folded ranks."""

    def __init__(self, report: r.Report) -> None:
        groups = (report.collectives.groups if report.collectives else None) or []
        self._by_name = {(item.name or "", frozenset(item.ranks or ())): item for item in groups}
        self._known: dict[str, list[r.Group]] = {}
        for item in groups:
            self._known.setdefault(item.name or "", []).append(item)

    def key(self, name: str | None, rank: int | None, *, folded: bool) -> _Key:
        found = [item for item in self._known.get(name or "", []) if rank is None or rank in (item.ranks or [])]
        about = found[0].description if found and found[0].description not in (None, "", "undefined") else None
        size = len(found[0].ranks or []) if found else 0
        if folded and about:
            return about, size
        shown = f"{name} ({about})" if about and about != name else name or "?"
        return shown, size


def ranks_figure(report: r.Report) -> Figure | None:
    """The figure; None if nothing was recorded over time."""
    shown = [item for item in report.processes or [] if _has_lane(item)]
    if not any(item.timeline for item in shown):
        return None
    folds = _folds(shown)
    groups = _Groups(report)
    waits = (report.collectives.waits if report.collectives else None) or []
    end = _figure_end(shown)
    blamed = report.verdict.rank if report.verdict else None
    several = len({item.attempt for item in shown}) > 1
    lanes = [lane for fold in folds for lane in _lanes(fold, groups, waits, end, several, blamed)]
    items = [item for lane in lanes[:MOST_LANES] for item in lane.items]
    if not items:
        return None
    low, high = min(0, *(item.begin for item in items)), max(end, *(item.end for item in items))
    margin = max((high - low) // 100, 1000)
    return Figure(
        name="ranks",
        title=f"{'Ranks' if any(item.role == 'rank' for item in shown) else 'Processes'} over time",
        unit="ns",
        origin=0,
        low=low,
        high=high + margin,
        first=_first_window(items, low, high),
        lanes=tuple(lanes[:MOST_LANES]),
        legend=_LEGEND,
        left_out=_left_out(shown, len(lanes) - MOST_LANES),
    )


def wait_sentences(report: r.Report) -> list[str]:
    """Who waits for whom, a sentence each, then the cycles."""
    collectives = report.collectives or r.Collectives()
    running = {
        item.rank for item in report.processes or [] if item.status is not None and item.status.kind == "running"
    }
    lines = []
    for wait in collectives.waits or []:
        since = f", since {time_words(wait.since)}" if wait.since is not None else ""
        tags = f"; it names tag {wait.tags[0]}, the other side tag {wait.tags[-1]}" if wait.tags else ""
        waiters = span_words(wait.ranks or [])
        alone = len(wait.ranks or []) == 1
        verb = ("waits" if alone else "wait") if running & set(wait.ranks or ()) else "waited"
        what = f"{wait.op} #{wait.sequence_nr}{_of_group(wait.group)}"
        lines.append(f"{_capital(waiters)} {verb} for {span_words(wait.targets or [])} in {what}{since}{tags}.")
    for cycle in collectives.cycles or []:
        lines.append(f"In a cycle: {' → '.join(f'rank {rank}' for rank in [*cycle, cycle[0]])}.")
    return lines


def _of_group(name: str | None) -> str:
    return f" of group {name}" if name is not None else ""


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _figure_end(shown: Sequence[r.ProcessReport]) -> int:
    """The last moment; behind it some room for what was open when a process was last heard of."""
    end = max((_end(item) for item in shown), default=0)
    if all(item.ended is not None for item in shown):
        return end
    times = [call.scheduled for item in shown for call in (item.timeline or r.Timeline()).collectives or []]
    first = min((time for time in times if time is not None), default=end)
    return end + max((end - first) // 8, 1_000_000)


def _has_lane(item: r.ProcessReport) -> bool:
    return item.timeline is not None or item.role == "rank" or item.primary is True


def _end(item: r.ProcessReport) -> int:
    timeline = item.timeline or r.Timeline()
    times = [call.completed or call.started or call.scheduled for call in timeline.collectives or []]
    times += [mark.time for mark in timeline.steps or []]
    return max([item.ended or 0, item.started or 0, *(time for time in times if time is not None)])


def _folds(shown: Sequence[r.ProcessReport]) -> list[_Fold]:
    """In the order of attempts and ranks; of a large job the culprits first, and equal ranks together."""
    ordered = sorted(shown, key=lambda item: (item.attempt or 0, item.rank if item.rank is not None else 1 << 30))
    if len(ordered) <= FOLD_ABOVE:
        return [_Fold((item,)) for item in ordered]
    found: dict[object, list[r.ProcessReport]] = {}
    for item in ordered:
        found.setdefault(_alike(item), []).append(item)
    folds = [_Fold(tuple(items)) for items in found.values()]
    return sorted(folds, key=lambda fold: (fold.first.attempt or 0, not fold.first.primary, len(fold.processes)))


def _alike(item: r.ProcessReport) -> object:
    """What ranks in one lane have in common: how they ended, and the last call of each group."""
    last: dict[str | None, tuple[object, ...]] = {}
    for call in (item.timeline or r.Timeline()).collectives or []:
        last[call.group if call.peer is None else None] = (call.op, call.sequence_nr, call.state)
    calls = sorted(str(call) for call in last.values())
    return item.attempt, item.role, status_words(item), item.primary, item.why_kind, tuple(calls)


def _lanes(
    fold: _Fold, groups: _Groups, waits: Sequence[r.Wait], end: int, several_attempts: bool, blamed: int | None
) -> Iterator[Lane]:
    """A lane for the process, and one for each group, unless there is only one."""
    folded = len(fold.processes) > 1
    by_group = _calls(fold, groups, folded, end)
    name = span_words(fold.ranks) if folded and fold.ranks else names_words(fold.processes)
    if several_attempts:
        name += f", attempt {fold.first.attempt}"
    kind = "primary" if _is_blamed(fold.processes, blamed) else ""
    note = _note(fold, waits)
    life = [_life(fold, end), *_steps(fold), *_deaths(fold)]
    if len(by_group) <= 1:
        calls = next(iter(by_group.values()), [])
        yield Lane(name, note, kind, (*life, *packed(calls, _COLLECTIVE_ROWS)))
        return
    yield Lane(name, note, kind, tuple(life))
    for (group, size), calls in sorted(by_group.items(), key=lambda item: (-item[0][1], item[0][0])):
        of = f" of {count_words(size, 'rank')}" if size else ""
        yield Lane(f"group {group}", of.strip(), "group", packed(calls, _COLLECTIVE_ROWS))


def _note(fold: _Fold, waits: Sequence[r.Wait]) -> str:
    """How it ended, when, why, and for whom it waits."""
    ends = [item.ended for item in fold.processes if item.ended is not None]
    parts = [status_words(fold.first) + (f" at {time_words(min(ends))}" if ends else "")]
    why = why_words(fold.first)
    if why:
        parts.append(why)
    ranks = set(fold.ranks)
    for wait in waits:
        if ranks & set(wait.ranks or ()):
            verb = "waits" if status_words(fold.first) == "running" else "waited"
            parts.append(f"{verb} for {span_words(wait.targets or [])} in {wait.op} #{wait.sequence_nr}")
            break
    return "; ".join(parts)


def _life(fold: _Fold, end: int) -> Item:
    started = min((item.started or 0 for item in fold.processes), default=0)
    ends = [item.ended for item in fold.processes if item.ended is not None]
    running = status_words(fold.first) == "running"
    until = max(ends) if ends else end if running else max(map(_end, fold.processes))
    words = f"{names_words(fold.processes)}: from {time_words(started)} to {time_words(until)}"
    pids = f"pid {fold.first.pid}" if len(fold.processes) == 1 else count_words(len(fold.processes), "process")
    return Item(started, max(until, started + 1), "life", "", (words, pids))


def _steps(fold: _Fold) -> Iterator[Item]:
    """Of folded ranks the first one's."""
    for mark in (fold.first.timeline or r.Timeline()).steps or []:
        if mark.time is not None:
            yield Item(mark.time, mark.time, "step", "", (f"step {mark.step} at {time_words(mark.time)}",), mark=True)


def _deaths(fold: _Fold) -> Iterator[Item]:
    """Only of ends that are deaths. Of folded ranks the first one's; when each died is in its details."""
    first, ends = fold.first, [item.ended for item in fold.processes if item.ended is not None]
    status = first.status or r.Status()
    if not ends or status.kind == "running" or (status.kind == "exited" and status.exit_code == 0):
        return
    when = time_words(min(ends)) + (f" to {time_words(max(ends))}" if min(ends) != max(ends) else "")
    why = why_words(first)
    words = (f"{names_words(fold.processes)}: {status_words(first)} at {when}", *((why,) if why else ()))
    yield Item(min(ends), min(ends), "death primary" if first.primary else "death", "", words, mark=True)


def _calls(fold: _Fold, groups: _Groups, folded: bool, figure_end: int) -> dict[_Key, list[Item]]:
    """The collectives by group; of folded ranks from the first call to the last end."""
    same: dict[tuple[_Key, str | None, int | None, int | None], list[tuple[r.ProcessReport, r.CollectiveSpan]]] = {}
    for process in fold.processes:
        for call in (process.timeline or r.Timeline()).collectives or []:
            key = groups.key(call.group, process.rank, folded=folded)
            same.setdefault((key, call.op, call.sequence_nr, call.peer), []).append((process, call))
    found: dict[_Key, list[Item]] = {}
    for (key, *_), calls in same.items():
        item = _call(calls, figure_end)
        if item is not None:
            found.setdefault(key, []).append(item)
    return found


def _call(calls: Sequence[tuple[r.ProcessReport, r.CollectiveSpan]], figure_end: int) -> Item | None:
    call = calls[0][1]
    begins = [item.scheduled or item.started for _, item in calls if (item.scheduled or item.started) is not None]
    begin = min((at for at in begins if at is not None), default=None)
    if begin is None:
        return None
    states = {item.state or "" for _, item in calls}
    is_open = bool(states & set(_OPEN))
    ends = [item.completed or owner.ended or figure_end for owner, item in calls]
    end = max(begin + 1, *ends)
    kind = "failed" if "failed" in states else "open" if is_open else "completed"
    started = call.started if call.started is not None else end
    inner = min(max((started - begin) / (end - begin), 0.0), 1.0) if kind != "completed" or len(calls) == 1 else 0.0
    what = f"{call.op} #{call.sequence_nr}{_of_group(call.group)}"
    details = [f"{what}: {', '.join(sorted(states))}", *_times(calls)]
    if call.peer is not None:
        details[0] += f", with rank {call.peer} of the group"
    if call.what:
        details.append(call.what)
    if call.python is not None:
        details.append(f"called at {place_words(call.python)}")
    if call.step is not None:
        details.append(f"step {call.step}")
    return Item(begin, end, kind, f"{call.op} #{call.sequence_nr}", tuple(details), round(inner, 4))


def _times(calls: Sequence[tuple[r.ProcessReport, r.CollectiveSpan]]) -> Iterator[str]:
    for verb, times in (
        ("called", [item.scheduled for _, item in calls]),
        ("started", [item.started for _, item in calls]),
        ("ended", [item.completed for _, item in calls]),
    ):
        known = [time for time in times if time is not None]
        if not known:
            yield f"not {verb}"
        elif max(known) == min(known):
            yield f"{verb} at {time_words(known[0])}"
        else:
            span = f"{time_words(min(known))} to {time_words(max(known))}"
            yield f"{verb} by {count_words(len(known), 'rank')} from {span}"


def _first_window(items: Sequence[Item], low: int, high: int) -> tuple[int, int]:
    """From the first call that is near the end: a long start of the program is left to the zoom."""
    calls = sorted(item.begin for item in items if item.kind in ("completed", "open", "failed", "step"))
    if not calls:
        return low, high + max(high // 50, 1000)
    begin = calls[0]
    for number, at in enumerate(calls[1:-1]):  # what came before a pause that is most of the picture
        if at - calls[number] > 0.6 * (high - begin):
            begin = at
    margin = max((high - begin) // 25, 1000)
    return max(begin - margin, low), high + margin


def _left_out(shown: Sequence[r.ProcessReport], lanes: int) -> str:
    """What the figure does not have."""
    parts = [f"{count_words(lanes, 'more lane')} not drawn"] if lanes > 0 else []
    calls = sum((item.timeline.collectives_left_out or 0) for item in shown if item.timeline is not None)
    steps = sum((item.timeline.steps_left_out or 0) for item in shown if item.timeline is not None)
    earlier = [count_words(count, noun) for count, noun in ((calls, "collective"), (steps, "step")) if count]
    if earlier:
        parts.append(f"earlier ones are not shown: {', '.join(earlier)}")
    return "; ".join(parts)


@dataclass(frozen=True)
class RankRow:
    """One line of the table of processes."""

    names: str
    status: str
    ended: str
    collective: str
    why: str
    blamed: bool


def rank_rows(rows: Iterable[Row], blamed: int | None) -> list[RankRow]:
    """The rows of the text's table. `blamed`: the rank of the verdict."""
    return [
        RankRow(
            f"{names_words(items)}{host and f' on {host}'}", status, ended, collective, why, _is_blamed(items, blamed)
        )
        for items, (status, ended, host, collective, why) in rows
    ]


def _is_blamed(items: Sequence[r.ProcessReport], rank: int | None) -> bool:
    """Whether the verdict is about one of these, or its death is the cause."""
    return items[0].primary is True or (rank is not None and any(item.rank == rank for item in items))


def group_rows(report: r.Report) -> list[Mapping[str, str]]:
    """A line for each process group: who is in it, how far its ranks got, who is missing."""
    rows: list[Mapping[str, str]] = []
    for group in (report.collectives.groups if report.collectives else None) or []:
        reached: dict[int | None, list[int]] = {}
        for rank, number in (group.last or {}).items():
            if rank.isdecimal():
                reached.setdefault(number, []).append(int(rank))
        far = "; ".join(
            f"#{number}: {span_words(ranks)}" if number is not None else f"unknown: {span_words(ranks)}"
            for number, ranks in sorted(reached.items(), key=lambda item: -(item[0] or 0))
        )
        missing = span_words(group.missing_ranks) if group.missing_ranks else ""
        rows.append(
            {
                "name": group.name or "?",
                "about": ", ".join(filter(None, (group.description, group.backend))),
                "ranks": span_words(group.ranks or []),
                "reached": far,
                "missing": f"{missing} from #{group.missing_sequence_nr}" if missing else "",
            }
        )
    return rows
