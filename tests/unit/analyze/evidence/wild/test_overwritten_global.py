"""Two libraries of a program that define a variable of one name: what one writes, the other takes for its pointer."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.wild.explain import explained_access
from pytracer.analyze.evidence.wild.overwritten_global import overwritten_global
from pytracer.decode.files import Window, regular_file
from pytracer.decode.symbols.elf_sections import Elf
from pytracer.decode.symbols.shared_variables import shared_variables
from pytracer.decode.types.snapshot import LoadedImage, MemoryBlock, PythonFrame
from pytracer.report.job import NativeFrame, SourceLine
from tests.conditions import needs_compiler

pytestmark = needs_compiler
READER = """#include <stdlib.h>
struct reader { long at; };
struct reader *state;
void reader_open(void) { state = calloc(1, sizeof *state); }
void reader_rewind(void) { state->at = 0; }
"""
SAMPLER = """unsigned long state[2];
void sampler_seed(unsigned long s) { state[0] = s * 3; state[1] = s; }
unsigned long sampler_peek(void) { return state[0]; }
"""
PROGRAM = """import ctypes
def load(path):
    return ctypes.CDLL(path, mode=ctypes.{mode})
class Sampler:
    def __init__(self, seed):
        self.lib = load("libsampler.so")
        self.lib.sampler_seed(seed)
def main():
    reader.reader_rewind()
reader = load("libreader.so")
main()
"""
WILD, BIAS = 0x21975385815332E4, 0x7F00_0000_0000


def image_of(folder: Path, name: str, source: str, number: int, *options: str) -> LoadedImage:
    """Compiled with debug information, and loaded."""
    (folder / f"{name}.c").write_text(source, encoding="utf-8")
    path = folder / f"lib{name}.so"
    command = ["cc", "-g", "-shared", "-fPIC", "-Wl,--build-id", *options, f"{name}.c", "-o", str(path)]
    subprocess.run(command, cwd=folder, check=True)
    with regular_file(str(path), follow=True) as file:
        build_id = Elf(Window(file)).build_id()
    bias = BIAS + number * 0x10_0000
    return LoadedImage(str(path), bias, bias + 0x5000, bias, build_id)


def view_of(
    folder: Path, *, reader: str = READER, sampler: str = SAMPLER, mode: str = "RTLD_GLOBAL", held: int | None = WILD,
    ran: str = "libreader.so", options: tuple[str, ...] = (), needs: tuple[str, ...] = (), program: str = PROGRAM,
) -> Any:  # fmt: skip
    """`held`: what the reader's variable held when it was used as an address."""
    images = (image_of(folder, "reader", reader, 0, *needs), image_of(folder, "sampler", sampler, 1, *options))
    found = shared_variables(images[0].path, images[0].build_id).variables
    addr = images[0].bias + found[0].addr if found else BIAS
    script = folder / "train.py"
    script.write_text(program.format(mode=mode), encoding="utf-8")
    content = bytes(8) + (held or 0).to_bytes(8, "little") + bytes(8)
    memory = (MemoryBlock("rbx", addr, addr - 8, content),) if held is not None else ()
    frames = tuple(PythonFrame(name, str(script), line) for name, line in (("main", 9), ("<module>", 11)))
    crash = SimpleNamespace(
        images=images, memory=memory,
        python_stack=frames, python_threads=(), registers={"rax": WILD, "rbx": addr}, arrays=(), holders=(),
    )  # fmt: skip
    snapshot = SimpleNamespace(pid=1, threads=(), argv=("python", str(script)), created_wall_ns=time.time_ns() + 10**9)
    line = SourceLine(file=str(folder / "reader.c"), line=5)
    native = NativeFrame(image=str(folder / ran), function="reader_rewind", lines=[line])
    return SimpleNamespace(
        crash=crash, process=SimpleNamespace(snapshot=snapshot), python_stack=None, region_python=(),
        native_stack=[native], instruction=SimpleNamespace(base_value=WILD, index=None),
        place=SimpleNamespace(addr=WILD, kind="non-canonical"),
    )  # fmt: skip


def test_the_library_that_wrote_over_the_pointer_is_named(tmp_path: Path) -> None:
    view = view_of(tmp_path)
    found = overwritten_global(view)
    assert found is not None and found.verdict_class == "wild-pointer"
    assert found.clause(view) == (
        ": the global `state` of libreader.so holds it, likely written by sampler_seed() of libsampler.so, whose own "
        "global has the same name, and RTLD_GLOBAL (line 3) makes both one"
    )
    advice = found.advice(view)
    assert "`struct reader *state` (reader.c:3) and `unsigned long state[2]` (sampler.c:1)" in advice
    assert "load the libraries without RTLD_GLOBAL (line 3). Line 7 calls what writes it." in advice
    (evidence,) = (item for item in found.evidence(view, None) if item is not None)
    assert evidence.sentence == (
        "libreader.so (8 bytes) and libsampler.so (16 bytes) both export a variable `state`, and libsampler.so uses it "
        "by its name"
    )
    assert isinstance(explained_access(view), type(found))


