"""The local array that a native function takes its stack with, by its source; and look-alikes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import large_locals as module
from pytracer.analyze.evidence.own_code.large_locals import large_local
from pytracer.analyze.evidence.own_code.native_source import local_arrays
from pytracer.report.job import NativeFrame, SourceLine

LOW, HIGH = 0x7000_0000, 0x7080_0000  # 8 MiB


def crashed(
    folder: Path, declared: str, monkeypatch: pytest.MonkeyPatch, *, pointer: int = HIGH - 4096, sp: int = LOW - 4096
) -> Any:
    """In the line below the declarations of `letterbox()`."""
    source, library = folder / "letterbox.c", folder / "libletterbox.so"
    source.write_text(
        "#define SIDE 64\nstatic const int kTaps = 16; enum { taps = 8 }; static int side;\n"
        f"void letterbox(int w,\n               int h) {{\n{declared}    use(w);\n}}\n",
        encoding="utf-8",
    )
    library.touch()
    line = 5 + declared.count("\n")
    frame = NativeFrame(image=str(library), function="letterbox", lines=[SourceLine(file=str(source), line=line)])
    monkeypatch.setattr(module, "own_frames", lambda view: [frame])
    monkeypatch.setattr(module, "stack_bounds", lambda view: (LOW, HIGH))
    return SimpleNamespace(crash=SimpleNamespace(registers={"rbp": pointer}, sp=sp))


@pytest.mark.parametrize(
    ("declared", "name", "grows"),
    [
        ("    float data[w * h * 3];\n", "data", "it grows with `w*h*3`"),
        ("    char text[80];\n    float data[w];\n", "data", "it grows with `w`"),
        ("    double table[1024][SIDE][64];\n    char text[80];\n", "table", None),
        ("    double table[1024][TAPS][64];\n    char text[80];\n", None, None),  # not known
        ("    double table[1024][1024];\n    char text[80];\n", "table", None),
        ("    char text[80];\n    float rows[SIDE];\n", None, None),  # neither is large
        ("    float a[w];\n    float b[h];\n", None, None),  # either
        ("    int n = w * h;\n    float data[n];\n", "data", "it grows with `n`"),
        ("    size_t n, m;\n    n = strlen(s);\n    float data[n + 1];\n", "data", "it grows with `n+1`"),
        ("    const size_t n = strlen(s) + 1;\n    char text[n];\n", "text", "it grows with `n`"),
        ("    int n = 16, m = w;\n    float data[m];\n", "data", "it grows with `m`"),
        ("    char path[MAX_PATH];\n    float data[w];\n", "data", "it grows with `w`"),
        ("    if (w > 0) {\n        float data[w];\n        if (h) { use(h); }\n", "data", "it grows with `w`"),
        ("    float taps[kTaps];\n", None, None),  # a constant of the file
        ("    float row[taps];\n", None, None),
        ("    float row[side];\n", None, None),  # not known
        ("    char path[MAX_PATH];\n", None, None),
        ("    const int n = 16;\n    float row[n];\n", None, None),
        ("    const int n = 2 * kTaps + 1;\n    float row[n];\n", None, None),
        ("    int n = 16, m = w;\n    float row[n];\n", None, None),
        ("    const size_t n = (size_t)16 * sizeof(float);\n    char row[n];\n", None, None),
        ("    float taps[kTaps];\n    char *all = alloca(w);\n", None, None),
        ("    float row[w];\n    char *all = alloca(w * h);\n", None, None),  # either
        ("    float row[w];\n    double table[1024][1024];\n", None, None),
        ("    {\n        float row[w];\n        use(row);\n    }\n", None, None),  # that block has ended
        ("    // int n = w;\n    float row[n];\n", None, None),
        ("    float *data = malloc(w * h);\n", None, None),
    ],
)
def test_array_is_of_a_size_that_arguments_decide_or_large(
    declared: str, name: str | None, grows: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where one of them can be meant."""
    found = large_local(crashed(tmp_path, declared, monkeypatch))
    assert (found.array.name if found is not None else None) == name
    if found is not None:
        assert (": it grows with" in found.advice("ulimit")) == (grows is not None)
        assert grows is None or grows in found.advice("ulimit")
        assert found.summary.endswith("is a local array, and its frame takes 8.0 MiB")


def test_frame_pointer_of_another_use_says_no_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimized code without arrays of unknown size keeps any value in rbp."""
    found = large_local(crashed(tmp_path, "    double a[1024][1024];\n", monkeypatch, pointer=7))
    assert found is not None and found.summary.endswith("(letterbox.c:5) is a local array of 8.0 MiB")


def test_small_frame_is_not_why_the_stack_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever an array in it grows with."""
    assert large_local(crashed(tmp_path, "    float a[w];\n", monkeypatch, pointer=LOW + 4096)) is None


def test_stack_that_is_taken_at_the_head_is_that_of_arrays_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler takes it all before the first statement runs, which the head of the function is the line of."""
    view = crashed(tmp_path, "    double a[1024][SIDE][16];\n", monkeypatch, pointer=7)
    lines = [SourceLine(file=str(tmp_path / "letterbox.c"), line=3)]
    head = NativeFrame(image=str(tmp_path / "libletterbox.so"), function="letterbox", lines=lines)
    monkeypatch.setattr(module, "own_frames", lambda view: [head])
    found = large_local(view)
    assert found is not None
    assert found.summary == "`double a[1024][SIDE][16]` (letterbox.c:5) is a local array of 8.0 MiB"


def test_array_of_the_next_function_is_not_of_one_that_ends_on_its_line(tmp_path: Path) -> None:
    source, library = tmp_path / "pool.c", tmp_path / "libpool.so"
    source.write_text(
        "float smooth(const float *x) { workspace ws; return reduce(&ws, x); }\n\n"
        "float spectrum(const float *x) {\n    float bins[4096][128];\n    return bins[0][0];\n}\n",
        encoding="utf-8",
    )
    library.touch()
    for line, names in ((1, []), (3, ["bins"])):
        frame = NativeFrame(image=str(library), lines=[SourceLine(file=str(source), line=line)])
        assert [item.name for item in local_arrays(frame)] == names
