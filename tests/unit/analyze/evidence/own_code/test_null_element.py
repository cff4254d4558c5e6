"""A null element of a table of pointers that C goes through, and what fills such elements."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.null_element import null_element
from tests.support.native_views import native_view

SOURCE = """\
typedef struct { float state[8]; float *more; } Item;
typedef struct { int capacity, write; double *tree; Item **data; } Replay;
void replay_add(Replay *r, const float *s)
{
    r->data[r->write] = new_item(s);
    r->write = (r->write + 1) % r->capacity;
}
static int retrieve(const Replay *r, double s)
{
    int at = 0;
    while (2 * at + 1 < r->capacity)
        at = s <= r->tree[2 * at + 1] ? 2 * at + 1 : 2 * at + 2;
    return at;
}
void replay_sample(const Replay *r, double u, float *out)
{
    int leaf = retrieve(r, u * r->tree[0]);
    const Item *t = r->data[leaf - r->capacity + 1];
    TEST
    memcpy(out, t->state, sizeof t->state);
}
"""
PROGRAM = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(handle, out):
    lib.replay_sample(handle, 0.5, out.ctypes.data)
run(handle, out)
"""


def found(folder: Path, *pairs: tuple[str, str], test: str = "", base: int = 0) -> Any:
    source = SOURCE.replace("TEST", test)
    for old, new in pairs:
        assert old in source
        source = source.replace(old, new)
    view = native_view(folder, PROGRAM, source, at="lib.replay_sample", way=[("replay_sample", "memcpy(out")], addr=0)
    view.instruction = SimpleNamespace(base_value=base)
    return null_element(view)


def test_element_is_named_with_what_fills_it_and_where_its_index_comes_from(tmp_path: Path) -> None:
    told = found(tmp_path)
    assert told.summary == (
        "`t` is null, as the element `r->data[leaf - r->capacity + 1]` (ops.c:18) was, which replay_add() (ops.c:5) "
        "has not filled; `leaf` is `retrieve(r, u * r->tree[0])`"
    )
    assert "retrieve() compares `s`, a float" in told.advice


def test_whole_numbers_are_never_nan(tmp_path: Path) -> None:
    told = found(tmp_path, ("const Replay *r, double s)", "const Replay *r, long s)"))
    assert told is not None and "NaN" not in told.advice


@pytest.mark.parametrize(
    ("pairs", "how"),
    [
        ((), {"test": "if (!t) return;"}),
        ((), {"base": 8}),
        ([("t->state, sizeof t->state", "t->more, 32")], {}),
        ([("    r->write =", "    r->data[r->write - 1] = NULL;\n    r->write =")], {}),
    ],
    ids=["asked", "no null pointer", "another pointer", "cleared"],
)
def test_nothing_is_said_where_it_may_be_otherwise(pairs: Any, how: dict[str, Any], tmp_path: Path) -> None:
    assert found(tmp_path, *pairs, **how) is None
