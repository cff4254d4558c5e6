"""What a dataset keeps of each sample in every worker, by its source; and datasets that keep nothing, or bound it."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.ends import worker_caches as module
from pytracer.analyze.evidence.ends.kill_reasons import is_about_memory
from pytracer.analyze.evidence.ends.worker_caches import WorkerCache, worker_cache
from pytracer.report.job import PythonFrame

DATASET = """class Pages(Dataset):
    def __init__(self, folder):
        self.folder = folder
        self.images = {made}
        self.stats = Stats()
        {more}
    def __len__(self):
        return len(self.images)
    def load(self, index):
        image = np.load(self.folder / f"{{index}}.npy")
        {store}
        return image
    def __getitem__(self, index):
        return {get}
    def reset(self):
        {reset}
"""


def found_in(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    store: str = "self.images[index] = image",
    made: str = "[None] * 900",
    get: str = "self.load(index)",
    reset: str = "pass",
    more: str = "pass",
    dataset: str | None = "Pages",
) -> WorkerCache | None:
    """Of a worker whose parent failed in that file."""
    file = folder / "data.py"
    file.write_text(DATASET.format(store=store, made=made, get=get, reset=reset, more=more), encoding="utf-8")
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9, threads=(), pid=1)
    frame = PythonFrame(function="train", file=str(file), line=1)
    parent = SimpleNamespace(
        process=SimpleNamespace(snapshot=snapshot), exception_stack_of_program=[frame], python_stack=[]
    )
    monkeypatch.setattr(module, "parent_of", lambda job, view: parent)
    worker = SimpleNamespace(dataset=dataset, num_workers=4) if dataset is not None else None
    view: Any = SimpleNamespace(process=SimpleNamespace(snapshot=SimpleNamespace(worker=worker)))
    return worker_cache(None, view)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("store", "made"),
    [
        ("self.images[index] = image", "[None] * 900"),
        ("self.images[index] = (image, image.shape)", "{}"),
        ("self.images.append(image)", "[]"),
        ("self.images.setdefault(index, image)", "{}"),
        ("self.images[int(index)] = image", "np.zeros((900, 32, 32))"),
        ("self.images[index] = (image.astype(np.float32) / 255 - 0.4) / 0.2", "{}"),
        ("image = image / 255; self.images[index] = image", "{}"),
        ("self.images[index] = image - image_mean", "np.empty(900, dtype=object)"),
        ("raw = read(index); self.images[index] = raw.astype(np.float32) / 255; image = self.images[index]", "{}"),
        ("if self.keep: self.images[index] = image", "{} if folder else None"),
        ("if index not in self.images: self.images[index] = image", "dict()"),
        ('if self.mode == "ram": self.images[index] = image', "defaultdict(list)"),
    ],
)
def test_cache_of_the_samples_is_one_for_each_worker(
    store: str, made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a method that __getitem__ calls."""
    found = found_in(tmp_path, monkeypatch, store=store, made=made)
    assert found is not None
    assert found.words == "each worker keeps what it loads in a `self.images` of its own (data.py:11)"
    advice = found.advice(None)
    assert "Pages keeps what it loads, in each of 4 workers for itself" in advice
    stores = next(item for item in store.rpartition(": ")[2].split("; ") if item.startswith("self.images"))
    assert f"`{stores[:40]}" in advice


