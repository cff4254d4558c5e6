"""The line that took a tensor's memory away, and frees that say nothing."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.lifetime import emptied, emptied_words
from pytracer.decode.types.snapshot import CallSite, Moment, PythonFrame, Storage
from pytracer.decode.types.storage_table import StorageTable

SOURCE = "p.untyped_storage().resize_(0)\nq.untyped_storage().resize_(0)\ndel x\ns.resize_(4096)\nuse(p)\n"


def view_of(folder: Path, *lines: int, nbytes: int = 400) -> Any:
    """A process that freed a storage at each of the lines."""
    file = folder / "train.py"
    file.write_text(SOURCE, encoding="utf-8")
    born = Moment(1, 5, None)
    freed = [
        Storage(0x1000 * n, nbytes, "freed", born, CallSite(), 1, born, CallSite(PythonFrame("drop", str(file), line)))
        for n, line in enumerate(lines, 1)
    ]
    argument = SimpleNamespace(base=0, elements=100, element_bytes=4)
    crash = SimpleNamespace(arguments=(argument,), python_stack=(PythonFrame("step", str(file), 5),))
    snapshot = SimpleNamespace(storages=StorageTable.of(*freed), argv=(), created_wall_ns=time.time_ns() + 10**9)
    return SimpleNamespace(crash=crash, process=SimpleNamespace(snapshot=snapshot))


def test_the_line_that_resized_its_storage_to_nothing(tmp_path: Path) -> None:
    """Also where it freed several of that size."""
    assert emptied.emptied_at(view_of(tmp_path, 1, 1, 3), 100) == "line 1 in drop (`p.untyped_storage().resize_(0)`)"


@pytest.mark.parametrize(
    ("lines", "how", "elements"),
    [((1, 2), {}, 100), ((3,), {}, 100), ((4,), {}, 100), ((1,), {"nbytes": 404}, 100), ((1,), {}, 0)],
    ids=["two lines", "another free", "made larger", "another size", "an empty tensor"],
)
def test_a_free_that_says_nothing(lines: tuple[int, ...], how: dict[str, Any], elements: int, tmp_path: Path) -> None:
    """No line is named."""
    assert emptied.emptied_at(view_of(tmp_path, *lines, **how), elements) is None


ONLY = "def release(t):\n    t.untyped_storage().resize_(0)\ndef step(x):\n    {}\n    use(x)\nstep(1)\n"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("release(x)", ", which only line 2 (`t.untyped_storage().resize_(0)`) does, called at line 4 (`release(x)`)"),
        ("[release(x), release(y)]", ", which only line 2 (`t.untyped_storage().resize_(0)`) does"),
        ("y.untyped_storage().resize_(0)", None),
    ],
    ids=["one call", "two calls", "two lines"],
)
def test_of_a_part_of_a_storage_the_only_line_that_does_so_is_named(
    body: str, words: str | None, tmp_path: Path
) -> None:
    """The storage itself had another size, so that no freed one fits."""
    view = view_of(tmp_path)
    (tmp_path / "train.py").write_text(ONLY.format(body), encoding="utf-8")
    holder: Any = SimpleNamespace(
        expression="x", elements=100, frame=PythonFrame("step", str(tmp_path / "train.py"), 5)
    )
    taken = emptied_words.taken_by(view, [holder])
    assert (taken.summary if taken is not None else None) == words


def test_an_empty_tensor_has_lost_no_memory(tmp_path: Path) -> None:
    view = view_of(tmp_path)
    (tmp_path / "train.py").write_text(ONLY.format("release(x)"), encoding="utf-8")
    holder: Any = SimpleNamespace(expression="x", elements=0, frame=None)
    assert emptied_words.taken_by(view, [holder]) is None
