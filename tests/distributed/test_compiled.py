"""torch.compile treats a traced job as the same job untraced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conditions import needs_core, needs_native
from tests.distributed.jobs import traced, untraced
from tests.distributed.scenarios import Scenario

pytestmark = [needs_core, needs_native, pytest.mark.slow]


def test_dynamo_does_the_same_with_collectives_ddp_and_fsdp(run: Path) -> None:
    """The same frames are compiled, of ours none; graphs, breaks, recompilations and results are the same."""
    scenario = Scenario("compiled", "programs", "nothing goes wrong", ranks=2, status=0)
    without, with_us = untraced(scenario, run.with_name("untraced")), traced(scenario, run)
    assert (without.status, with_us.status) == (0, 0), without.stderr + with_us.stderr
    expected = json.loads(without.stdout)
    assert all(item["raised"] is None for item in expected.values())
    assert json.loads(with_us.stdout) == expected
    ranks = [box for box in with_us.boxes if box.rank is not None]
    assert [box.counts["hook_errors"] for box in ranks] == [0, 0]
