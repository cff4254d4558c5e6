"""Lengths of arrays that follow from the values that occur, and lengths that do not."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.short_length import ShortLength, short_length
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.report.job import PythonFrame

LATER = 1 << 62


def length_of(folder: Path, *lines: str) -> ShortLength | None:
    """Of `x` of a function with those lines."""
    file = folder / "train.py"
    text = "\n    ".join(("def f(row, ids, n):", *lines, "call(x)"))
    file.write_text(f"{text}\n", encoding="utf-8")
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=LATER)
    back = Slice(snapshot, [PythonFrame(function="f", file=str(file), line=len(lines) + 2)])
    spot = back.spot(0)
    assert spot is not None
    return short_length(back, ast.Name("x", ast.Load()), spot)


@pytest.mark.parametrize(
    ("lines", "kind", "line"),
    [
        (("x = np.concatenate([[0], np.cumsum(np.bincount(row))]).astype(np.int64)",), "bincount", 2),
        (("counts = torch.bincount(row)", "x = torch.zeros(counts.numel() + 1)"), "bincount", 2),
        (("x = F.pad(row.bincount().cumsum(0), (1, 0))",), "bincount", 2),
        (("ids, counts = np.unique(row, return_counts=True)", "x = np.zeros(len(ids) + 1)"), "unique", 2),
        (("x = row.unique(return_counts=True)[1].cumsum(0)",), "unique", 2),
        (("n = int(row.max()) + 1", "x = np.random.randint(0, 9, n)"), "max", 2),
        (("n = int(row.max()) + 1", "x = torch.bincount(row, minlength=n).cumsum(0)"), "max", 2),
        (("x = nn.Embedding(row.max().item() + 1, 8)",), "max", 2),
        (("x = rng.random((len(np.unique(row)), 32))",), "unique", 2),
    ],
)
def test_length_that_follows_from_the_values_is_found(
    lines: tuple[str, ...], kind: str, line: int, tmp_path: Path
) -> None:
    found = length_of(tmp_path, *lines)
    assert found is not None and (found.kind, found.line) == (kind, line)
    assert f"at line {line}" in found.advice("x", f"line {line}")
    assert found.briefly


@pytest.mark.parametrize(
    "lines",
    [
        ("x = np.cumsum(np.bincount(row, minlength=n))",),
        ("x = torch.bincount(row, None, n)",),
        ("x = torch.bincount(row, minlength=len(torch.unique(ids)))",),  # what it counts may be longer
        ("x = row.bincount(None, n)",),
        ("x = np.unique(row, return_inverse=True)[1]",),
        ("x = table[np.bincount(row)]",),
        ("x = np.zeros(n)",),
        ("x = row / row.max()",),
        ("x = np.full((n, 2), row.max())",),
        ("x = np.random.randint(0, row.max() + 1, n)",),
        ("x = np.bincount(row)", "if n:", "    x = np.zeros(n)"),
    ],
)
def test_other_lengths_are_not_claimed(lines: tuple[str, ...], tmp_path: Path) -> None:
    assert length_of(tmp_path, *lines) is None
