"""Functions that a library takes from others: by its table of dynamic symbols."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pytracer.decode.files import Window, regular_file
from pytracer.decode.symbols.elf_sections import Elf
from pytracer.decode.symbols.image_symbols import imported
from tests.conditions import needs_compiler

SOURCE = """#include <fenv.h>
int fegetround(void) { return 0; }
int strict(void) { return feenableexcept(FE_INVALID); }
"""
ASKED = ("feenableexcept", "fegetround", "strict", "fedisableexcept")


@needs_compiler
def test_only_what_a_library_does_not_define_is_imported(tmp_path: Path) -> None:
    """Of the very library that was loaded."""
    source, library = tmp_path / "strict.c", tmp_path / "libstrict.so"
    source.write_text(SOURCE, encoding="utf-8")
    command = ["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-Wl,--build-id", str(source), "-o", str(library), "-lm"]
    subprocess.run(command, check=True)
    with regular_file(str(library)) as file:
        build_id = Elf(Window(file)).build_id()
    assert imported(str(library), build_id, ASKED) == {"feenableexcept"}
    assert imported(str(library), "00", ASKED) == imported(str(library), None, ASKED) == frozenset()
    assert imported(str(source), build_id, ASKED) == imported("/none.so", build_id, ASKED) == frozenset()
