"""A number of an array that is taken for that of a row which memcpy() copies out of memory that is no tensor."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.wild.copied_row import copied_row
from pytracer.decode.types.snapshot import HeldArray, PythonFrame

ROWS, IDS, ROW = 0x5616_38E8_E000, 0x5616_38F6_41D0, 256
LOW, HIGH = -202_406_114_988, -202_406_110_002
SOURCE = "def vectors(base, ids):\n    flat = ids.reshape(-1).numpy()\n    return base.reconstruct_batch(flat)\n"


def view_of(
    folder: Path, *, number: int = LOW, nbytes: int = ROW, function: str = "__memmove_avx512_unaligned_erms",
    held: str = "flat", high: int = HIGH, start: int | None = None,
) -> Any:  # fmt: skip
    program = folder / "store.py"
    program.write_text(SOURCE, encoding="utf-8")
    frame = PythonFrame("vectors", str(program), 3)
    array = HeldArray(held, IDS, "int64", (512,), (8,), frame, 0)
    integers = SimpleNamespace(base=IDS, minimum=LOW, maximum=high, dtype="int64")
    source = ROWS + nbytes * number if start is None else start
    crash = SimpleNamespace(
        arrays=(array,), holders=(), arguments=(integers,), python_stack=(frame,), python_threads=(),
        registers={"rsi": source, "rdi": IDS, "rdx": nbytes}, images=(),
        mappings=(SimpleNamespace(start=ROWS - (1 << 20), end=ROWS + (1 << 22), permissions="rw-p"),),
    )  # fmt: skip
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9))
    return SimpleNamespace(
        crash=crash, process=SimpleNamespace(snapshot=snapshot), python_stack=None, function=function,
        region_python=(), place=SimpleNamespace(addr=source + 32), native_stack=[],
    )  # fmt: skip


def test_the_array_with_the_number_and_the_size_of_a_row_are_told(tmp_path: Path) -> None:
    view = view_of(tmp_path)
    found = copied_row(view)
    assert found is not None and found.confidence(view) == "likely"
    assert found.clause(view) == (
        f": a number of `flat` ({LOW}..{HIGH}) was taken for that of a row of 256 bytes, and leads far out of the "
        "memory with the rows"
    )
    assert found.advice(view).startswith(
        "Check the numbers of `flat`, which line 2 (`flat = ids.reshape(-1).numpy()`) makes, before line 3 passes it"
    )


@pytest.mark.parametrize(
    "how",
    [
        {"function": "at::native::gather"},
        {"held": "other"},
        {"start": ROWS - (1 << 42)},
        {"nbytes": 1 << 21},
        {"nbytes": 0},
    ],
    ids=["no copy", "not passed", "leads elsewhere", "no row", "nothing copied"],
)
def test_other_accesses_are_no_rows(how: dict[str, Any], tmp_path: Path) -> None:
    assert copied_row(view_of(tmp_path, **how)) is None


def test_a_number_that_leads_near_by_may_be_any(tmp_path: Path) -> None:
    """So that the memory with the rows would be met by chance."""
    view = view_of(tmp_path, number=-4000)
    view.crash.arguments[0].minimum, view.crash.arguments[0].maximum = -4000, -1
    assert copied_row(view) is None
