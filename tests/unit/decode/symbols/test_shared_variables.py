"""Variables that libraries share by their names, as the dynamic linker sees them."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.decode.files import Window, regular_file
from pytracer.decode.symbols.elf_sections import Elf
from pytracer.decode.symbols.shared_variables import SharedVariables, _used, shared_variables
from tests.conditions import needs_compiler

pytestmark = needs_compiler
SOURCE = """long state[2]; static int own; __attribute__((visibility("hidden"))) int hidden;
__attribute__((weak)) int weak; __thread int thread; int unused; int puts(const char *text);
int f(void) { state[0] = own++ + hidden++ + weak++ + thread++; return puts(""); }
"""


def built(folder: Path, *options: str) -> tuple[str, str | None]:
    """The library and its build id."""
    (folder / "own.c").write_text(SOURCE, encoding="utf-8")
    library = folder / "libown.so"
    command = ["cc", "-shared", "-fPIC", "-Wl,--build-id", *options, "own.c", "-o", str(library), "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return str(library), id_of(library)


def id_of(path: Path) -> str | None:
    with regular_file(str(path), follow=True) as file:
        return Elf(Window(file)).build_id()


def test_variables_that_another_library_may_take_over_are_found(tmp_path: Path) -> None:
    """Neither static nor hidden, weak or of a thread, and used by the library itself."""
    found = shared_variables(*built(tmp_path))
    assert [(item.name, item.nbytes) for item in found.variables] == [("state", 16)]
    assert any(name.startswith("libc.so") for name in found.needed)


@pytest.mark.parametrize("option", ["-Wl,-Bsymbolic", "-fvisibility=hidden"])
def test_library_that_binds_to_itself_shares_none(option: str, tmp_path: Path) -> None:
    assert shared_variables(*built(tmp_path, option)).variables == ()


def test_another_library_of_the_name_is_not_read(tmp_path: Path) -> None:
    path, _ = built(tmp_path)
    assert shared_variables(path, "00" * 20) == shared_variables(path, None) == SharedVariables()
    assert shared_variables("/none.so", "00") == SharedVariables()


def test_all_tables_of_relocations_have_one_budget() -> None:
    """However many there are."""
    read: list[int] = []

    def content(section: Any) -> Any:
        def taken(_: int, most: int) -> bytes:
            read.append(min(most, section.nbytes))
            return b""

        return SimpleNamespace(read=taken)

    tables = [SimpleNamespace(nbytes=3 << 20)] * 50
    elf: Any = SimpleNamespace(of_type=lambda kind: iter(tables), content=content)
    assert _used(elf) == set() and sum(read) <= 8 << 20


def test_damaged_libraries_are_survived(tmp_path: Path) -> None:
    """Truncated, and with random bytes."""
    path, known = built(tmp_path)
    whole, rng = Path(path).read_bytes(), random.Random(1)
    other = tmp_path / "other.so"
    for _ in range(200):
        damaged = bytearray(whole[: rng.randrange(1, len(whole))] if rng.random() < 0.3 else whole)
        for _ in range(rng.randint(1, 60)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        other.write_bytes(bytes(damaged))
        assert len(shared_variables(str(other), known).variables) < 64
