"""A divisor of C that a division made 0, where the C is text of the program, and the number behind a handle."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.native_divisor import native_divisor
from pytracer.decode.types.snapshot import HeldNumber, MemoryBlock, PythonFrame
from pytracer.report.job import NativeFrame

HANDLE = 0x5587_A456_5320
SOURCE = """
#define ROWS 4
typedef struct { const float *data; int total; short batch, spare; } Feed;
Feed *feed_open(const float *data, int total, int batch) {
    Feed *f = calloc(1, sizeof(Feed));
    f->data = data; f->total = total; f->batch = batch;
    return f;
}
int feed_rounds(Feed *f, int left) {
    int whole = f->batch / ROWS;
    return f->total / whole;
}
"""
PROGRAM = '''SOURCE = r"""{source}"""
lib = build(SOURCE{filled})


class Reader:
    def __init__(self, data, batch):
        self.handle = lib.feed_open(data.ctypes.data, 64, batch)

    def rounds(self):
        return lib.feed_rounds(self.handle, 1)


reader = Reader(data, 3)
reader.rounds()
'''


def view_of(
    folder: Path,
    *,
    source: str = SOURCE,
    filled: str = "",
    memory: bytes | None = None,
    function: str | None = "feed_rounds",
    built: int | None = None,
) -> Any:
    """A process that died of a division in a library that is gone. `memory`: at the handle; `built`: in seconds."""
    program, library = folder / "train.py", folder / "build" / "feed.so"
    program.write_text(PROGRAM.format(source=source, filled=filled), encoding="utf-8")
    if built is not None:
        library.parent.mkdir()
        library.write_bytes(b"")
        os.utime(library, (built, built))
    text = program.read_text(encoding="utf-8").splitlines()
    inner = PythonFrame("Reader.rounds", str(program), text.index("        return lib.feed_rounds(self.handle, 1)") + 1)
    outer = PythonFrame("<module>", str(program), len(text))
    own = NativeFrame(function=function, image=str(library))
    blocks = (MemoryBlock("rdi", HANDLE, HANDLE, memory),) if memory is not None else ()
    crash = SimpleNamespace(
        arrays=(), numbers=(HeldNumber("self.handle", HANDLE, inner, 0),), holders=(), arguments=(), memory=blocks,
        python_stack=(inner, outer), python_threads=(), registers={}, mappings=(), native_stack=(),
        images=(SimpleNamespace(path=str(library), start=1, end=2),),
    )  # fmt: skip
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9))
    return SimpleNamespace(
        native_stack=[own, NativeFrame(image="/lib/libffi.so.8")], crash=crash, python_stack=None, region_python=(),
        process=SimpleNamespace(snapshot=snapshot), space=SimpleNamespace(live_around=lambda addr: None),
    )  # fmt: skip


def feed(total: int, batch: int) -> bytes:
    """The structure as it lies in memory."""
    number = total.to_bytes(4, "little", signed=True)
    return bytes(8) + number + batch.to_bytes(2, "little", signed=True) + bytes(10)


@pytest.mark.parametrize("memory", [feed(64, 3), None], ids=["by its memory", "by what was passed"])
@pytest.mark.parametrize("function", ["feed_rounds", None], ids=["named", "of a library that is gone"])
def test_field_behind_a_handle_is_said_with_the_line_that_passed_it(
    memory: bytes | None, function: str | None, tmp_path: Path
) -> None:
    """Also where the library is gone, and with it the names of its functions."""
    found = native_divisor(view_of(tmp_path, memory=memory, function=function))
    assert found is not None and found.cut is not None
    assert found.words == (
        "by its source that is `f->total / whole` (train.py:11), where `whole` is `f->batch / ROWS`, which is 3 / 4: "
        "for `f->batch` line 19 passes `batch` to feed_open()"
    )
    assert found.advice == (
        "Let `f->batch`, here 3, be at least 4 (`ROWS`): for `f->batch` line 19 passes `batch` to feed_open(). Or let "
        "feed_rounds() ask for 0 first: train.py:11 divides by it without a check."
    )
    assert found.cut.names == ("self.handle",)


def test_memory_counts_where_the_program_changed_the_field(tmp_path: Path) -> None:
    """Then no line is said to have passed it."""
    other = "void feed_resize(Feed *f, int batch) { f->batch = batch; }\n"
    found = native_divisor(view_of(tmp_path, source=SOURCE + other, memory=feed(64, 2)))
    assert found is not None and found.cut is not None and found.cut.passed is None
    assert found.words.endswith("`f->batch / ROWS`, which is 2 / 4")


def test_field_that_is_0_itself_is_said_to_be(tmp_path: Path) -> None:
    """What a line passed was 3: it has been changed since, and that line is not said."""
    source = SOURCE.replace("f->batch / ROWS", "f->batch")
    found = native_divisor(view_of(tmp_path, source=source, memory=feed(64, 0)))
    assert found is not None
    assert found.words == (
        "by its source that is `f->total / whole` (train.py:11), where `whole` is `f->batch` with `f->batch` = 0"
    )
    assert found.advice.startswith("Let `f->batch`, here 0, be at least 1. Or let feed_rounds() ask for 0 first:")


def test_library_that_is_newer_than_the_program_was_built_from_it(tmp_path: Path) -> None:
    """As far as that is known."""
    assert native_divisor(view_of(tmp_path, memory=feed(64, 2), built=int(time.time()) + 60)) is not None


@pytest.mark.parametrize(
    "given",
    [
        {"filled": " % 4"},
        {"filled": ".replace('ROWS', '8')"},
        {"built": 1000},
        {"source": SOURCE.replace("left) {", "left) {\n    left += f->total / rand();")},
        {"source": SOURCE.replace("return f->total", "return whole == 0 ? 0 : f->total")},
        {"source": SOURCE + SOURCE[SOURCE.index("int feed_rounds") :]},
    ],
    ids=["a pattern", "replaced", "older than the program", "another division", "asked for", "two of that name"],
)
def test_text_that_may_be_another_source_names_no_divisor(given: dict[str, Any], tmp_path: Path) -> None:
    """The look-alikes."""
    assert native_divisor(view_of(tmp_path, memory=feed(64, 3), **given)) is None


@pytest.mark.parametrize("batch", [8, -3])
def test_quotient_that_is_not_known_to_be_0_is_not_said_to_be(batch: int, tmp_path: Path) -> None:
    """-3 / 4 is 0 in C; only what is cut from a positive number is said."""
    found = native_divisor(view_of(tmp_path, memory=feed(64, batch)))
    assert found is None or found.cut is None


def test_field_that_the_function_sets_is_not_known(tmp_path: Path) -> None:
    source = SOURCE.replace("    int whole", "    f->batch = left;\n    int whole")
    found = native_divisor(view_of(tmp_path, source=source, memory=feed(64, 3)))
    assert found is not None and found.cut is None
