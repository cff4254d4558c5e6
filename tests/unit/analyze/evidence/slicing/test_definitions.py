"""What a name of another file means, by the ways to import it, and where it may mean something else."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.slicing.definitions import defined
from pytracer.analyze.evidence.slicing.spots import END, Spot
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


def found_in(folder: Path, files: dict[str, str], called: str, first: str | None = None) -> str | None:
    """The file of what `called` means in the first of `files`; `first`: the file that Python was started with."""
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    name, text = next(iter(files.items()))
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    tree = ast.parse(text)
    spot = Spot(str(folder / name), tree, tree, END)
    begun = str(folder / first) if first is not None else None
    found = defined(snapshot, ast.parse(called, mode="eval").body, spot, begun)
    return str(Path(found[1].file or "").relative_to(folder)) if found is not None else None


@pytest.mark.parametrize(
    ("files", "called"),
    [
        ({"pkg/types.py": "from types import SimpleNamespace\n"}, "SimpleNamespace"),
        ({"pkg/blocks.py": "from .blocks import cut\n"}, "cut"),
        ({"a.py": "from b import cut\n", "b.py": "from a import cut\n"}, "cut"),
    ],
)
def test_files_that_import_a_name_from_themselves_end_the_search(
    files: dict[str, str], called: str, tmp_path: Path
) -> None:
    assert found_in(tmp_path, files, called) is None


@pytest.mark.parametrize(
    ("imported", "called"), [("import logging", "logging.warn"), ("from logging import warn", "warn")]
)
def test_file_named_as_a_module_of_python_is_not_what_an_absolute_import_means(
    imported: str, called: str, tmp_path: Path
) -> None:
    files = {"pkg/train.py": f"{imported}\n", "pkg/logging.py": "def warn(x):\n    return None\n"}
    assert found_in(tmp_path, files, called) is None
    relative = imported.replace("import logging", "from . import logging").replace("from logging", "from .logging")
    assert found_in(tmp_path, {**files, "pkg/train.py": f"{relative}\n"}, called) == "pkg/logging.py"


@pytest.mark.parametrize(
    ("imported", "first", "file"),
    [
        ("from blocks import cut", None, None),
        ("from blocks import cut", "main.py", None),
        ("from blocks import cut", "pkg/main.py", "pkg/blocks.py"),
        ("from .blocks import cut", "main.py", "pkg/blocks.py"),
    ],
)
def test_absolute_import_in_a_package_means_no_file_beside_it(
    imported: str, first: str | None, file: str | None, tmp_path: Path
) -> None:
    """Unless Python was started with a file of that folder, which is then searched."""
    files = {"pkg/train.py": f"{imported}\n", "pkg/blocks.py": "def cut(a):\n    return a\n", "pkg/__init__.py": ""}
    assert found_in(tmp_path, files, "cut", first) == file
