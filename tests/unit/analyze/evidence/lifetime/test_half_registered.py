"""Saved tensors whose pack hook raised in a register_hooks() that the program caught, by its source."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.lifetime import half_registered as module
from pytracer.analyze.evidence.lifetime.half_registered import HalfRegistered, half_registered
from pytracer.report.job import PythonFrame

READS = "torch::autograd::PySavedVariableHooks::retrieve_unpack_hook_data() const"
PROGRAM = """
def offload(saved, pack, unpack):
    for raw in saved:
        try:
            raw.register_hooks(pack, unpack)
        except OSError:
            {handler}
    return [raw.data for raw in saved]
"""


def found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, handler: str = "pass", function: str = READS
) -> HalfRegistered | None:
    """Of a crash at line 8."""
    file = folder / "train.py"
    file.write_text(PROGRAM.format(handler=handler), encoding="utf-8")
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    view: Any = SimpleNamespace(process=SimpleNamespace(snapshot=snapshot))
    monkeypatch.setattr(module, "functions", lambda _: [function])
    monkeypatch.setattr(module, "program_frames", lambda _: [PythonFrame(function="offload", file=str(file), line=8)])
    return half_registered(view)


def test_call_that_an_except_catches_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the line of the `except`."""
    half = found(tmp_path, monkeypatch)
    assert half is not None
    assert "likely in register_hooks() at line 5, which the `except` of line 6 catches" in half.summary


@pytest.mark.parametrize(("handler", "function"), [("raise", READS), ("pass", "torch::autograd::unpack")])
def test_other_nulls_have_another_reason(
    handler: str, function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the program raises again never reaches the read; another function reads something else."""
    assert found(tmp_path, monkeypatch, handler, function) is None
