"""What a call gives native code at each place, also where `*columns` or a variable has the pointers."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.evidence.own_code.pointer_arguments import is_converted, pointed_at, pointer_arguments

CHANGES = (
    "c.append(y.ctypes.data)", "c[0] = y.ctypes.data", "c.reverse()", "c.extend(n)", "c += n", "fill(c)", "del c[0]",
    "x = y", "rows['a'] = y", "rows.update(n)", "rows['a'].shape = n", "d = c; d.append(n)",
)  # fmt: skip


def arguments(text: str) -> list[str]:
    tree = ast.parse(f"def run(lib, rows, x, y, n):\n{text}")
    call = next(item for item in ast.walk(tree) if isinstance(item, ast.Call) and ast.unparse(item.func) == "lib.f")
    return [ast.unparse(item) for item in pointer_arguments(tree, call)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("  lib.f(x.ctypes.data, n)", ["x.ctypes.data", "n"]),
        (
            '  c = [rows[k].ctypes.data for k in ("a", "b")]\n  lib.f(*c, n)',
            ["rows['a'].ctypes.data", "rows['b'].ctypes.data", "n"],
        ),
        ("  lib.f(*[k.ctypes.data for k in (x, y)], n)", ["x.ctypes.data", "y.ctypes.data", "n"]),
        ("  c = [x.ctypes.data, y.ctypes.data]\n  lib.f(n, *c)", ["n", "x.ctypes.data", "y.ctypes.data"]),
        ("  lib.f(*map(ptr, (x, y)), n)", ["ptr(x)", "ptr(y)", "n"]),
        ("  p = x.ctypes.data_as(P)\n  lib.f(p, n)", ["x.ctypes.data_as(P)", "n"]),
        ("  p = x.ctypes.data_as(P)\n  x = y\n  lib.f(p, n)", ["p", "n"]),
        ("  lib.f(x.ctypes.data, *[k.ctypes.data for k in rows], n)", ["x.ctypes.data"]),
        ('  c = [rows[k].ctypes.data for k in ("a", "b") if k in rows]\n  lib.f(*c, n)', []),
        ("  c = [x.ctypes.data]\n  print(n)\n  y.fill(n)\n  lib.f(*c)", ["x.ctypes.data"]),
        ("  c = [x.ctypes.data]\n  while n:\n    n = lib.f(*c)", ["x.ctypes.data"]),
        *((f"  c = [rows['a'].ctypes.data, x.ctypes.data]\n  {change}\n  lib.f(*c, n)", []) for change in CHANGES),
        ("  c = [x.ctypes.data]\n  while n:\n    lib.f(*c)\n    c.append(n)", []),
        ("  c = [x.ctypes.data]\n  if n:\n    c = [y.ctypes.data]\n  lib.f(*c)", []),
    ],
)  # fmt: skip
def test_pointers_are_unpacked_in_order(text: str, found: list[str]) -> None:
    """Up to what is of an unknown length; not where one of two lines may have made them."""
    assert arguments(text) == found


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("rows['x'].ctypes.data", "rows['x']"),
        ("c_void_p(batch.x.data_ptr())", "batch.x"),
        ("len(rows['x'])", None),
        ("f(rows['x'].ctypes.data, rows['y'].ctypes.data)", None),
    ],
)
def test_array_that_is_no_plain_variable_is_found(text: str, name: str | None) -> None:
    assert pointed_at(ast.parse(text, mode="eval").body) == name


@pytest.mark.parametrize(
    ("text", "converted"),
    [
        ("x.astype(np.float64).ctypes.data", True),
        ("np.ascontiguousarray(x, np.float64).ctypes.data", True),
        ("np.asarray(x, dtype=float).ctypes.data", True),
        ("x.double().data_ptr()", True),
        ("np.ascontiguousarray(x).ctypes.data", False),
        ("x.contiguous().data_ptr()", False),
        ("x.ctypes.data_as(ctypes.POINTER(ctypes.c_double))", False),
    ],
)
def test_copy_of_another_type_is_not_the_variable(text: str, converted: bool) -> None:
    assert is_converted(ast.parse(text, mode="eval").body) == converted
