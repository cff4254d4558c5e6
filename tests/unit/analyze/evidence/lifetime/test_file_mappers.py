"""The line that mapped a file, and the copy to make where a tensor shares its memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.lifetime.file_mappers import copied_instead, file_mapper
from pytracer.decode.types.snapshot import CallSite, PythonFrame
from tests.unit.analyze.evidence.lifetime.test_where_made import view_of

FILE = "/data/features.npy"


@pytest.mark.parametrize(
    ("source", "line", "mode", "option"),
    [
        ("x = np.load(root / 'features.npy', mmap_mode='r')\ny = np.load('labels.npy')\n", 1, "mmap_mode='r'", True),
        ("x = np.memmap('features.npy', 'float32', 'r')\n", 1, "'r'", False),
        ("x = np.memmap('features.npy', 'float32', mode='r+')\n", 1, None, False),
        ("x = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\n", 1, "access=mmap.ACCESS_READ", False),
        ("a = np.load('a.npy', mmap_mode='c')\nb = np.load('features.npy', mmap_mode='r')\n", 2, "mmap_mode='r'", True),
        ("x = torch.load(path, mmap=True)\n", 1, None, True),
    ],
)
def test_the_line_that_maps_the_file(source: str, line: int, mode: str | None, option: bool, tmp_path: Path) -> None:
    found = file_mapper(view_of(tmp_path, source, 1), FILE)
    assert found is not None
    assert (found.place, found.mode, found.option is not None) == (f"line {line}", mode, option)


@pytest.mark.parametrize(
    "source",
    [
        "x = np.load('features.npy')\n",
        "x = np.load('features.npy', mmap_mode=None)\n",
        "x = torch.load('features.npy', mmap=False)\n",
        "x = np.load(a, mmap_mode='r')\ny = np.load(b, mmap_mode='r')\n",  # either may be meant
    ],
)
def test_no_line_where_none_maps_or_several_may(source: str, tmp_path: Path) -> None:
    assert file_mapper(view_of(tmp_path, source, 1), FILE) is None


@pytest.mark.parametrize(
    ("source", "copied"),
    [
        ("clip = torch.from_numpy(self.x[i])\n", "torch.from_numpy(self.x[i].copy())"),
        ("clip = torch.as_tensor(rows, dtype=torch.float32)\n", "torch.as_tensor(rows.copy())"),
        ("clip = self.x[i]\n", None),
        ("pair = torch.from_numpy(a), torch.from_numpy(b)\n", None),
    ],
)
def test_the_copy_to_make(source: str, copied: str | None, tmp_path: Path) -> None:
    view = view_of(tmp_path, source, 1)
    site = CallSite(PythonFrame("get", str(tmp_path / "train.py"), 1))
    storage: Any = SimpleNamespace(allocated_by=site)
    assert copied_instead(view, storage) == (("line 1", copied) if copied is not None else None)


def test_a_line_of_a_library_is_not_to_be_changed(tmp_path: Path) -> None:
    view = view_of(tmp_path, "x = 1\n", 1)
    site = CallSite(PythonFrame("collate", "/usr/lib/python3/site-packages/torch/utils/data/collate.py", 3))
    storage: Any = SimpleNamespace(allocated_by=site)
    assert copied_instead(view, storage) is None


@pytest.mark.parametrize(
    ("source", "path", "line"),
    [
        ("a = 1\nm = Model.from_pretrained(root / 'live')\n", "/data/live/model.safetensors", 2),
        ("a = 1\nm = Model.from_pretrained(root / 'base')\n", "/data/live/model.safetensors", None),
        ("m = Model.from_pretrained('live')\n", "/data/live/weights.npy", None),
        ("a = 1\nd = datasets.load_from_disk(root / 'rows')\n", "/data/rows/data-0.arrow", 2),
        ("w = load_file('model.safetensors')\n", "/data/live/model.safetensors", 1),
        ("w = pa.memory_map('rows.arrow')\n", "/data/rows.arrow", 1),
    ],
)
def test_libraries_that_map_what_they_open(source: str, path: str, line: int | None, tmp_path: Path) -> None:
    found = file_mapper(view_of(tmp_path, source, 1), path)
    assert (found.place if found is not None else None) == (f"line {line}" if line else None)


def test_a_tensor_of_dlpack_is_cloned(tmp_path: Path) -> None:
    view = view_of(tmp_path, "x = torch.from_dlpack(rows.flatten()).view(-1, 4)\n", 1)
    storage: Any = SimpleNamespace(allocated_by=CallSite(PythonFrame("get", str(tmp_path / "train.py"), 1)))
    assert copied_instead(view, storage) == ("line 1", "torch.from_dlpack(rows.flatten()).clone()")
