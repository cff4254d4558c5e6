"""An index that leads out of an array of a fixed size in a structure of C, by the address that Python has of it."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.struct_arrays import struct_array
from pytracer.analyze.evidence.wild import fixed_array as fixed_array_module
from tests.support.native_views import DATA, OTHER, native_view

SOURCE = """\
#define MAX_POINTS 100
typedef struct { float x, y, z, w; } point_t;
typedef struct { int kind; point_t road[MAX_POINTS]; int used; int other; } world_t;
world_t *world_new(void) { return MAKE; }
void world_add(world_t *w, const float *xy, int n)
{
    for (int i = 0; i < n; i++) {
        point_t *p = &w->road[INDEX];
        p->x = xy[2 * i];
        p->y = xy[2 * i + 1];
    }
}
"""
PROGRAM = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(world, points):
    lib.world_add(world, points.ctypes.data, len(points))
def main(world, lanes):
    for lane in lanes:
        run(world, lane)
"""
ARRAY, ELEMENT, MOST = 4, 16, 100  # where `road` begins
FLOAT = 133.5
BITS = struct.unpack("<I", struct.pack("<f", FLOAT))[0]


def found(
    folder: Path, index: int, *, written: str = "w->used++", make: str = "calloc(1, sizeof(world_t))", offset: int = 0,
    source: str = SOURCE, **how: Any,
) -> Any:  # fmt: skip
    text = source.replace("INDEX", written).replace("MAKE", make)
    return struct_array(
        native_view(
            folder, PROGRAM, text, at="lib.world_add", way=[("world_add", "p->x =")], outer="run(world, lane)",
            numbers={"world": DATA}, arrays=[("points", OTHER, "float32", (50, 2))],
            addr=DATA + ARRAY + index * ELEMENT + offset, **how,
        )
    )  # fmt: skip


def test_counter_behind_the_array_was_overwritten_by_the_first_element_without_room(tmp_path: Path) -> None:
    """Its number is what the running line writes, as memory shows."""
    told = found(tmp_path, BITS, memory=[("rsi", OTHER, struct.pack("<ff", 1.0, FLOAT))])
    assert told.summary == (
        f"index {BITS} leads out of `road` of world_t, which has 100 elements (ops.c:3, `MAX_POINTS`): `used`, which "
        "is the index, lies right behind it, and was overwritten with the number 133.5 by element 100"
    )
    assert "world_add() adds one at `used`, which it compares with nothing (ops.c:8:" in told.advice
    assert f"the address is in element {BITS} of `road`" in told.evidence.sentence


def test_number_that_memory_does_not_show_is_only_probable(tmp_path: Path) -> None:
    assert "was probably overwritten with the number 133.5" in found(tmp_path, BITS).summary


def test_counter_that_nothing_sets_may_never_have_been_set(tmp_path: Path) -> None:
    """What malloc() left in it leads astray as well."""
    told = found(tmp_path, BITS, make="malloc(sizeof(world_t))")
    assert told.summary.endswith("so that element 100 overwrites it; or it was never set")
    assert "it may never have been set" in told.advice


def test_garbage_of_the_structure_itself_is_no_proof_that_it_was_overwritten(tmp_path: Path) -> None:
    garbage = 0x3F3F3F3F
    told = found(tmp_path, garbage, make="malloc(sizeof(world_t))", memory=[("r13", DATA, b"\x3f" * 64)])
    assert "or it was never set" in told.summary


def test_counter_that_lies_elsewhere_is_not_overwritten(tmp_path: Path) -> None:
    source = SOURCE.replace("int used; int other;", "").replace("int kind;", "int used;")
    told = found(tmp_path, MOST + 4000, source=source)
    assert told.summary.endswith(": it is `used`, which counts them")


def test_index_that_is_no_counter_is_checked_where_it_comes_from(tmp_path: Path) -> None:
    told = found(tmp_path, 1 << 26, written="n * i")
    assert (
        told.summary
        == f"index {1 << 26} leads out of `road` of world_t, which has 100 elements (ops.c:3, `MAX_POINTS`)"
    )
    assert told.advice.startswith(
        f"Check where `n * i` comes from: it was {1 << 26}, and `road` has `MAX_POINTS` (100)"
    )


def test_address_within_the_array_is_not_explained(tmp_path: Path) -> None:
    assert found(tmp_path, 50) is None


def test_address_of_another_member_of_the_element_is_not_explained(tmp_path: Path) -> None:
    """The line writes `x`, which is the first one: the address came about otherwise."""
    assert found(tmp_path, BITS, offset=8) is None


def test_structure_whose_address_is_not_known_is_not_explained(tmp_path: Path) -> None:
    assert found(tmp_path, BITS, source=SOURCE.replace("INDEX];", "INDEX]; w = w->next;")) is None


@pytest.mark.parametrize(
    ("index", "how"),
    [
        (BITS, {"source": SOURCE.replace("p->x = xy[2 * i];", "p = next(p);\n        p->x = xy[2 * i];")}),
        (1 << 26, {"written": "w->used++ & 63"}),
        (1 << 26, {"written": "n % MAX_POINTS"}),
        (1 << 26, {"written": "0"}),
        (1 << 36, {}),
        ((OTHER + 50 * 8 - DATA - ARRAY) // ELEMENT + 1, {}),
    ],
    ids=["another pointer", "masked", "modulo", "constant", "no int", "behind the array that it reads"],
)
def test_address_that_the_index_cannot_have_made_is_not_explained(
    index: int, how: dict[str, Any], tmp_path: Path
) -> None:
    assert found(tmp_path, index, **how) is None


@pytest.mark.parametrize(
    "source",
    [
        SOURCE.replace("point_t *p =", "if (w->used >= MAX_POINTS) return;\n        point_t *p ="),
        SOURCE.replace("void world_add", "int full(world_t *w) { return w->used >= MAX_POINTS; }\nvoid world_add"),
    ],
    ids=["here", "in a helper"],
)
def test_counter_that_is_compared_is_not_said_to_be_overwritten_by_the_next_element(
    source: str, tmp_path: Path
) -> None:
    told = found(tmp_path, 5000, source=source)
    assert told.summary.endswith(": it is `used`")
    assert told.advice.startswith("`used` was 5000, although it is compared: see where it is set")


@pytest.mark.parametrize(
    ("held", "number", "confidence"),
    [(DATA, BITS + 1, "certain"), (DATA, 7, "likely"), (DATA + 8, BITS, "likely")],
)
def test_registers_with_the_address_of_the_structure_and_the_index_make_it_certain(
    held: int, number: int, confidence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = SimpleNamespace(crash=SimpleNamespace(registers={"r13": held, "rax": number}))
    told = found(tmp_path, BITS)
    monkeypatch.setattr(fixed_array_module, "struct_array", lambda view: told)
    explanation: Any = fixed_array_module.fixed_array(view)  # type: ignore[arg-type]
    assert explanation.confidence(view) == confidence and explanation.verdict_class == "out-of-bounds"
    assert explanation.clause(view) == f": {told.summary}"
