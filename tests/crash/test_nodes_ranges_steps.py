"""The history of autograd nodes and of named ranges, and the count of steps, match what the program did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.records import Node, Step
from tests.conditions import needs_core, needs_native
from tests.support.crash import Ended, new_store, victim
from tests.support.records import data_of

pytestmark = [needs_core, needs_native]

PROGRAM = "nodes_ranges_steps.py"


def ran(what: str, run: Path, *arguments: str, level: str = "default") -> tuple[Ended, Any]:
    """The program, and the expected result that it printed."""
    done = victim(PROGRAM, what, *arguments, run=run, PYTRACER_LEVEL=level)
    assert (done.status, done.stderr) == (0, "")
    return done, json.loads(done.stdout)


def names(events: list[Any]) -> list[str]:
    return [node.name for node in data_of(events, Node)]


@pytest.mark.parametrize("level", ["default", "ops"])
@pytest.mark.quick(1)
def test_nodes_are_those_that_the_engine_ran_with_what_it_gave_them(level: str, run: Path) -> None:
    """In order, once each, by their short names; of autograd.grad() the nodes up to its inputs, which are not run."""
    done, truth = ran("nodes", run, level=level)
    events = sorted(done.box.events, key=lambda event: event.mono_ns)
    marks = [i for i, event in enumerate(events) if event.kind == "MARK"]
    asked, everything, elsewhere = (
        [event for event in events[start:end] if event.kind == "NODE"]
        for start, end in zip(marks, [*marks[1:], len(events)], strict=True)
    )
    assert names(asked) == ["SumBackward0"]
    assert names(everything) == ["SumBackward0", "ExpBackward0", "AddBackward0", "DoubledBackward", "AccumulateGrad"]
    assert [node.sequence_nr for node in data_of(everything, Node)][:4] == truth["numbers"][:4]
    assert data_of(everything, Node)[0].storages == (truth["gradient"],)
    assert [node.input_count for node in data_of(everything, Node)] == [1] * 5
    assert names(elsewhere) == ["SumBackward0", "MulBackward0", "AccumulateGrad"]
    assert len({event.tid for event in elsewhere}) == 1 and elsewhere[0].tid != everything[0].tid
    assert done.box.counts["hook_errors"] == 0


@pytest.mark.parametrize(("level", "seen"), [("light", "after"), ("default", "after"), ("ops", "before after")])
@pytest.mark.quick(1)
def test_ranges_are_recorded_once_there_is_a_process_group(level: str, seen: str, run: Path) -> None:
    """Earlier, optimizers would pay for their ranges; level ops records them from the start.

    Operators are recorded by a global callback, which makes every autograd node slower: below level ops there is none.
    """
    done, truth = ran("ranges", run, new_store(run), level=level)
    assert truth["global_callbacks"] is (level == "ops")
    begun = set(names([event for event in done.box.events if event.kind == "RANGE_BEGIN"]))
    assert begun & {"before", "after"} == set(seen.split())


def test_steps_of_one_optimizer_are_counted_and_of_the_next_when_it_is_gone(run: Path) -> None:
    """Three of the first, then two of the second; others at the address of the first are not taken for it."""
    done, _ = ran("steps", run)
    counted = [step.step for step in data_of(done.box.events, Step)]
    assert counted[:5] == [1, 2, 3, 4, 5]
    assert counted == list(range(1, len(counted) + 1))
    assert done.box.step == 5
    assert done.box.counts["hook_errors"] == 0


@pytest.mark.slow
def test_optimizer_that_cannot_be_looked_at_still_steps_and_is_counted(run: Path) -> None:
    """An internal error is counted and noted in the recording; the program is not affected."""
    done, _ = ran("failing", run)
    assert done.box.step == 6
    assert done.box.counts["hook_errors"] > 0
    assert any("not for you" in note.text for note in done.box.notes)
