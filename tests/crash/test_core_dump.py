"""Core dumps are as untraced, with the registers and the siginfo of the fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conditions import needs_compiler, needs_core, needs_core_files, needs_gdb
from tests.support.core import seen_by_gdb
from tests.support.crash import Ended, victim

pytestmark = [needs_core, needs_compiler, needs_core_files]

UNLIMITED = -1
PROGRAMS = ["null_dereference.py", "division_by_zero.py", "truncated_mapping.py", "failed_assertion.py"]


def dump_of(program: str, way: str, directory: Path) -> tuple[Ended, Path | None]:
    """Runs a victim without a limit on core dumps; the dump that it left."""
    directory.mkdir()
    done = victim(program, run=directory / "run", way=way, core_bytes=UNLIMITED)
    found = list(directory.glob("core*"))
    assert len(found) <= 1
    return done, found[0] if found else None


@needs_gdb
@pytest.mark.parametrize("way", ["preload", "enable"])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.quick(2)
def test_core_dump_is_that_of_the_fault(program: str, way: str, tmp_path: Path) -> None:
    """The kernel writes a dump as untraced; its siginfo matches the recording, and its first frame is the victim's."""
    plain, plain_core = dump_of(program, "untraced", tmp_path / "plain")
    done, core = dump_of(program, way, tmp_path / "traced")
    assert done.status == plain.status
    assert plain_core is not None
    assert core is not None
    expected, seen = seen_by_gdb(plain_core), seen_by_gdb(core)
    assert seen["function"] == expected["function"]
    assert (seen["signal"], seen["code"]) == (expected["signal"], expected["code"])
    crash = done.box.crash
    assert crash is not None
    assert (seen["signal"], seen["code"]) == (str(crash.signal), str(crash.code))
    if crash.code > 0:
        assert int(seen["addr"], 16) == crash.fault_addr


def test_no_core_dump_where_none_was_asked_for(tmp_path: Path) -> None:
    """With a limit of 0 there is no dump, with and without pytracer."""
    victim("null_dereference.py", run=tmp_path / "run")
    assert not list(tmp_path.glob("core*"))
