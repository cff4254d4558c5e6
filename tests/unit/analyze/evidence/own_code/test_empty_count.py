"""An unsigned count of 0 that C takes 1 from, by the source and by what the line passed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.empty_count import empty_count
from tests.support.native_views import DATA, native_view

SOURCE = """\
int transitions(const int *labels, TYPE n, int *longest)
{
    int changes = 0;
    TEST
    for (size_t i = 0; i < LAST; i++)
        changes += labels[i] != labels[i + 1];
    return changes;
}
"""
PROGRAM = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(labels, longest):
    lib.transitions(labels.ctypes.data, labels.size, longest.ctypes.data)
run(pred[valid], longest)
"""


def found(
    folder: Path, *, kind: str = "size_t", test: str = "", size: int = 0, gone: bool = False,
    last: str = "n - 1",
) -> Any:  # fmt: skip
    source = SOURCE.replace("TYPE", kind).replace("TEST", test).replace("LAST", last)
    return empty_count(
        native_view(
            folder, PROGRAM, source, at="lib.transitions", way=[("transitions", "changes += labels")],
            arrays=[("labels", DATA, "int32", (size,))], gone=gone,
        )
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "bits"), [("size_t", 64), ("unsigned int", 32), ("uint64_t", 64)])
def test_count_and_what_is_taken_from_it_are_named(kind: str, bits: int, tmp_path: Path) -> None:
    told = found(tmp_path, kind=kind)
    assert told.summary == (
        "`n` is 0, for which line 4 passes `labels.size`, and `n - 1` (ops.c:5) is then no number below 0, but almost "
        f"2**{bits}"
    )
    assert told.advice.startswith("Leave out the call where `labels.size` is 0, before line 4")


@pytest.mark.parametrize(
    "how",
    [
        {"size": 1},
        {"kind": "int"},
        {"test": "if (n < 2) return 0;"},
        {"test": "assert(n);"},
        {"test": "n = n ? n : 1;"},
        {"kind": "uint8_t"},  # an int by then
        {"kind": "unsigned short"},
        {"last": "(long)n - 1"},
        {"last": "4 + n - 1"},
        {"last": "n; int last = n - 1"},
        {"last": "n && labels[n - 1 - i]"},  # not reached
    ],
)
def test_nothing_is_said_where_it_does_not_wrap(how: dict[str, Any], tmp_path: Path) -> None:
    assert found(tmp_path, **how) is None
