"""Null pointers that the program's own C got from a call and passes on: by the source, along the native stack."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.null_argument import null_argument
from pytracer.decode.types.snapshot import HeldArray, PythonFrame
from pytracer.report.job import NativeFrame, SourceLine

SOURCE = """#include <stdlib.h>
static node *build(const float *x, long *ids, long count)
{
    {nothing}
    node *t = malloc(sizeof *t);
    return t;
}
static void query(search *s, const node *t, const float *q)
{
    {before}
    {use}
}
long knn(const float *x, const long *ptr, long batches, const float *q)
{
    for (long b = 0; b < batches; b++) {
        long n = {size};
        {made}
        {between}
        search s = {x};
        {call}
    }
    return 0;
}
"""
PROGRAM = """def knn(lib, x, ptr, q):
    return lib.knn(x.ctypes.data, ptr.ctypes.data, len(ptr) - 1, q.ctypes.data)


knn(1, 2, 3, 4)
"""
USE = "const float *p = s->x + t->point * s->width;"
MADE, CALL = "node *tree = build(x, ids, n);", "query(&s, tree, q);"


def view_of(
    folder: Path,
    *,
    nothing: str = "if (count == 0) return NULL;",
    before: str = "float d = 0;",
    use: str = USE,
    size: str = "ptr[b + 1] - ptr[b]",
    made: str = MADE,
    between: str = "",
    call: str = CALL,
    base: int = 0,
) -> Any:
    """A process that died in line `use` of query(), which knn() called."""
    file, library, program = folder / "knn.c", folder / "libknn.so", folder / "train.py"
    text = SOURCE
    for name, words in (
        ("nothing", nothing), ("before", before), ("use", use), ("size", size), ("made", made), ("between", between),
        ("call", call),
    ):  # fmt: skip
        text = text.replace(f"{{{name}}}", words)
    file.write_text(text, encoding="utf-8")
    library.write_bytes(b"")
    program.write_text(PROGRAM, encoding="utf-8")
    os.utime(file, (1000, 1000))
    inner = PythonFrame("knn", str(program), 2)
    stack = (inner, PythonFrame("<module>", str(program), 5))
    crash = SimpleNamespace(
        arrays=(HeldArray("ptr", 4096, "int64", (9,), (8,), inner, 0),), numbers=(), holders=(), arguments=(),
        python_stack=stack, python_threads=(), native_stack=(), registers={}, threads=(),
        images=(SimpleNamespace(path=str(library), start=1, end=2),),
    )  # fmt: skip
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9))
    frames = [
        NativeFrame(function=name, image=str(library), lines=[SourceLine(name, str(file), line)])
        for name, line in (("query", 11), ("knn", 20))
    ]
    return SimpleNamespace(
        native_stack=frames, crash=crash, process=SimpleNamespace(snapshot=snapshot), python_stack=None,
        region_python=(), region_opener=None, instruction=SimpleNamespace(base="rax", base_value=base),
        space=SimpleNamespace(live_around=lambda addr: None),
    )  # fmt: skip


def test_pointer_is_followed_to_the_call_that_returned_null_and_to_the_empty_group(tmp_path: Path) -> None:
    found = null_argument(view_of(tmp_path))
    assert found is not None
    assert found.summary == "`tree` is null, as `build(x, ids, n)` at knn.c:17 returned it; query() has it as `t`"
    assert found.advice == (
        "Check `tree` before knn.c:20 passes it to query(): nothing does behind `build(x, ids, n)` at knn.c:17, which "
        "returns null at knn.c:4 where `n == 0`. `n` is `ptr[b + 1] - ptr[b]` there: let knn() skip an empty group, or "
        "leave these out of `ptr`, which line 2 passes: `(np.diff(ptr) == 0).nonzero()`."
    )


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"nothing": "if (!count) { return nullptr; }"}, "returns null at knn.c:4 where `!n`"),
        ({"nothing": "if (count < 1) return 0;"}, "`n` is `ptr[b + 1] - ptr[b]` there"),
        ({"size": "sizes[b]"}, "`n` is `sizes[b]` there: let knn() skip what is empty."),
        ({"nothing": "if (x[0] > 0) return NULL;"}, "returns null at knn.c:4. Let knn() skip that"),
        ({"nothing": "if (count) return NULL;"}, "returns null at knn.c:4. Let knn() skip that"),
        ({"nothing": "count -= 1; if (count == 0) return NULL;"}, "returns null at knn.c:4. Let knn() skip that"),
        ({"use": "s->best[0] = t->point;"}, None),
        ({"use": "visit(t->point);"}, None),
        ({"use": "float d = t->point;"}, "Check `tree` before knn.c:20"),
    ],
)
def test_what_the_source_does_not_show_is_left_out(how: dict[str, Any], words: str | None, tmp_path: Path) -> None:
    found = null_argument(view_of(tmp_path, **how))
    assert (found is None) if words is None else (found is not None and words in found.advice)


@pytest.mark.parametrize(
    "how",
    [
        {"before": "if (!t) return;"},
        {"before": "assert(t);"},
        {"before": "t = t->left;"},
        {"between": "if (tree == NULL) continue;"},
        {"between": "tree = trees[b];"},
        {"call": "query(state, tree, q);"},  # `state` may be null as well
        {"call": "query(&s, trees[b], q);"},
        {"made": "node *tree = n ? build(x, ids, n) : last;"},
        {"base": 0x1000},
    ],
)
def test_pointer_that_is_asked_for_or_may_be_another_one_is_none(how: dict[str, Any], tmp_path: Path) -> None:
    assert null_argument(view_of(tmp_path, **how)) is None
