"""A native object that its owner in Python freed while another one uses it; and owners that live, or free nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import dropped_handle as module
from pytracer.analyze.evidence.own_code.dropped_handle import DroppedHandle, dropped_handle
from pytracer.analyze.evidence.own_code.own_signature import Definition
from pytracer.report import job as r
from tests.unit.analyze.evidence.lifetime.test_where_made import view_of

PROGRAM = """import ctypes
so = ctypes.CDLL("libvec.so")
KNOWN = []
class Flat:
    def __init__(self, rows):
        self.handle = so.flat_new(rows)
    def __del__(self):
        so.flat_free(self.handle)
class Index:
    def __init__(self, quantizer, dim):
        self.handle, self.dim = so.ivf_new(quantizer.handle, dim), dim
    def search(self, rows):
        so.ivf_search(self.handle, rows)
def make(rows):
    quantizer = Flat(rows)
    index = Index(quantizer, 8)
    return index
def main(rows):
    index = make(rows)
    index.search(rows)
main(9)
"""
BUILD = PROGRAM.partition("def make")[0]
C_KEEPS = "IVF *ivf_new(Flat *quantizer, long d) {\n v->d = d; v->quantizer = quantizer; return v; }\n// quantizer"
C_PART = "IVF *ivf_new(Flat *quantizer, long d) {\n v->d = quantizer->d; v->xb = quantizer->xb; return v; }"
C_READS = "IVF *ivf_new(Flat *quantizer, long d) {\n v->d = d * quantizer->n; return v; }\n  f(v->d, quantizer);"


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Of a program that died in the line with `ivf_search`, called by the lines with `.search(` and `main(9)`."""
    monkeypatch.setattr(module, "own_frames", lambda view: [r.NativeFrame(image="/home/me/libvec.so")])

    def judge(source: str, native: str | None = None, *, anywhere: bool = False) -> DroppedHandle | None:
        made = (
            Definition("vec.c:7", "vec.c", 7, "Flat *quantizer, long d", native or "", native or "") if native else None
        )
        monkeypatch.setattr(module, "own_definition", lambda view, function: made)
        lines = source.splitlines()

        def line(text: str) -> int:
            return max(number for number, one in enumerate(lines, 1) if text in one)

        view = view_of(tmp_path, source, line("so.ivf_search("))
        frame = view.crash.python_stack[0]
        outer = [replace(frame, line=line(text)) for text in (".search(rows)", "main(9)")]
        view.crash.python_stack = (frame, *outer)
        return dropped_handle(view, anywhere=anywhere)

    return judge


def test_local_owner_that_was_collected(found: Any) -> None:
    item = found(PROGRAM)
    assert item.summary == (
        "probably `quantizer` (Flat, made at line 15) was collected when make() returned, and its __del__ (line 8: "
        "`so.flat_free(self.handle)`) freed what ivf_new() of line 11 keeps"
    )
    assert item.advice.startswith("Keep `quantizer` in the object that uses it: `self.quantizer = quantizer` beside")


def test_field_of_c_that_keeps_it(found: Any) -> None:
    """By the function's own source, whose last line is that with its closing brace."""
    assert found(PROGRAM, C_KEEPS).summary.endswith("freed what ivf_new() of line 11 keeps in `v->quantizer`")


def test_pointer_of_the_object_that_c_keeps(found: Any) -> None:
    """By the type of the field: a number is a copy."""
    assert found(PROGRAM, f"{C_PART}\nstruct Flat {{ long d; float *xb; }};").summary.endswith("keeps in `v->xb`")
    assert found(PROGRAM, C_PART) is None


@pytest.mark.parametrize(
    "native",
    [
        C_READS,
        C_KEEPS.replace("v->d = d;", "quantizer->refs++;"),
        C_KEEPS.replace("v->d = d;", "flat_retain(quantizer);"),
        C_KEEPS.replace("= quantizer;", "= flat_clone(quantizer);"),
    ],
    ids=["reads", "counts", "retains", "copies"],
)
def test_owner_that_c_does_not_need(native: str, found: Any) -> None:
    """It uses it during the call alone, has a share in it, or a copy."""
    assert found(PROGRAM, native) is None


COARSE = """def coarse(rows):
    return Flat(rows)
def make(rows):
    quantizer = coarse(rows)
    return Index(quantizer, 8)
def main(rows):
    index = make(rows)
"""
LOOP = """def main(rows):
    found = []
    for row in range(3):
        flat = Flat(row)
        found.append(Index(flat, 8))
    index = found[0]
"""
ENDS = {
    "temporary": (
        "def make(rows):\n    return Index(Flat(rows), 8)\ndef main(rows):\n    index = make(rows)\n",
        "the Flat of line 15 was collected as soon as that line had run",
    ),
    "factory": (
        COARSE,
        "`quantizer` (Flat, made at line 17) was collected when make() returned",
    ),
    "del": (
        "def main(rows):\n    flat = Flat(rows)\n    index = Index(quantizer=flat, dim=8)\n    del flat\n",
        "`flat` (Flat, made at line 15) was collected at line 17",
    ),
    "loop": (
        LOOP,
        "`flat` (Flat, made at line 17) was collected when the next round of its loop bound the name anew",
    ),
}


