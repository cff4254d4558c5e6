"""Expressions that are bytes, and those that make the text of bytes."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.slicing.bytes_values import is_bytes, key_of, shown_bytes, stored
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot


def value(source: str) -> tuple[Any, dict[str, ast.Module], ast.expr, Spot]:
    """Of the last statement of a program: `made = ...`."""
    tree = ast.parse(source)
    last = tree.body[-1]
    assert isinstance(last, ast.Assign)
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=0, threads=())
    return Slice(snapshot, []), {"train.py": tree}, last.value, Spot("train.py", tree, tree, last.lineno)


@pytest.mark.parametrize(
    "source",
    [
        "made = b'abc'",
        "made = name.encode()",
        "made = name.encode('utf-8')",
        "made = mask.tobytes()",
        "import zlib\nmade = zlib.compress(data)",
        "import pickle\nmade = pickle.dumps(data)",
        "import ctypes\nout = ctypes.create_string_buffer(8)\nmade = out.value",
        "from pycocotools import mask as m\nrle = m.encode(x)\nmade = rle['counts']",
        "packed = mask.tobytes()\nmade = packed",
    ],
)
def test_what_is_bytes_by_the_source(source: str) -> None:
    assert is_bytes(*value(source))


@pytest.mark.parametrize(
    "source",
    [
        "made = 'abc'",
        "made = rle['counts'].decode()",
        "import json\nmade = json.dumps(data)",
        "rle = tokenizer.encode(text)\nmade = rle",
        "rle = tokenizer.encode(text)\nmade = rle['counts']",
        "made = box.value",
    ],
)
def test_what_may_be_something_else_is_not_bytes(source: str) -> None:
    assert not is_bytes(*value(source))


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("str(x)", "x"), ("repr(x.raw)", "x.raw"), ("f'{x}'", "x"), ("'%s' % x", "x"), ("'{}'.format(x)", "x"),
        ("str(x, 'ascii')", None), ("f'{x}.json'", None), ("x.decode()", None), ("'%d' % x", None),
    ],
)  # fmt: skip
def test_expressions_that_show_a_value_as_text(text: str, of: str | None) -> None:
    found = shown_bytes(ast.parse(text, mode="eval").body)
    assert (ast.unparse(found) if found is not None else None) == of


def test_what_is_put_below_a_key() -> None:
    lines = ["row = {'counts': a}", "row['counts'] = b", "row = dict(counts=c)", "row.update(counts=d)", "row['n'] = e"]
    tree = ast.parse("\n".join(lines))
    assert sorted(ast.unparse(item) for item, _ in stored({"t.py": tree}, "counts")) == ["a", "b", "c", "d"]
    assert key_of(ast.parse("row.get('counts')", mode="eval").body) == "counts"
