"""NumPy views of tensors whose memory was moved: which variable is the view, and what moved the tensor."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.lifetime import moved_views as module
from pytracer.analyze.evidence.lifetime.releases import Release, ReleaseWay, Traced
from pytracer.analyze.evidence.syntax.array_views import array_views
from pytracer.decode.types.snapshot import CallSite, PythonFrame

WINDOWS = """class Windows(Dataset):
    def __init__(self, n):
        self.series = torch.randn(n, 8)
        self.array = self.series.numpy()
    def __getitem__(self, i):
        return self.series[i]
def main():
    for batch in DataLoader(Windows(400_000), num_workers=1, multiprocessing_context="spawn"):
        step(batch)
"""
STORE = """class Store:
    def __init__(self, path):
        rows = load(path)
        self.vectors = rows
        self.lookup = np.asarray(self.vectors)
def load(path):
    return torch.rand(1000, 64)
def main():
    store = Store("x")
    store.vectors.share_memory_()
    print(store.lookup.sum())
"""
NUMPY = "/venv/site-packages/numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so"
REDUCTION = "/usr/lib/python3.11/multiprocessing/reduction.py"


def view_of(
    folder: Path, source: str, made: int, fails: int, freed: int | None = None, image: str = NUMPY, names: Any = ()
) -> Any:
    """A process whose freed memory was made, moved and used at these lines."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    own = {line: PythonFrame("f", str(file), line) for line in (made, fails, freed) if line is not None}
    at = own[freed] if freed is not None else PythonFrame("dump", REDUCTION, 60)
    inner = PythonFrame("UntypedStorage._share_fd_cpu_", "/venv/torch/storage.py", 527)
    storage = SimpleNamespace(
        allocated_by=CallSite(python=own[made]), freed_by=CallSite(python=inner, caller=at), freed_thread=7
    )
    crash = SimpleNamespace(tid=7, python_stack=(own[fails],), main_pthread=None)
    native = [SimpleNamespace(image="/lib/libc.so.6", function="memmove"), SimpleNamespace(image=image, function="f")]
    return SimpleNamespace(
        crash=crash,
        place=SimpleNamespace(storage=storage, names=names),
        native_stack=native,
        process=SimpleNamespace(snapshot=SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)),
    )


def moved(view: Any, way: ReleaseWay = "sent") -> module.MovedView | None:
    return module.moved_view(view, Release("swap", Traced(way)))


def test_view_beside_a_tensor_that_was_pickled(tmp_path: Path) -> None:
    found = moved(view_of(tmp_path, WINDOWS, 3, 8))
    assert found is not None and found.summary == (
        "pickling for another process moved `self.series` into shared memory, and `self.array` (line 4), a NumPy view "
        "of it, has the old address"
    )
    assert found.advice.startswith(
        "Keep only one of `self.series` and `self.array`, and call numpy() where the array is used (in `__getitem__`); "
        "or keep a copy at line 4 (`self.series.numpy().copy()`)"
    )


def test_tensor_of_a_function_that_the_line_calls(tmp_path: Path) -> None:
    found = moved(view_of(tmp_path, STORE, 7, 11, 10), "share-memory")
    assert found is not None and found.summary == (
        "share_memory_() at line 10 moved `self.vectors` into shared memory, and `self.lookup` (line 5), a NumPy view "
        "of it, has the old address"
    )
    assert found.advice.startswith("Make `self.lookup` (`np.asarray(self.vectors)`) again after line 10, or keep a")


def test_view_of_a_parameter(tmp_path: Path) -> None:
    source = "model = Net()\nrows = model.table.weight.detach().numpy()\nmodel.share_memory()\nprint(rows.sum())\n"
    found = moved(view_of(tmp_path, source, 1, 4, 3, names=["parameter table.weight of Net"]), "share-memory")
    assert found is not None and found.tensor == "model.table.weight" and found.name == "rows"


@pytest.mark.parametrize(
    "kept",
    [
        "self.array = self.series.numpy().copy()",
        "self.array = self.series.numpy().astype(float)",
        "self.array = self.other.numpy()",
        "self.array = np.array(self.series)",
        "self.array = np.asarray(self.series, dtype=float)",
        "self.array = self.series[[1, 2]].numpy()",
        "self.mean = self.series.numpy().mean()",
    ],
)
def test_copies_and_views_of_others_are_not_named(tmp_path: Path, kept: str) -> None:
    found = moved(view_of(tmp_path, WINDOWS.replace("self.array = self.series.numpy()", kept), 3, 8))
    assert found is not None and found.name is None
    assert "a NumPy array of it has the old address" in found.summary and "self." not in found.advice