@pytest.mark.parametrize(("main", "words"), ENDS.values(), ids=list(ENDS))
def test_ends_of_owners(main: str, words: str, found: Any) -> None:
    item = found(f"{BUILD}{main}    index.search(rows)\nmain(9)\n")
    assert item is not None and item.fact.startswith(f"{words}, and its __del__ (line 8")


@pytest.mark.parametrize(
    ("old", "new", "way"),
    [
        ("    def __del__(self):\n        so.flat_free(self.handle)", "        free(self)", None),
        (
            "    def __del__(self):",
            "        weakref.finalize(self, so.flat_free, self.handle)\n    def f(self):",
            "weak",
        ),
        ("= so.flat_new(rows)", "= ffi.gc(so.flat_new(rows), so.flat_free)", "ffi.gc"),
        (
            "        so.flat_free(self.handle)",
            "        self.close()\n    def close(self):\n        so.release(self.handle)",
            "",
        ),
    ],
    ids=["other", "finalize", "gc", "by another method"],
)
def test_ways_of_freeing(old: str, new: str, way: str | None, found: Any) -> None:
    source = PROGRAM.replace(old, new)
    if way == "ffi.gc":
        source = source.replace("    def __del__(self):\n        so.flat_free(self.handle)\n", "")
    item = found(source)
    assert (item is not None) == (way is not None)
    assert way is None or f"its {way or '__del__'}" in item.fact


def test_owner_that_a_with_closed(found: Any) -> None:
    """Whether or not something holds it."""
    source = PROGRAM.replace("__del__(self)", "__exit__(self, *error)").replace("quantizer = Flat(rows)", "pass")
    source = source.replace(
        "    index = Index(quantizer, 8)", "    with Flat(rows) as flat:\n        index = Index(flat, 8)"
    )
    item = found(
        source.replace("        self.handle, self.dim", "        self.q = quantizer\n        self.handle, self.dim")
    )
    assert "was closed when that `with` was left, and its __exit__" in item.summary
    assert item.advice.startswith("Use what ivf_new() of line 12 made only while `flat` is open: __exit__ frees")


LOOK_ALIKES = {
    "attribute": ("        self.handle, self.dim", "        self.kept = quantizer\n        self.handle, self.dim"),
    "list": ("    return index", "    KNOWN.append(quantizer)\n    return index"),
    "returned": ("    return index", "    return index, quantizer"),
    "item": ("    return index", "    index.parts['q'] = quantizer\n    return index"),
    "closure": ("    return index", "    index.again = lambda: quantizer.handle\n    return index"),
    "attribute later": ("    return index", "    index.quantizer = quantizer\n    return index"),
    "global": ("    quantizer = Flat(rows)", "    global quantizer\n    quantizer = Flat(rows)"),
    "registry": (
        "        self.handle = so.flat_new(rows)",
        "        self.handle = so.flat_new(rows)\n        KNOWN.append(self)",
    ),
    "frees nothing": ("so.flat_free(self.handle)", "so.flat_flush(self.handle)"),
    "counted": ("flat_free", "flat_unref"),
    "no finalizer": ("__del__", "finish"),
    "other object": ("so.ivf_search(self.handle, rows)", "so.ivf_search(self.other, rows)"),
    "unknown maker": ("quantizer = Flat(rows)", "quantizer = load(rows)"),
    "a caller's": ("quantizer = Flat(rows)", "quantizer = Flat(rows) if rows else KNOWN[0]"),
    "also another caller": ("main(9)", "FLAT = Flat(3)\nOTHER = Index(FLAT, 8)\nmain(9)"),
}


@pytest.mark.parametrize(("old", "new"), LOOK_ALIKES.values(), ids=list(LOOK_ALIKES))
def test_owners_that_may_live(old: str, new: str, found: Any) -> None:
    source = PROGRAM.replace(old, new)
    assert source != PROGRAM and found(source) is None


def test_function_that_is_still_running(found: Any) -> None:
    main = "def main(rows):\n    flat = Flat(rows)\n    index = Index(flat, 8)\n    index.search(rows)\nmain(9)\n"
    assert found(BUILD + main) is None


def test_use_that_is_not_the_failing_line(found: Any) -> None:
    """Only where damage may be long ago."""
    source = PROGRAM.replace("so.ivf_search(self.handle, rows)", "so.ivf_search(rows)")
    assert found(source) is None and found(source, anywhere=True) is not None


def test_setter_of_another_native_object(found: Any) -> None:
    """With a temporary, by a method of the object that keeps it."""
    source = PROGRAM.replace("quantizer, dim):", "dim):").replace(
        "so.ivf_new(quantizer.handle, dim)", "so.ivf_new(dim)"
    )
    source = source.replace(
        "    def search", "    def use(self, flat):\n        so.ivf_set(self.handle, flat.handle)\n    def search"
    )
    item = found(source.replace("    index = Index(quantizer, 8)", "    index = Index(8)\n    index.use(Flat(rows))"))
    assert item.fact.startswith("the Flat of line 19 was collected as soon as that line had run")
    assert "ivf_set() of line 13 keeps" in item.fact and "`self.flat = flat` beside line 13" in item.advice


def test_class_named_like_a_base_of_its_base(found: Any) -> None:
    """`Flat(Base)` of a program, whose `Base` derives from the `Flat` of a library."""
    around = PROGRAM.replace("class Flat:", "class Base(vectors.Flat):\n    pass\nclass Flat(Base):")
    assert found(around).summary.startswith("probably `quantizer` (Flat, made at line 17) was collected when make()")
