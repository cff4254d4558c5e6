"""A structure of Python and the C struct that the failing function reads, by their sources."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import ctypes_access
from pytracer.analyze.evidence.own_code import differing_layout as layouts
from pytracer.analyze.evidence.own_code.struct_fields import c_structures
from pytracer.report.job import NativeFrame

EDGES = """\
struct edge { int64_t dst; float weight; };
void spread(const struct edge *edges, int64_t n, const float *x, float *out) {
    for (int64_t i = 0; i < n; i++) out[i] = edges[i].weight * x[edges[i].dst];
}
"""
ONE_EDGE = EDGES.replace("edges[i].weight * x[edges[i].dst]", "x[edges->dst]")
JOB = """\
typedef struct { const float *data; const int64_t *index; int rows; } Job;
void gather(const Job *job, float *out) { for (int i = 0; i < job->rows; i++) out[i] = job->data[job->index[i]]; }
"""
ROWS = JOB.replace("job->data[job->index[i]]", "i")
BOXES = """\
typedef struct { float corner[3]; int32_t label; double score; } Box;
int worst(Box *boxes, int n) { return counts[boxes[n].label]; }
"""


def found(monkeypatch: pytest.MonkeyPatch, source: str, native: str) -> str | None:
    """What is said of a fault in the function of the C source."""
    declared = list(c_structures(native, "ops.c"))
    monkeypatch.setattr(layouts, "_function", lambda view: native.partition("\n")[2])
    monkeypatch.setattr(layouts, "program_frames", lambda view: [])
    monkeypatch.setattr(layouts, "program_files", lambda snapshot, frames: {"/t/train.py": ast.parse(source)})
    monkeypatch.setattr(layouts, "declared_structures", lambda view, trees: iter(declared))
    monkeypatch.setattr(layouts, "place_of", lambda view, file, line: f"line {line}")
    view: Any = type("View", (), {"process": type("Process", (), {"snapshot": None})})
    told = layouts.differing_layout(view)
    return f"{told.summary(view)}. {told.advice(view)}" if told is not None else None


def structure(name: str, **fields: str) -> str:
    """A ctypes.Structure."""
    pairs = ", ".join(f'("{field}", ctypes.{kind})' for field, kind in fields.items())
    return f"import ctypes\nclass {name}(ctypes.Structure):\n    _fields_ = [{pairs}]\n"


@pytest.mark.parametrize(
    ("source", "native", "words"),
    [
        (
            'EDGE = np.dtype([("dst", np.int64), ("weight", "f4")])\n',
            EDGES,
            (
                "an element of `EDGE` (line 1) has 12 bytes, and the C struct edge (ops.c:1) has 16. Add `align=True` "
                "to the dtype at line 1"
            ),
        ),
        (
            'rows = np.zeros(4, dtype=[("weight", np.float32), ("dst", "<i8")])\n',
            EDGES,
            (
                "`dst` of the dtype (line 1) is at byte 4, and at byte 0 of the C struct edge (ops.c:1). Declare the "
                "fields of the dtype (line 1) in the order and with the types of the C struct edge (ops.c:1): "
                "`dst, weight`."
            ),
        ),
        (
            structure("Job", index="c_void_p", data="c_void_p", rows="c_int"),
            JOB,
            (
                "`data` of Job (line 2) is at byte 8, and at byte 0 of the C struct Job (ops.c:1). Declare `_fields_` "
                "of Job (line 2) in the order and with the types of the C struct Job (ops.c:1): `data, index, rows`."
            ),
        ),
        (
            structure("Job", data="c_void_p", index="c_void_p", rows="c_int64"),
            JOB,
            "`rows` of Job (line 2) has 8 bytes, and 4 in the C struct Job (ops.c:1)",
        ),
        (
            'BOX = np.dtype([("corner", "f8", 3), ("label", "i4"), ("score", "f8")])\n',
            BOXES,
            "`label` of `BOX` (line 1) is at byte 24, and at byte 12 of the C struct Box (ops.c:1)",
        ),
    ],
    ids=["no padding", "other order", "pointers swapped", "other type", "fields of several numbers"],
)
def test_a_field_that_c_reads_from_other_bytes_is_told(
    source: str, native: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (found(monkeypatch, source, native) or "").startswith(words)


@pytest.mark.parametrize(
    ("source", "native"),
    [
        ('EDGE = np.dtype([("dst", np.int64), ("weight", "f4")], align=True)\n', EDGES),
        ('EDGE = np.dtype([("dst", np.int64), ("weight", "f4")])\n', ONE_EDGE),
        ('BOX = np.dtype([("corner", "f4", (3,)), ("label", "i4"), ("score", "f8")])\n', BOXES),
        (structure("Job", data="c_void_p", index="c_void_p", rows="c_int"), JOB),
        (structure("Job", index="c_void_p", data="c_void_p", rows="c_int"), ROWS),
        (structure("Other", width="c_int", height="c_int"), JOB),
        (structure("Job", index="c_void_p", data="c_void_p", rows="c_int"), JOB.replace("const Job *", "const Task *")),
    ],
    ids=["aligned", "one element", "no room", "alike", "not read", "other names", "another struct is read"],
)
def test_structures_that_agree_or_are_not_read_are_not_told(
    source: str, native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(monkeypatch, source, native) is None


GRAPH = """\
typedef struct { int32_t nodes, edges, flags; const int64_t *ptr; } graph;
void walk(const graph *g, float *out) { for (int i = 0; i < g->nodes; i++) out[i] = g->ptr[i]; }
"""
PACKED = structure("Graph", nodes="c_int32", edges="c_int32", flags="c_int32", ptr="c_void_p").replace(
    "    _fields_", "    _pack_ = 1\n    _fields_"
)


@pytest.mark.parametrize(
    ("source", "native", "advice"),
    [
        (PACKED, GRAPH, "Remove `_pack_ = 1` from Graph (line 2): the C struct graph (ops.c:1) is not packed, so that"),
        (
            PACKED.replace("    _pack_ = 1\n", ""),
            GRAPH.replace("} graph", "} __attribute__((packed)) graph"),
            "Set `_pack_ = 1` in Graph (line 2), above `_fields_`: the C struct graph (ops.c:1) is packed.",
        ),
        (
            PACKED.replace('("flags", ctypes.c_int32), ', ""),
            GRAPH,
            "Graph has `_pack_ = 1`, and C does not pack graph. Graph lacks `flags` (`int32_t`).",
        ),
    ],
    ids=["packed in Python", "packed in C", "a field is missing as well"],
)
def test_a_structure_that_only_one_side_packs_is_told_with_that_setting(
    source: str, native: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert advice in (found(monkeypatch, source, native) or "")


def test_a_structure_that_both_sides_pack_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    native = GRAPH.replace("} graph", "} __attribute__((packed)) graph")
    assert found(monkeypatch, PACKED, native) is None


BOX = "typedef struct { int classes; float *prob; float *uc; } detection;\n"
DETECTION = structure("DETECTION", classes="c_int", prob="c_void_p")


@pytest.mark.parametrize(
    ("line", "source", "native", "words"),
    [
        ("score = dets[j].prob[i]", DETECTION, BOX, "an element of DETECTION (line 2) has 16 bytes, and the C struct"),
        ("score = dets.contents.prob", DETECTION, BOX, None),
        ("score = dets[j].other", DETECTION, BOX, None),
        ("score = dets[j].prob[i]", DETECTION, BOX.replace(" float *uc;", ""), None),
        (
            "score = dets.contents.prob",
            DETECTION,
            BOX.replace("float *prob;", "float score; float *prob;").replace("classes;", "classes; double area;"),
            "`prob` of DETECTION (line 2) is at byte 8, where the C struct detection (ops.c:1) has `area`, which the",
        ),
    ],
    ids=["of an element", "of the first", "another field", "alike", "moved"],
)
def test_fields_that_ctypes_reads_for_a_line_of_python(
    line: str, source: str, native: str, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No function of C is on the stack: only what the line reads counts."""
    tree = ast.parse(f"def detect(dets):\n    {line}\n")
    monkeypatch.setattr(ctypes_access, "syntax_tree", lambda snapshot, frame: tree)
    said = found_in_ctypes(monkeypatch, source, native)
    assert (said is not None and said.startswith(words)) if words is not None else said is None


