"""Where a text was that is no number: its place is recorded, and nothing of what else there is."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from pytracer.record.torch.refused_text import refused_text


def recorded(run: Callable[[], object]) -> dict[str, str]:
    """What is written of the error that it raises."""
    try:
        run()
    except ValueError as error:
        trace = error.__traceback__
        assert trace is not None
        return {item["name"]: item["value"] for item in refused_text(error, trace.tb_next)}
    raise AssertionError("it did not fail")


def test_part_of_a_row_is_named_by_the_key_that_the_line_reads() -> None:
    """Two fields are empty; `name` says which one is asked for."""

    def run() -> float:
        row = {"a": "", "b": "2", "c": ""}
        name = "c"
        return float(row[name])

    assert recorded(run) == {"place of the refused text": "row['c']"}


def test_all_places_are_named_where_none_is_known_to_be_meant() -> None:
    """Which field of the row a comprehension had come to is not known by its text."""

    def run() -> list[float]:
        row = ["x", "1", "x"]
        return [float(field) for field in row[1:]]

    assert recorded(run) == {"place of the refused text": "row[0], row[2]"}


def test_file_and_line_of_a_reader_are_recorded(tmp_path: Path) -> None:
    """A quoted field may have several lines: the reader counts them."""
    path = tmp_path / "rows.csv"
    path.write_text('name,score\n"a\nb",1\nc,-\n', encoding="utf-8")

    def run() -> None:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            for row in reader:
                float(row["score"])

    assert recorded(run) == {
        "place of the refused text": "row['score']",
        "text file": str(path),
        "line of the text file": "4",
    }


@pytest.mark.parametrize("kind", [ValueError("unequal"), ValueError(), ValueError(3), KeyError("could not convert")])
def test_other_errors_are_left_alone(kind: Exception) -> None:
    """Also one with another message, or without a text."""
    assert refused_text(kind, None) == []
