"""What a name of another file means, by the ways to import it, and where it may mean something else."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.slicing.definitions import defined
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.scopes import scope_of


def file_of(folder: Path, source: str, called: str) -> str | None:
    """The file of `cut()`, as the last line of `source` calls it."""
    (folder / "tools").mkdir()
    for path in ("blocks.py", "tools/blocks.py"):
        (folder / path).write_text("def cut(a):\n    return a\n", encoding="utf-8")
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    tree, line = ast.parse(source), len(source.splitlines())
    found = defined(snapshot, ast.parse(called, mode="eval").body, Spot(str(file), tree, scope_of(tree, line), line))
    return str(Path(found[1].file or "").relative_to(folder)) if found is not None else None


@pytest.mark.parametrize(
    ("imported", "called", "file"),
    [
        ("from blocks import cut", "cut", "blocks.py"),
        ("import blocks", "blocks.cut", "blocks.py"),
        ("import blocks as b", "b.cut", "blocks.py"),
        ("import tools.blocks as b", "b.cut", "tools/blocks.py"),
        ("from tools import blocks", "blocks.cut", "tools/blocks.py"),
        ("from . import blocks", "blocks.cut", "blocks.py"),
        ("import blocks", "blocks.glue", None),
        ("import numpy", "numpy.cut", None),
        ("import blocks\nblocks = load()", "blocks.cut", None),
    ],
)
def test_a_function_of_a_module_is_found_in_its_file(
    imported: str, called: str, file: str | None, tmp_path: Path
) -> None:
    assert file_of(tmp_path, f"{imported}\nx = {called}(1)\n", called) == file


@pytest.mark.parametrize("head", ["def f(blocks):", "def f():\n    blocks = load()"])
def test_a_variable_with_the_name_of_a_module_is_not_that(head: str, tmp_path: Path) -> None:
    assert file_of(tmp_path, f"import blocks\n{head}\n    return blocks.cut(1)\n", "blocks.cut") is None
