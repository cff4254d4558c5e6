"""Where the fields of structures lie, in C and in ctypes."""

from __future__ import annotations

import ast
import ctypes
from pathlib import Path

import pytest

from pytracer.analyze.evidence.own_code.struct_fields import c_structures, ctypes_structures, missing_field

C = """
typedef void (*on_done)(float done, void *user);  // a callback
typedef int64_t stamp_t;
typedef struct { int32_t x, y; } point;
struct params {
    bool low; /* one byte */
    stamp_t stamp;
    point at;
    float scale[3], *data;
    on_done done;
    int (*compare)(const void *, const void *);
    enum mode mode;
};
"""
CLASS = """
import ctypes
class Point(ctypes.Structure):
{}
    _fields_ = [("x", ctypes.c_int32), ("y", ctypes.c_int32)]
"""
DONE = ctypes.CFUNCTYPE(None, ctypes.c_float, ctypes.c_void_p)


class Point(ctypes.Structure):
    """A field of the other one."""

    _fields_ = [("x", ctypes.c_int32), ("y", ctypes.c_int32)]


class Params(ctypes.Structure):
    """As in C."""

    _fields_ = [
        ("low", ctypes.c_bool),
        ("stamp", ctypes.c_int64),
        ("at", Point),
        ("scale", ctypes.c_float * 3),
        ("data", ctypes.POINTER(ctypes.c_float)),
        ("done", DONE),
        ("compare", ctypes.c_void_p),
        ("mode", ctypes.c_int),
    ]


def test_both_declarations_of_one_structure_give_the_layout_that_ctypes_has() -> None:
    names = [item[0] for item in Params._fields_]
    declared = {item.name: item for item in c_structures(C, "params.h")}
    own = {item.name: item for _, item in ctypes_structures(ast.parse(Path(__file__).read_text()))}
    expected = [(name, getattr(Params, name).offset, getattr(Params, name).size) for name in names]
    for found in (declared["params"], own["Params"]):
        assert [(item.name, item.offset, item.nbytes) for item in found.fields] == expected
        assert found.nbytes == ctypes.sizeof(Params)
    assert [item.name for item in declared["params"].fields if item.pointer] == ["data", "done", "compare"]
    assert [item.name for item in declared["params"].fields if item.function] == ["done", "compare"]
    assert (declared["params"].place, declared["point"].place) == ("params.h:5", "params.h:4")


@pytest.mark.parametrize(
    "text",
    [
        "struct s { int a : 3; int b; };",
        "struct s { widget w; int b; };",
        "#pragma pack(1)\nstruct s { char a; int b; };",
        "struct s { char a; int b; } __attribute__((packed, aligned(4)));",
        "struct s { int a;\n#ifdef X\nint b;\n#endif\n};",
        "struct s { union { int a; float b; } u; };",
        "struct s;",
    ],
)
def test_what_cannot_be_laid_out_is_left_out(text: str) -> None:
    assert not list(c_structures(text, "s.h"))


@pytest.mark.parametrize(
    ("change", "known"), [("    pass", True), ("    _pack_ = WIDTH", False), ("    _anonymous_ = ('x',)", False)]
)
def test_a_class_whose_layout_is_not_the_usual_one_has_none(change: str, known: bool) -> None:
    assert bool(list(ctypes_structures(ast.parse(CLASS.format(change))))) == known


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("int x; char *name; int y;", 'Add `("name", ctypes.c_char_p)` behind `x`.'),
        ("const double *w; int x, y;", 'Add `("w", ctypes.c_void_p)` before `x`.'),
        ("int x; unsigned long long n; int y;", 'Add `("n", ctypes.c_ulonglong)` behind `x`.'),
        ("int x; uint8_t flag; int y;", 'Add `("flag", ctypes.c_uint8)` behind `x`.'),
        ("int x; unsigned n; int y;", 'Add `("n", ctypes.c_uint)` behind `x`.'),
        ("int x; size_t n; int y;", 'Add `("n", ctypes.c_size_t)` behind `x`.'),
        ("int x; char name[8]; int y;", "`name` is behind `x` in C."),
        ("int x, y; char *name;", None),
        ("int x, y;", None),
    ],
)
def test_the_first_field_that_only_c_has_is_said_with_its_place(body: str, words: str | None) -> None:
    """One behind all others moves none of them."""
    ((_, own),) = ctypes_structures(ast.parse(CLASS.format("")))
    (declared,) = c_structures(f"struct point {{ {body} }};", "p.h")
    assert missing_field(own, declared) == words


@pytest.mark.parametrize(
    "text",
    [
        "struct s { char a; int b; double c[2]; } __attribute__((packed));",
        "struct __attribute__((packed)) s { char a; int b; double c[2]; };",
        "typedef struct { char a; int b; double c[2]; } __attribute__((__packed__)) s;",
    ],
)
def test_packed_declarations_give_the_layout_that_ctypes_has(text: str) -> None:
    class Packed(ctypes.Structure):
        _pack_ = 1
        _fields_ = [("a", ctypes.c_char), ("b", ctypes.c_int), ("c", ctypes.c_double * 2)]

    (found,) = c_structures(text, "s.h")
    assert [(item.name, item.offset) for item in found.fields] == [
        (name, getattr(Packed, name).offset) for name in ("a", "b", "c")
    ]
    assert found.nbytes == ctypes.sizeof(Packed)


@pytest.mark.parametrize("pack", [1, 2, 4, 8])
def test_pack_of_a_class_limits_how_its_fields_are_aligned(pack: int) -> None:
    fields = [("a", ctypes.c_char), ("b", ctypes.c_int), ("c", ctypes.c_double), ("d", ctypes.c_short)]
    own = type("Own", (ctypes.Structure,), {"_pack_": pack, "_fields_": fields})
    listed = ", ".join(f"({name!r}, ctypes.{kind.__name__})" for name, kind in fields)
    text = f"class Own(ctypes.Structure):\n    _pack_ = {pack}\n    _fields_ = [{listed}]\n"
    ((_, found),) = ctypes_structures(ast.parse(text))
    assert [(item.name, item.offset) for item in found.fields] == [
        (name, getattr(own, name).offset) for name, _ in fields
    ]
    assert found.nbytes == ctypes.sizeof(own)


@pytest.mark.parametrize(
    "named",
    [
        "#define MOST 6000\n",
        "#define MOST (6000) /* all */\n",
        "enum { MOST = 6000 };\n",
        "const int MOST = 6000;\n",
    ],
)
def test_size_of_an_array_may_have_a_name(named: str) -> None:
    """And an array may have several dimensions, of which the first one is counted."""
    text = named + "typedef struct { float road[MOST][4]; int used; } world_t;\n"
    found = next(c_structures(text, "world.h"))
    assert [(item.name, item.offset, item.nbytes, item.count) for item in found.fields] == [
        ("road", 0, 96000, 6000),
        ("used", 96000, 4, None),
    ]


def test_size_with_an_unknown_name_leaves_the_layout_unknown() -> None:
    assert [*c_structures("typedef struct { float road[MOST]; int used; } world_t;\n", "world.h")] == []
