"""Stacks through generated code whose unwind tables the program registers with its libgcc_s."""

from __future__ import annotations

import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conditions import needs_compiler, needs_core
from tests.support.crash import PROGRAMS, Ended, ended, environment, preloaded

pytestmark = [
    needs_core,
    needs_compiler,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="made_code.c has x86-64's instructions"),
]
CRASH_ENABLED = (
    "import ctypes, sys, pytracer; pytracer.enable(sys.argv[1]); ctypes.CDLL(sys.argv[2]).run(int(sys.argv[3]))"
)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """made_code.c as a program, as a library, and as a program that loads that and has no libgcc_s of its own."""
    folder = tmp_path_factory.mktemp("made_code")
    for name, flags in (
        ("program", []),
        ("library.so", ["-shared", "-fPIC", "-DLIBRARY"]),
        ("loader", ["-DLOADER", "-ldl"]),
    ):
        subprocess.run(["cc", "-O1", "-w", "-o", folder / name, PROGRAMS / "made_code.c", *flags], check=True)
    return folder


def crossed(done: Ended) -> bool:
    """Whether the walk passed the generated code and reached the thread's first function, by unwind tables alone."""
    assert done.status == -signal.SIGSEGV, done.stderr
    crash = done.box.crash
    assert crash is not None and crash.steps_faulted == ()
    place = int(done.stdout.split()[0], 16)
    found = {frame.pc: frame.found for frame in crash.native_stack}
    assert place in found, "the frame of the made code itself"
    return set(found.values()) <= {"exact", "unwound"}


@pytest.mark.parametrize("tables", ["registered", "unregistered"])
@pytest.mark.parametrize("how", ["linked", "loaded"])
def test_preloaded_process_is_walked_by_the_libgcc_of_its_tables(how: str, tables: str, built: Path, run: Path) -> None:
    """Linked to the program, or loaded by a library with its own scope. Without tables the walk ends there."""
    command = [built / "program"] if how == "linked" else [built / "loader", built / "library.so"]
    assert crossed(ended([*command, tables], preloaded(run), run)) == (tables == "registered")


@pytest.mark.parametrize("registered", [0, 1])
def test_enabled_process_is_walked_by_its_libgcc(registered: int, built: Path, run: Path) -> None:
    """Without preload the registration is not intercepted: libgcc_s is used from the start."""
    command: list[str | Path] = [sys.executable, "-c", CRASH_ENABLED, run, built / "library.so", str(registered)]
    assert crossed(ended(command, environment(), run)) == bool(registered)


def test_preloaded_process_loads_no_library_for_us_but_the_core(run: Path) -> None:
    """Each library would add to the start-up time of every process."""

    def libraries(env: dict[str, str]) -> set[str]:
        done = ended(["cat", "/proc/self/maps"], env, run)
        return {line.split()[5] for line in done.stdout.splitlines() if ".so" in line}

    assert {Path(name).name for name in libraries(preloaded(run)) - libraries(environment())} == {"libpytracer_core.so"}
