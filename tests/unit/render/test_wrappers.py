"""The collectives of a process as lines of text."""

from __future__ import annotations

import pytest

from pytracer.render.wrappers import buffer_lines
from pytracer.report import job as r


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("completed", "send #1 of group 0: completed, float32 [4], "),
        ("receive begun", "send #1 of group 0: completed here; its receiver had begun to receive, and not waited, flo"),
    ],
)
def test_state_of_a_message_is_in_words(state: str, words: str) -> None:
    last = r.LastCollective(group="0", op="send", sequence_nr=1, state=state, dtypes=["float32"], sizes=[4])
    (line,) = buffer_lines(r.ProcessReport(recent_collectives=[last]))
    assert line.startswith(words)
