"""The recording half stays small: every traced process imports it."""

from __future__ import annotations

import subprocess
import sys
import typing
from pathlib import Path

from pytracer.blackbox import numbers, schema
from pytracer.record.api import Level
from tests.conditions import needs_native
from tests.support.cli import SCRIPT, pytracer

CODE = """
import sys
import typing
import pytracer.record
from pytracer.record import api
from pytracer.record.bootstrap import python_half, torch_half
from pytracer.record.torch import (
    dataloader, dataloader_workers, ddp, elastic, name_table, names, optimizer, process_groups
)
print([name for name in sys.modules if name.startswith("pytracer.")])
"""


def test_recording_imports_neither_tables_of_the_format_nor_the_launcher() -> None:
    """schema.py alone took 6 ms of each start; run_directory.py is for the launcher, guard_mode.py for guarded jobs."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    loaded = done.stdout
    assert "pytracer.record.core" in loaded
    for module in (
        "pytracer.blackbox.schema",
        "pytracer.launcher.run_directory",
        "pytracer.record.guard_mode",
        "pytracer.decode",
    ):
        assert f"'{module}'" not in loaded


def test_numbers_are_those_of_the_schema() -> None:
    """numbers.py is generated; a stale copy would write records under other kinds."""
    for enum in (schema.Entry, schema.Record, schema.CollectiveState, schema.NameRole, schema.TensorRole):
        copy = getattr(numbers, enum.__name__)
        assert {member.name: int(member) for member in enum} == {
            name: value for name, value in vars(copy).items() if not name.startswith("_")
        }
    assert schema.TEXT_RECORD.nbytes == numbers.TEXT_RECORD_BYTES


def test_levels_are_defined_once() -> None:
    """enable()'s type and the shell launcher repeat the words of schema.Level, since neither can read it."""
    words = tuple(member.name.lower() for member in schema.Level)
    assert dict(zip(words, schema.Level, strict=True)) == numbers.LEVELS
    assert typing.get_args(Level) == words
    launcher = SCRIPT.read_text(encoding="utf-8")
    assert f"    {' | '.join(words)}) ;;" in launcher


@needs_native
def test_importing_torch_loads_what_every_process_needs(tmp_path: Path) -> None:
    """What only some programs use is imported at its first use: modules, process groups, loaders, enable() itself."""
    directories = [place for place in sys.path if place]
    code = f"import sys; sys.path[:0] = {directories!r}\nimport torch\n"
    code += "print(*(name for name in sys.modules if name.startswith('pytracer.record.')))"
    done = pytracer("run", "-o", str(tmp_path / "run"), "--", sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {name.removeprefix("pytracer.record.") for name in done.stdout.split()} == {
        *("c_interface", "config", "core", "bootstrap", "torch"),
        *(f"bootstrap.{name}" for name in ("dynamo", "import_hook", "lazy", "patches", "python_half", "torch_half")),
        *(f"torch.{name}" for name in ("descriptors", "exceptions", "layout_probe", "library", "names", "optimizer")),
    }