def test_another_library_that_used_the_memory_is_no_view(tmp_path: Path) -> None:
    """The look-alike: an address that ctypes was given."""
    ctypes = "/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so"
    assert moved(view_of(tmp_path, WINDOWS, 3, 8, image=ctypes)) is None


def test_gradient_that_was_dropped_is_not_moved(tmp_path: Path) -> None:
    view = view_of(tmp_path, WINDOWS, 3, 8)
    assert module.moved_view(view, Release("zero-grad", Traced("zero_grad"))) is None
    assert module.moved_view(view, None) is None


def test_attribute_that_is_set_twice_may_be_another_tensor(tmp_path: Path) -> None:
    source = WINDOWS.replace("    def __get", "    def reload(self):\n        self.series = read()\n    def __get")
    found = moved(view_of(tmp_path, source, 3, 10))
    assert found is not None and found.name is None


@pytest.mark.parametrize(
    "again",
    [
        "self.series, self.labels = read()",
        "[self.labels, (self.series, self.n)] = read()",
        "for self.series in read(): break",
        "with read() as self.series: pass",
        "(self.series := read())",
    ],
)
def test_other_ways_to_set_an_attribute_count_too(tmp_path: Path, again: str) -> None:
    source = WINDOWS.replace("    def __get", f"    def reload(self):\n        {again}\n    def __get")
    found = moved(view_of(tmp_path, source, 3, 10))
    assert found is not None and found.name is None


@pytest.mark.parametrize(
    ("made", "name"),
    [
        ("self.series, self.n = torch.randn(n, 8), n", "self.array"),
        ("self.series, self.n = read(n), n", None),
        ("for self.series in torch.randn(n, 8): pass", "self.array"),
    ],
)
def test_attribute_that_is_one_of_several_targets(tmp_path: Path, made: str, name: str | None) -> None:
    """Its own value decides, where that is written down."""
    source = WINDOWS.replace("self.series = torch.randn(n, 8)", made)
    if name is None:  # allocated somewhere else in the program
        source = source.replace("step(batch)", "step(torch.randn(n, 8))")
    found = moved(view_of(tmp_path, source, 3 if name is not None else 9, 8))
    assert found is not None and found.name == name


@pytest.mark.parametrize("change", ["self.series += 1", "self.series[0] = 1", "self.n, self.series[:] = 3, 1"])
def test_change_in_place_leaves_the_memory(tmp_path: Path, change: str) -> None:
    source = WINDOWS.replace("    def __get", f"    def scale(self):\n        {change}\n    def __get")
    found = moved(view_of(tmp_path, source, 3, 10))
    assert found is not None and found.name == "self.array"


def test_body_of_a_loop_makes_nothing_that_its_target_has(tmp_path: Path) -> None:
    source = "for rows in loader:\n    array = rows.numpy()\n    other = torch.randn(9, 9)\n    send(other)\n"
    assert (found := moved(view_of(tmp_path, source, 3, 4))) is not None and found.name is None
    source = "with torch.no_grad() as held:\n    array = held.numpy()\n    other = torch.randn(9, 9)\n"
    assert (found := moved(view_of(tmp_path, source, 3, 2))) is not None and found.name is None


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("a = x[1:, 0].detach().cpu().numpy().T", ["a"]),
        ("d = {'rows': x.numpy(), 'x': x}", ["d['rows']"]),
        ("d = dict(rows=x.numpy()[::2])", ["d['rows']"]),
        ("a, b = x, x.numpy()", ["b"]),
        ("a = np.array(x, copy=False)", ["a"]),
        ("a = x.double().numpy()", ["a"]),  # of a new tensor
        ("a = torch.from_numpy(x)", []),
    ],
)
def test_views_that_assignments_keep(line: str, names: list[str]) -> None:
    found = list(array_views(ast.parse(line)))
    assert [item.name for item in found] == names
    assert all(ast.unparse(item.of) == "x" for item in found) == ("double" not in line)
