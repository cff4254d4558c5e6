"""Memory and time are drawn to scale."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.render.html.figure import Figure, Item, Lane, packed
from pytracer.render.html.memory import memory_view
from pytracer.render.html.ranks import FOLD_ABOVE, MOST_LANES, ranks_figure
from pytracer.report import job as r
from tests.support import pages
from tests.support import scenarios as s


def victim(report: r.Report) -> r.ProcessReport:
    return next(item for item in report.processes or [] if item.neighborhood is not None)


def items(figure: Figure, lane: str) -> tuple[Item, ...]:
    return next(item.items for item in figure.lanes if item.name == lane)


def test_storages_are_drawn_to_scale_and_the_fault_is_marked(tmp_path: Path) -> None:
    """One pixel is the same number of bytes everywhere."""
    view = memory_view(victim(pages.use_after_free(tmp_path)), "memory")
    assert view is not None
    figure = view.figure
    (freed,) = items(figure, "freed")
    assert figure.origin + freed.begin == s.BUCKET and freed.end - freed.begin == s.BUCKET_BYTES
    assert figure.point is not None and figure.origin + figure.point == s.BUCKET + 81920
    shown = figure.first[1] - figure.first[0]
    assert float(figure.wide(freed)) == pytest.approx(100 * s.BUCKET_BYTES / shown, abs=0.01)
    distance = float(figure.at(figure.point)) - float(figure.at(freed.begin))
    assert distance == pytest.approx(100 * 81920 / shown, abs=0.01)
    assert figure.low <= figure.first[0] < figure.first[1] <= figure.high


def test_table_marks_what_the_address_lies_in(tmp_path: Path) -> None:
    """The storage of the fault, and not its neighbour."""
    view = memory_view(victim(pages.use_after_free(tmp_path)), "memory")
    assert view is not None
    assert [row.start for row in view.rows if row.hit and "storage" in row.what] == [hex(s.BUCKET)]


def test_storages_at_the_same_place_are_drawn_one_above_the_other() -> None:
    """And those side by side in one row; more rows than fit share the last."""
    placed = packed([Item(0, 10, "", "a", ()), Item(0, 10, "", "b", ()), Item(10, 20, "", "c", ())])
    assert {item.label: item.row for item in placed} == {"a": 0, "b": 1, "c": 0}
    crowd = packed([Item(0, 10, "", str(n), ()) for n in range(20)], most=3)
    assert Lane("x", items=crowd).rows == 3


def test_collectives_lie_where_they_were_called(tmp_path: Path) -> None:
    """With the time until they started apart, and open ones until the end of the process."""
    report = pages.use_after_free(tmp_path)
    figure = ranks_figure(report)
    assert figure is not None
    process = next(item for item in report.processes or [] if item.rank == 1)
    called = [item.scheduled for item in (process.timeline or r.Timeline()).collectives or []]
    drawn = [item for item in items(figure, "rank 1") if item.kind in ("completed", "open")]
    assert [item.begin for item in drawn] == called
    assert (drawn[-1].kind, drawn[-1].end) == ("open", process.ended)


def test_open_collective_of_a_process_without_an_end_reaches_the_end_of_the_figure(tmp_path: Path) -> None:
    """A job that hangs and still runs: what everybody waits in is the widest thing, not a dot at the edge."""
    figure = ranks_figure(pages.hang(tmp_path))
    assert figure is not None
    waiting = items(figure, "rank 0")[-1]
    calls = [item for item in items(figure, "rank 2") if item.kind == "completed"]
    assert waiting.kind == "open" and waiting.end - waiting.begin >= 1_000_000
    assert waiting.end == max(item.end for lane in figure.lanes for item in lane.items) > calls[-1].end


def test_steps_and_deaths_are_signs_on_the_lane(tmp_path: Path) -> None:
    """Deaths with how and why; an orderly end is none."""
    figure = ranks_figure(pages.use_after_free(tmp_path))
    assert figure is not None
    marks = [item for item in items(figure, "rank 1") if item.mark]
    assert [item.kind for item in marks] == ["step", "step", "death primary"]
    assert marks[-1].details[0].startswith("rank 1: SIGSEGV at ") and marks[-1].details[1] == "died first"
    from pytracer.analyze.engine import build_report

    calm = ranks_figure(build_report(s.clean(tmp_path / "clean")))
    assert calm is not None and not [item for lane in calm.lanes for item in lane.items if "death" in item.kind]


def test_few_ranks_have_a_lane_each_and_many_are_folded(tmp_path: Path) -> None:
    """Of equal ranks one lane shows the first call and the last end."""
    few = ranks_figure(pages.many_ranks(tmp_path / "few", 8, victim=3))
    assert few is not None
    assert [lane.name for lane in few.lanes if lane.kind != "group"] == [f"rank {n}" for n in range(8)]
    report = pages.many_ranks(tmp_path / "many", 24, victim=3)
    many = ranks_figure(report)
    assert many is not None and FOLD_ABOVE < 24
    assert [lane.name for lane in many.lanes if lane.kind != "group"] == ["rank 3", "ranks 0-2 and 4-23"]
    folded = items(many, "group default_pg")[0]
    calls = [c for p in report.processes or [] if p.rank != 3 for c in (p.timeline or r.Timeline()).collectives or []]
    first = [item for item in calls if item.group == "0" and item.sequence_nr == 1]
    assert folded.begin == min(item.scheduled or 0 for item in first)
    assert folded.end == max(item.completed or 0 for item in first)


def test_restarted_ranks_have_a_lane_for_each_attempt() -> None:
    """In their order."""

    def process(attempt: int, rank: int) -> r.ProcessReport:
        start = attempt * 100
        calls = [r.CollectiveSpan(group="0", op="barrier", sequence_nr=1, scheduled=start + 9)]
        timeline = r.Timeline(collectives=calls)
        return r.ProcessReport(
            role="rank", rank=rank, attempt=attempt, started=start, ended=start + 50, timeline=timeline
        )

    processes = [process(attempt, rank) for attempt in (0, 1) for rank in (0, 1)]
    figure = ranks_figure(r.Report(processes=processes))
    assert figure is not None
    assert [lane.name for lane in figure.lanes] == [f"rank {k}, attempt {a}" for a in (0, 1) for k in (0, 1)]


def test_number_of_lanes_is_bounded() -> None:
    """16 ranks in 20 groups each; what is not drawn is counted."""
    calls = [
        r.CollectiveSpan(group=str(n), op="barrier", sequence_nr=1, scheduled=n + 1, completed=n + 5) for n in range(20)
    ]
    ranks = [
        r.ProcessReport(role="rank", rank=n, pid=n, ended=100, timeline=r.Timeline(collectives=calls))
        for n in range(16)
    ]
    figure = ranks_figure(r.Report(processes=ranks))
    assert figure is not None and len(figure.lanes) == MOST_LANES
    assert figure.left_out == f"{16 * 21 - MOST_LANES} more lanes not drawn"


def test_job_without_collectives_has_no_picture_of_time(tmp_path: Path) -> None:
    """One process that crashed: nothing lies on an axis."""
    from pytracer.analyze.engine import build_report

    assert ranks_figure(build_report(s.single(tmp_path))) is None