@pytest.mark.parametrize(
    "change",
    [
        {"store": "self.images[index] = index"},  # numbers
        {"store": "self.images[index] += 1"},
        {"store": "self.images[index] = len(image) * 2"},
        {"store": "self.images[index] = image.mean() / 255"},
        {"store": "self.images[index] = name_of(index) + '.png'"},
        {"store": "self.images[index] = np.percentile(image, 99) / 255"},
        {"store": "self.images[index] = 0.9 * old_of(index) + 0.1 * loss_of(image)"},
        {"store": "self.images[index] = image[0, 0].copy() + 1"},
        {"store": "self.images[index] = time.time_ns() - started"},
        {"store": "self.images[index] = self.rng.random() + 1"},
        {"store": "score = score_of(image); self.images[index] = score * 2"},
        {"store": "self.images[index] = Path(self.folder) / 'x' / name_of(index)"},
        {"store": "self.images[index] = self.root_of() / name_of(index)"},
        {"store": "self.images[index] = image / name_of(index)"},
        {"made": "np.zeros(900)"},
        {"made": "np.zeros((900,), dtype=np.int64)"},
        {"made": "torch.zeros(900)"},
        {"made": "[0.0] * 900"},
        {"store": "self.count = len(image)"},
        {"store": "images = {}; images[index] = image"},  # of one call
        {"made": "LRUCache(maxsize=64)"},
        {"made": "np.memmap(path)"},
        {"store": 'self.images["last"] = image'},
        {"store": "self.images[:] = image", "made": "np.zeros((32, 32))"},
        {"store": "self.images[index % 8] = image", "made": "[None] * 8"},
        {"store": "slot = index % 8; self.images[slot] = image", "made": "[None] * 8"},
        {"store": "index %= 8; self.images[index] = image", "made": "[None] * 8"},
        {"store": "if index < self.cache_size: self.images[index] = image"},
        {"store": "if self.used + image.nbytes < self.budget: self.images[index] = image"},
        {"store": "full = self.used > self.budget\n        if not full: self.images[index] = image"},
        {"store": "if self.used > self.budget: return image\n        self.images[index] = image"},
        {"store": "if index in self.often: self.images[index] = image"},
        {"store": "if self.has_room(image): self.images[index] = image"},
        {"get": "self.load(index) if index < self.kept else None"},
        {"store": "self.images[index] = h5py.File(self.folder)", "made": "{}"},
        {"store": "file = open(self.folder); self.images[index] = file", "made": "{}"},
        {"store": "self.images[index] = np.load(self.folder, mmap_mode='r')", "made": "{}"},
        {"store": "path = self.files[index]; self.images[path] = image", "made": "{}"},  # some may share one
        {"store": "self.images.append(os.path.basename(self.files[index]))", "made": "[]"},
        {"store": "name = name_of(index); self.images.append(name)", "made": "[]"},  # not what it loads
        {"made": "torch.zeros(900, 3)", "more": "self.images.share_memory_()"},
        {"made": "torch.zeros(900, 3).share_memory_()"},
        {"made": "kept", "more": "kept = torch.zeros(900, 3).share_memory_()"},
        {"made": "kept", "more": "kept = torch.zeros(900, 3); kept.share_memory_()"},
        {
            "made": "torch.from_numpy(kept)",
            "more": "kept = np.ctypeslib.as_array(mp.Array(ctypes.c_float, 900).get_obj()).reshape(900, 3)",
        },
        {"made": "mp.Array(ctypes.c_float, 900)"},
        {"made": "folder"},  # which its caller may share
        {"made": "deque(maxlen=8)", "store": "self.images.append(image)"},
        {"made": "manager.dict()", "store": "self.images[index] = image if len(self.images) < 9 else None"},
        {"reset": "self.images = {}"},
        {"reset": "self.images.clear()"},
        {"reset": "del self.images[0]"},
        {"get": "np.load(self.files[index])"},  # nobody calls load() for a sample
        {"dataset": "Other"},
        {"dataset": None},  # no worker of a DataLoader
    ],
)
def test_dataset_that_keeps_nothing_of_its_samples_is_not_named(
    change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or that bounds what it keeps."""
    assert found_in(tmp_path, monkeypatch, **change) is None


@pytest.mark.parametrize(
    ("condition", "memory"),
    [
        ("where `job.memory_info().rss > limit * 2 ** 20` holds (line 20)", True),
        ("where `sum(used) + p.memory_full_info().pss > self.limit` holds (line 30)", True),
        ("where `virtual_memory().percent > 90` holds (line 4)", True),
        ("where `time.time() - started > self.timeout` holds (line 7)", False),
        ("where `progress < least` holds (line 7)", False),
    ],
)
def test_condition_of_a_watchdog_of_memory(condition: str, memory: bool) -> None:
    """By what it asks for."""
    assert is_about_memory(condition) == memory
