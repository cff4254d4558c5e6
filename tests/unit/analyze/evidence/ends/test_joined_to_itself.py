"""An array that a failing line joins to itself: the whole and its parts are needed at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.ends.growing_values import joined_to_itself
from pytracer.analyze.evidence.failing.line import failing_line
from tests.unit.analyze.evidence.test_failing import of_program

pytest.importorskip("torch")


def _judge(snapshot: Any, report: Any, stack: Any) -> str:
    at = failing_line(snapshot, report, stack)
    found = joined_to_itself(at) if at is not None else None
    return found.subject if found is not None else "nothing"


@pytest.mark.parametrize(
    ("source", "subject"),
    [
        (
            "import torch\npreds = torch.zeros(4, 2)\nfor x in 'ab':\n    preds = torch.cat([preds, x])\n",
            "makes `preds` ([4, 2] float32) longer each time, and has the old and the new one at once",
        ),
        (
            "import numpy as np\nparts = [np.zeros(3), np.zeros((2, 2))]\nparts = np.concatenate(parts)\n",
            "needs the parts in `parts` (list of 2) and the whole of them at once",
        ),
        ("import torch\nrows = [torch.zeros(4), 'x']\nwhole = torch.cat(rows)\n", "nothing"),
        ("import torch\nx = torch.zeros(4)\nx = torch.relu([x])\n", "nothing"),
        ("import torch\nx = torch.zeros(4, 2)\nx = torch.cat([x, 'skip'], dim=1)\n", "nothing"),
        ("import torch\nfor x in [torch.zeros(4)]:\n    x = torch.cat([x, x.flip(0), 'a'])\n", "nothing"),
        ("import torch\nfor _ in 'a':\n    x = torch.zeros(4)\n    x = torch.cat([x, 'a'])\n", "nothing"),
    ],
)
def test_array_that_is_joined_to_itself_is_named(source: str, subject: str, tmp_path: Path) -> None:
    """With what it was; another name for the whole is no growth."""
    assert subject in (of_program(tmp_path, source, _judge) or "")
