"""Sources that the debug information of a library names: of each version of DWARF, and of damaged libraries."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.decode.symbols.unit_sources import unit_sources
from tests.conditions import needs_compiler

pytestmark = needs_compiler


def built(folder: Path, options: Sequence[str], sources: Sequence[str] = ("src/one.c", "src/two.c")) -> Path:
    """A library of these sources, compiled in `folder`."""
    for name in sources:
        source = folder / name
        source.parent.mkdir(exist_ok=True)
        source.write_text(f"int {source.stem}(int x) {{ return x + 1; }}\n", encoding="utf-8")
    library = folder / "libown.so"
    subprocess.run(["cc", "-shared", "-fPIC", *options, *sources, "-o", str(library)], cwd=folder, check=True)
    return library


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_sources_of_each_unit_are_absolute_paths(version: int, tmp_path: Path) -> None:
    """Names below the directory of the compilation, and absolute ones."""
    absolute = str(tmp_path / "far" / "three.c")
    library = built(tmp_path, [f"-gdwarf-{version}", "-O2"], ["src/one.c", absolute])
    assert unit_sources(str(library)) == [str(tmp_path / "src" / "one.c"), absolute]


def test_library_without_debug_information_names_none(tmp_path: Path) -> None:
    assert unit_sources(str(built(tmp_path, ["-g0"]))) == []
    assert unit_sources(str(tmp_path / "src" / "one.c")) == unit_sources("libown.so") == unit_sources("/none.so") == []


def test_damaged_libraries_are_survived(tmp_path: Path) -> None:
    """Truncated, and with random bytes."""
    library = built(tmp_path, ["-g"])
    whole, rng = library.read_bytes(), random.Random(1)
    other = tmp_path / "other.so"
    for _ in range(300):
        damaged = bytearray(whole[: rng.randrange(1, len(whole))] if rng.random() < 0.3 else whole)
        for _ in range(rng.randint(1, 200)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        other.write_bytes(bytes(damaged))
        assert len(unit_sources(str(other))) <= 256
