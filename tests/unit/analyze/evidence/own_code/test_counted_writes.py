"""Buffers that C fills by a counter, as far as its inputs go."""

from __future__ import annotations

import ast

import pytest
from msgspec.structs import replace

from pytracer.analyze.evidence.own_code import counted_writes as module
from pytracer.analyze.evidence.own_code.c_text import declared_name, split
from pytracer.analyze.evidence.own_code.own_libraries import OwnCall, OwnLibraries
from pytracer.analyze.evidence.own_code.own_signature import definitions
from pytracer.analyze.evidence.own_code.short_rooms import ShortRoom
from pytracer.analyze.naming import LineWords
from pytracer.report.job import PythonFrame

NMS = """\
void nms(int *keep_out, int *num_out, const float *boxes, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (boxes[i] < 0)
            continue;
        keep_out[kept++] = i;  // the best of those that are left
        for (int j = i + 1; j < n; j++)
            mark(boxes, j);
    }
    *num_out = kept;
}
"""
CALL = "lib.nms(c_void_p(keep.data_ptr()), byref(num),\n        c_void_p(boxes.data_ptr()), c_int(boxes.shape[0]))"


def found(source: str, call: str = CALL, buffer: str | None = "keep") -> module.CountedWrite | None:
    """Of a call at line 1 of the program."""
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    made = next(definitions("nms.c", source.splitlines(), "nms"))
    parameters = [declared_name(item) for item in split(made.parameters)]
    own = OwnCall(PythonFrame(function=None, file="train.py", line=1), call, "nms", ("keep", "num", "boxes"))
    libraries = OwnLibraries(("libnms.so",), (own,), "train.py")
    return module._of(made, libraries, own, dict(zip(parameters, node.args, strict=True)), buffer)


def test_the_line_that_writes_is_named_with_what_counts_it() -> None:
    """And the arguments of the program's call that are the buffer and the count."""
    told = found(NMS)
    assert told is not None
    assert told.summary == (
        "nms() of libnms.so (line 1), whose nms.c:7 (`keep_out[kept++] = i;  // the best of those that are left`) "
        "writes up to `boxes.shape[0]` elements into `keep`"
    )
    assert "For `n` line 2 passes `boxes.shape[0]`, for `keep_out` the memory of `keep`." in told.advice
    assert "Make `keep` with `boxes.shape[0]` elements" in told.advice


def test_one_statement_without_braces_is_the_loop_as_well() -> None:
    source = "void nms(int *out, int *num, const float *x, long n)\n{\n    long k = 0;\n"
    source += "    for (long i = 0; i < n; ++i) if (x[i] > 0) out[k++] = i;\n    *num = k;\n}\n"
    told = found(source)
    assert told is not None and told.line == "nms.c:4"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("continue;", "continue;\n        if (kept >= 300) break;"),
        ("keep_out[kept++] = i;", "if (kept < LIMIT) keep_out[kept++] = i;"),
        ("continue;", "continue;\n        if (kept + 1 > LIMIT) break;"),
        ("continue;", "continue;\n        if (LIMIT - kept <= 0) break;"),
        ("continue;", "continue;\n        int full = kept / LIMIT;\n        if (full) break;"),
        ("continue;", "continue;\n        if (is_full(kept)) break;"),
        ("continue;", "continue;\n        if (room-- == 0) break;"),
        ("boxes[i] < 0", "boxes[i] < 0 || room-- == 0"),
        ("boxes[i] < 0", "boxes[i] < 0 || i >= LIMIT"),
        ("keep_out[kept++] = i;", "keep_out[kept++] = i;\n        if (--room == 0) break;"),
        ("keep_out[kept++] = i;", "if (room > 0) keep_out[kept++] = i;"),
        ("keep_out[kept++] = i;", "if (room == 0) full = 1; else keep_out[kept++] = i;"),
        ("    int kept = 0;", "    int kept = 0;\n    if (n > LIMIT) n = LIMIT;"),
        ("    int kept = 0;", "    int kept = 0;\n    if (n > LIMIT) return;"),
        ("    int kept = 0;", "    int kept = 0;\n    assert(n <= LIMIT);"),
        ("    for (int i", "    for (int b = 0; b < n; b++) for (int i"),
        ("    for (int i = 0;", "    for (int i = n / 2;"),
        ("int kept = 0;", "int *mine = alloc(n); int kept = 0;\n    while (more())"),
        ("keep_out[kept++]", "mine[kept++]"),
        ("keep_out[kept++]", "keep_out[i]"),
        ("i < n; i++", "i < count(boxes); i++"),
    ],
    ids=[
        "left", "tested", "one more tested", "the rest tested", "a quotient tested", "given to a function",
        "another counter", "another counter in one test", "the loop's own counter", "counted behind it",
        "a test around it", "in an else", "its bound cut", "its bound tested", "its bound asserted",
        "two loops", "a part", "while", "its own memory", "no counter", "another bound",
    ],
)  # fmt: skip
def test_other_writes_are_no_suspects(old: str, new: str) -> None:
    """Those that a limit ends, and those whose number the source does not show."""
    assert old in NMS
    assert found(NMS.replace(old, new, 1)) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("boxes[i] < 0", "boxes[i * 4] < 0 && boxes[i] != thr"),
        ("        if (boxes[i] < 0)", "        float box = boxes[i];\n        if (box < thr)"),
        ("    int kept = 0;", "    int kept = 0;\n    if (n <= 0) return;"),
        ("            mark(boxes, j);", "            if (iou(i, j) > thr) mark(boxes, j);"),
    ],
)
def test_tests_of_the_data_are_no_limit(old: str, new: str) -> None:
    assert old in NMS
    assert found(NMS.replace(old, new, 1)) is not None


@pytest.mark.parametrize(
    ("made", "large"),
    [
        ("torch.zeros(300)", False),
        ("torch.zeros(boxes.shape[0])", True),
        ("make(1 + n)", False),
        ("torch.zeros(min(boxes.shape[0], 300))", False),
        ("torch.zeros(max(boxes.shape[0], 300))", True),
    ],
)
def test_buffer_of_that_size_is_large_enough(made: str, large: bool) -> None:
    told = found(NMS)
    assert told is not None
    tree = ast.parse(f"def run(boxes):\n    keep = {made}\n    lib.nms(keep)\n")
    assert module._is_large(tree, 3, told) == large


def test_another_buffer_than_the_one_that_was_overrun_is_none() -> None:
    assert found(NMS, buffer="scores") is None
    assert found(NMS, buffer=None) is not None


def test_buffer_with_a_limit_is_named_with_the_line_that_makes_it() -> None:
    """As a suspect: nothing recorded the write."""
    told = found(NMS)
    assert told is not None
    told = replace(
        told, room=ShortRoom(9, "min(n, 300)"), made=LineWords("line 9", "train.py", 9), inside="Layer.select"
    )
    assert told.summary.startswith("nms() of libnms.so (line 1 in Layer.select), whose nms.c:7 (")
    assert told.summary.endswith(
        "may write up to `boxes.shape[0]` elements into `keep`, which line 9 makes with `min(n, 300)`"
    )
    assert "the memory of `keep`, which line 9 makes with `min(n, 300)`. Make `keep` with" in told.advice
    told = replace(told, room=ShortRoom(9, "size", (312, 300)))
    assert told.summary.endswith("`boxes.shape[0]` = 312 elements into `keep`, which line 9 makes with `size` = 300")