def test_the_same_size_is_enough_where_the_sources_have_other_types(tmp_path: Path) -> None:
    sampler = SAMPLER.replace("state[2]", "state").replace("state[0]", "state").replace("state[1]", "state")
    found = overwritten_global(view_of(tmp_path, sampler=sampler))
    assert found is not None and "`unsigned long state` (sampler.c:1)" in found.found.advice


NEEDS = ("-Wl,--no-as-needed", "-L.")


def test_library_comes_before_those_that_it_needs(tmp_path: Path) -> None:
    """Without RTLD_GLOBAL: the linker was told of both."""
    image_of(tmp_path, "sampler", SAMPLER, 0)
    found = overwritten_global(view_of(tmp_path, mode="RTLD_LOCAL", needs=(*NEEDS, "-lsampler")))
    assert found is not None and found.found.scope is None and "and both are one" in found.found.summary
    assert "RTLD_GLOBAL" not in found.found.advice


def test_library_that_is_needed_does_not_hold_the_variable_of_both(tmp_path: Path) -> None:
    """That of the library which needs it comes first."""
    image_of(tmp_path, "reader", READER, 0)
    assert overwritten_global(view_of(tmp_path, mode="RTLD_LOCAL", options=(*NEEDS, "-lreader"))) is None


def test_other_library_that_is_loaded_with_rtld_global_makes_nothing_one(tmp_path: Path) -> None:
    """The mode is of its own call."""
    program = PROGRAM.format(mode="RTLD_LOCAL") + 'other = ctypes.CDLL("libm.so.6", mode=ctypes.RTLD_GLOBAL)\n'
    assert overwritten_global(view_of(tmp_path, program=program)) is None


def test_library_that_is_loaded_so_by_its_own_name_is_found(tmp_path: Path) -> None:
    program = PROGRAM.format(mode="RTLD_LOCAL").replace(
        'load("libreader.so")', 'ctypes.CDLL("./libreader.so", ctypes.RTLD_GLOBAL)'
    )
    found = overwritten_global(view_of(tmp_path, program=program))
    assert found is not None and "RTLD_GLOBAL (line 10) makes both one" in found.found.summary


def test_address_of_the_variable_is_no_write(tmp_path: Path) -> None:
    """But where it is copied to."""
    sampler = SAMPLER + "void *sampler_address(void) { return &state; }\nvoid f(void *x) { memcpy(&state, x, 8); }\n"
    found = overwritten_global(view_of(tmp_path, sampler="#include <string.h>\n" + sampler))
    assert found is not None and "by sampler_seed() or f() of libsampler.so" in found.found.summary


def test_long_blanks_in_a_source_take_little_time(tmp_path: Path) -> None:
    sampler = SAMPLER + f"int a /*{'-' * 200_000}*/ ;\n/*{'x ' * 100_000}*/\n"
    began = time.process_time()
    assert overwritten_global(view_of(tmp_path, sampler=sampler)) is not None
    assert time.process_time() - began < 8


def test_variable_that_the_function_goes_through_is_named_where_its_memory_was_not_kept(tmp_path: Path) -> None:
    """The register with its address was used again."""
    found = overwritten_global(view_of(tmp_path, held=None))
    assert found is not None and found.found.summary.startswith(
        "the global `state` of libreader.so, through which reader.c:5 goes, may have been overwritten by sampler_seed()"
    )
    assert "RTLD_GLOBAL (line 3) may make both one" in found.found.summary and not found.is_explained


@pytest.mark.parametrize(
    "rewind",
    [
        "void reader_rewind(struct reader *state) { state->at = 0; }",
        "void reader_rewind(void) { struct reader *state = other(); state->at = 0; }",
        "void reader_rewind(void) { other()->at = 0; }",
    ],
    ids=["a parameter", "a local variable", "another pointer"],
)
def test_another_pointer_of_the_function_is_not_laid_to_it(rewind: str, tmp_path: Path) -> None:
    reader = "\n".join(READER.replace("#include <stdlib.h>", "extern struct reader *other(void);").splitlines()[:3])
    reader += f"\nvoid reader_open(void) {{ state = 0; }}\n{rewind}\n"
    assert overwritten_global(view_of(tmp_path, reader=reader, held=None)) is None


@pytest.mark.parametrize(
    "how",
    [
        {"mode": "RTLD_LOCAL"},
        {"sampler": SAMPLER.replace("unsigned long state[2]", "static unsigned long state[2]")},
        {"sampler": SAMPLER.replace("state", "seed")},
        {"sampler": f"#pragma GCC visibility push(hidden)\n{SAMPLER}"},
        {"sampler": READER},
        {"reader": READER.replace("struct reader *state", "static struct reader *state")},
        {"held": 0x7F00_1234_5678},
        {"ran": "libc.so.6"},
        {"options": ("-Wl,-Bsymbolic",)},
    ],
    ids=["own scopes", "static", "another name", "hidden", "the same variable", "own pointer", "came from elsewhere",
         "used by another", "bound to itself"],
)  # fmt: skip
def test_variables_that_are_not_one_are_not_laid_to_it(how: dict[str, Any], tmp_path: Path) -> None:
    assert overwritten_global(view_of(tmp_path, **how)) is None
