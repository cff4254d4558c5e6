"""Memory for each thread that was made for fewer threads, and what looks like that."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.per_thread_memory import per_thread_memory
from pytracer.analyze.evidence.wild.thread_table import thread_table
from pytracer.decode.types.snapshot import PythonFrame as SnapshotFrame
from pytracer.report.job import NativeFrame
from tests.support.scenarios import program_in

C = """#include <omp.h>
bank_t *bank_create(int width) {
    int n = omp_get_max_threads();
    b->work = calloc(n, sizeof(float *));
    return b;
}
void bank_threads(int n) { omp_set_num_threads(n); }
void bank_energy(bank_t *b, const float *x, long frames) {
    #pragma omp parallel for
    for (long f = 0; f < frames; f++) {
        float *w = b->work[omp_get_thread_num()];
        memcpy(w, x + f, 4);
    }
}
"""
SOURCE = """lib.bank_threads(1)
handle = lib.bank_create(512)
torch.set_num_threads(4)
lib.bank_energy(handle, x.data_ptr(), 9)
"""


def failed(run: Path, c: str = C, *, function: str = "bank_energy._omp_fn.0", kind: str = "openmp") -> Any:
    """A thread of that kind failed in memcpy() below that function of a library that was built beside its source."""
    program, source, library = program_in(run, SOURCE), run / "bank.c", run / "libbank.so"
    source.write_text(c, encoding="utf-8")
    library.write_bytes(b"")
    os.utime(source, (1, 1))
    native = [
        NativeFrame(function="__memmove_avx512_unaligned_erms", image="/lib/x86_64-linux-gnu/libc.so.6"),
        NativeFrame(function=function, image=str(library)),
    ]
    frame = SnapshotFrame("<module>", str(program), 4)
    snapshot = SimpleNamespace(argv=(), created_wall_ns=1 << 62, pid=7, holders=())
    return SimpleNamespace(
        thread=SimpleNamespace(kind=kind),
        native_stack=native,
        process=SimpleNamespace(snapshot=snapshot),
        crash=SimpleNamespace(python_stack=(frame,)),
    )


def test_lines_that_set_the_number_of_threads_are_named(run: Path) -> None:
    """Of the library and of torch, with what makes the table and what reads behind it."""
    found = per_thread_memory(failed(run))
    assert found is not None
    assert found.summary == (
        "`b->work[omp_get_thread_num()]` (bank.c:11) likely has fewer entries than threads run: bank_create() "
        "(bank.c:3) makes one for each of `omp_get_max_threads()` at its time; line 1 (`lib.bank_threads(1)`) and "
        "line 3 (`torch.set_num_threads(4)`) set that number"
    )
    assert found.advice.startswith(
        "Set the number of threads (line 3 (`torch.set_num_threads(4)`)) before bank_create() is called (line 2 "
        "(`lib.bank_create(512)`)), and call it again after each change."
    )


def test_wild_address_is_told_by_the_same(run: Path) -> None:
    """What lies behind a table may be anything."""
    found = thread_table(failed(run))
    assert found is not None
    assert found.advice(failed(run)).startswith("Set the number of threads")


def test_number_that_a_variable_holds_is_followed(run: Path) -> None:
    """`int t = omp_get_thread_num();`."""
    c = C.replace("b->work[omp_get_thread_num()]", "b->work[t]").replace(
        "float *w", "int t = omp_get_thread_num(); float *w"
    )
    found = per_thread_memory(failed(run, c))
    assert found is not None
    assert found.indexed == "b->work[t]"


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "main"},  # it has number 0, for which there is an entry
        {"function": "bank_energy"},  # no parallel region
        {"function": "bank_reset._omp_fn.0"},  # another one
        {"c": C.replace("omp_get_max_threads()", "64")},  # of a fixed size
        {"c": C.replace("b->work[omp_get_thread_num()]", "malloc(4)")},
        {"c": C.replace("memcpy(w", "float *v = b->more[omp_get_thread_num()]; memcpy(w")},  # which of two
    ],
    ids=["main thread", "no region", "another region", "fixed", "own memory", "two tables"],
)
def test_other_faults_of_parallel_regions_are_not_explained_so(changed: dict[str, str], run: Path) -> None:
    """The look-alikes."""
    assert per_thread_memory(failed(run, **changed)) is None