GETTER = ("/usr/lib/_ctypes.cpython-311-x86_64-linux-gnu.so", "f_get")


def found_in_ctypes(
    monkeypatch: pytest.MonkeyPatch, source: str, native: str, stack: Sequence[tuple[str, str | None]] = (GETTER,)
) -> str | None:
    """Of a line whose access ctypes made."""
    declared = list(c_structures(native, "ops.c"))
    frame = SimpleNamespace(file="/t/train.py", line=2)
    inner = [NativeFrame(image=image, function=function) for image, function in stack]
    monkeypatch.setattr(layouts, "_function", lambda view: None)
    for module in (layouts, ctypes_access):
        monkeypatch.setattr(module, "program_frames", lambda view: [frame])
    monkeypatch.setattr(layouts, "program_files", lambda snapshot, frames: {"/t/train.py": ast.parse(source)})
    monkeypatch.setattr(layouts, "declared_structures", lambda view, trees: iter(declared))
    monkeypatch.setattr(layouts, "place_of", lambda view, file, line: f"line {line}")
    view: Any = SimpleNamespace(process=SimpleNamespace(snapshot=None), native_stack=inner)
    told = layouts.differing_layout(view)
    return told.summary(view) if told is not None else None


SCAN = """\
typedef struct {
    long count;
    char *edge, *problem;
    char **labels;
} Scan;
"""
OF_SCAN = structure("ScanStruct", count="c_long", edge="c_char_p", labels="POINTER(ctypes.c_char_p)")
STRLEN, BYTES = ("/lib/x86_64-linux-gnu/libc.so.6", None), ("/usr/lib/libpython3.11.so.1.0", "PyBytes_FromString")


@pytest.mark.parametrize(
    ("stack", "told"),
    [
        ([STRLEN, GETTER], True),
        ([STRLEN, BYTES, GETTER], True),
        ([STRLEN, ("/usr/lib/libffi.so.8", "ffi_call"), GETTER], False),
        ([STRLEN, ("/home/user/scan.so", "scan_label"), GETTER], False),
        ([STRLEN, BYTES], False),
    ],
    ids=["text", "bytes of it", "a function of C that ctypes called", "of the program", "no ctypes"],
)
def test_text_that_ctypes_reads_by_the_c_library_is_of_a_field(
    stack: list[tuple[str, str | None]], told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What C has at that byte is named, as the class has no such field."""
    tree = ast.parse("def read(scan):\n    names = [scan.labels[i].decode() for i in range(scan.count)]\n")
    monkeypatch.setattr(ctypes_access, "syntax_tree", lambda snapshot, frame: tree)
    said = found_in_ctypes(monkeypatch, OF_SCAN, SCAN, stack)
    assert (said is not None) == told
    if said is not None:
        assert said == (
            "`labels` of ScanStruct (line 2) is at byte 16, where the C struct Scan (ops.c:1) has `problem`, which the "
            "class lacks"
        )
