"""The recording half stays small: every traced process imports it."""

from __future__ import annotations

import subprocess
import sys

from pytracer.blackbox import numbers, schema

CODE = """
import sys
import pytracer.record
from pytracer.record import ddp, distributed, elastic, loaders, names, recording, steps, torch_half, workers
print([name for name in sys.modules if name.startswith("pytracer.")])
"""


def test_recording_imports_neither_tables_of_the_format_nor_the_launcher() -> None:
    """schema.py alone took 6 ms of each process's start; launch.py serves the launcher, guard.py those who guard."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    loaded = done.stdout
    assert "pytracer.record.core" in loaded
    for module in ("pytracer.blackbox.schema", "pytracer.record.launch", "pytracer.record.guard", "pytracer.decode"):
        assert f"'{module}'" not in loaded


def test_numbers_are_those_of_the_schema() -> None:
    """numbers.py is generated; a stale copy would write records under other kinds."""
    for enum in (schema.Entry, schema.Record, schema.CollectiveState, schema.NameRole, schema.TensorRole):
        copy = getattr(numbers, enum.__name__)
        assert {member.name: int(member) for member in enum} == {
            name: value for name, value in vars(copy).items() if not name.startswith("_")
        }
    assert schema.TEXT_RECORD.nbytes == numbers.TEXT_RECORD_BYTES
