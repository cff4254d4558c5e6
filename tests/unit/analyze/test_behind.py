"""The lines that findings name, as data."""

from __future__ import annotations

from pytracer.analyze.behind import Behind, places_in
from pytracer.analyze.evidence.own_code.dropped_callback import DroppedCallback
from pytracer.analyze.naming import LineWords, line_in
from pytracer.report.job import PythonFrame


def test_words_for_a_line_know_which_one_it_is() -> None:
    """Also with more words behind them; in a sentence they are plain text."""
    words = line_in("/a/model.py", 6, "/a/train.py").quoted("x = load()")
    assert words == "model.py:6 (`x = load()`)"
    assert (words.file, words.line) == ("/a/model.py", 6)
    assert line_in("/a/train.py", 6, "/a/train.py") == "line 6"
    assert type(f"at {words}") is str


def test_lines_are_taken_from_words_frames_pairs_and_findings() -> None:
    """Each once, in order; what names none is nothing."""
    callback = DroppedCallback("REPORT(f)", LineWords("line 50", "/a.py", 50), "f", "ctypes")
    frame = PythonFrame(function="f", file="/b.py", line=3)
    found = places_in([callback, frame, ("/c.py", 7), (frame, None), "line 9", None, ("/c.py", 7)])
    assert found == (("/a.py", 50), ("/b.py", 3), ("/c.py", 7))


def test_frame_without_a_line_names_none() -> None:
    assert Behind.of(["x", None], PythonFrame(file="/a.py")) == Behind(("x",))
