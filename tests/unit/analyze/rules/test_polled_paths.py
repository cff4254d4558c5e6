"""other-death: ranks that slept and looked for files in one loop, until a time limit ended them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.deaths import advice, summary, verdict
from tests.support.standing import in_native, parent, stopped
from tests.support.synth import Box, Frame
from tests.unit.analyze.rules.test_waited_objects import of

STAGE = """\
def wait(world):
    stage = os.path.join("/data", f"run_{0}")
    while len(os.listdir(stage)) < world:
        time.sleep(0.1)
wait(2)
"""


@pytest.mark.parametrize(("made", "own"), [("{np.random.randint(99)}", True), ("a", False)])
def test_ranks_that_slept_in_one_loop_are_one_finding(made: str, own: bool, run: Path) -> None:
    """Both, before the signal; with the line by which each has a path of its own, where there is one."""
    script = of(run, "import os, time\nimport numpy as np\n" + STAGE.format(made))
    boxes = [Box(pid=101 + rank, ppid=90, rank=rank).versions(torch="2.13.0") for rank in range(2)]
    stack: list[Frame] = [("wait", script, 6), ("<module>", script, 7)]
    report = in_native(run, *(stopped(box, stack) for box in boxes), native="pysleep")
    assert summary(report).startswith(
        "Ranks 0 and 1 slept at train.py:6 in wait, in the loop `while len(os.listdir(stage)) < world` (line 5). "
    )
    assert "At a time limit, SIGTERM ended them, sent by" in summary(report)
    assert ("Each looks at another path, as line 4 (`np.random.randint`) draws" in summary(report)) == own
    assert verdict(report) == ("hang", "likely" if own else "possible")
    assert advice(report).startswith("Make `stage` the same path on all ranks: draw it on rank 0") == own


def test_process_alone_has_no_path_that_is_another_one(run: Path) -> None:
    """The look-alike: whoever writes the file is not known, nor which path that takes."""
    script = of(run, "import os, time\nimport numpy as np\n" + STAGE.format("{np.random.randint(99)}"))
    report = in_native(run, stopped(parent(), [("wait", script, 6), ("<module>", script, 7)]), native="pysleep")
    assert "another path" not in summary(report)
    assert verdict(report) == ("hang", "possible")
