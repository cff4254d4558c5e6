"""torch.compile treats a traced program as the same program untraced."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conditions import needs_core, needs_native, needs_torch
from tests.support.crash import Ended, victim

pytestmark = [needs_core, needs_native, needs_torch]

PROGRAM = "compiled.py"
WAYS = ("untraced", "preload")


def _observed(done: Ended) -> dict[str, dict[str, Any]]:
    assert done.status == 0, done.stderr
    observed: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return observed


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """The program, run to its end in each way."""

    def run(way: str) -> Ended:
        return victim(PROGRAM, run=tmp_path_factory.mktemp(way) / "run", way=way)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(WAYS, pool.map(run, WAYS), strict=True))


@pytest.mark.slow
def test_dynamo_does_the_same(ended: dict[str, Ended]) -> None:
    """The same frames are compiled, of ours none; graphs, breaks, recompilations and results are the same."""
    untraced, traced = _observed(ended["untraced"]), _observed(ended["preload"])
    assert all(item["frames"] and item["raised"] is None for item in untraced.values())
    assert traced == untraced


@pytest.mark.slow
def test_nothing_went_wrong(ended: dict[str, Ended]) -> None:
    """torch.compile's marks were found, and no hook failed."""
    box = ended["preload"].box
    assert [note.text for note in box.notes] == []
    assert box.counts["hook_errors"] == 0


@pytest.mark.parametrize("scenario", ["optimizer_step", "own_optimizer_in_one_graph"])
@pytest.mark.quick(1)
def test_compiled_steps_are_counted(scenario: str, tmp_path: Path) -> None:
    """Also where only a compiled graph runs."""
    box = victim(PROGRAM, scenario, run=tmp_path / "run", way="enable").box
    assert (box.step, box.step_source) == (3, "optimizer steps")
