"""Lines that keep tensors which another process sent, and with them file descriptors."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.evidence.limits.words import LimitReason
from tests.unit.analyze.evidence.limits.test_reached import FILES, reason

COLLECTOR = """def load(loader, model):
    for step, batch in enumerate(loader):
        out.add(batch, model(batch["tokens"]))
class Collector:
    def __init__(self):
        self.ids, self.weights, self.features = [], [], []
    def add(self, batch, features):
        self.ids.append(batch["id"])
        self.weights.append(batch["weight"].numpy())
        self.features.append(features)
out = Collector()
"""
ALIASES = """def load(loader, labels=[]):
    for images, target in loader:
        y = target.view(-1)
        labels.append((y, model(images)))
"""
QUEUE = """def load(queue, results):
    while (item := queue.get()) is not None or True:
        pass
"""
NEXT = """def load(it): return [
    *rest(it)]
"""
SHARED = """for number in range(9000):
    block = torch.zeros(8).share_memory_()
    blocks.append(block)
"""
PASSED = """def load(loader, store):
    for batch in loader:
        remember(store, batch)
def remember(where, sample):
    where["all"].append(np.asarray(sample["x"]))
"""


OBJECT = """def evaluate(loader, model):
    for images, targets in loader:
        tester.collector.update(*model(images), targets)
class Collector:
    def __init__(self):
        self.predictions, self.truth = {{}}, {{}}
    def update(self, boxes, scores, targets{more}):
        for b, s, t in zip(boxes, scores, targets):
            key = int(t["image_id"])
            self.predictions[key] = (b, s)
            self.truth[key] = {kept}
class Tester:
    def __init__(self):
        self.collector = Collector()
tester = Tester()
"""
ANCDATA = "received 0 items of ancdata"
WORKERS = "Too many open files. Communication with the workers is no longer possible."


def shared(tmp_path: Path, source: str, message: str = WORKERS, used: int = 1024) -> LimitReason:
    """What is told of an exception at line 2 of a program whose descriptors are those of shared memory."""
    program = tmp_path / "train.py"
    program.write_text(source)
    values = {**FILES, "used open files": used, "open files like": "900 /dev/shm/torch_#_#_#"}
    found = reason("RuntimeError", message, values, source=program)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "message",
    [
        ANCDATA,
        WORKERS,
        "unable to open shared memory object </torch_7_1_9> in read-write mode: Too many open files (24)",
    ],
)
def test_batch_that_was_given_up_leaves_some_descriptors(message: str, tmp_path: Path) -> None:
    """What was received of it is closed when the exception is recorded: the kept ones are still most of all."""
    found = shared(tmp_path, OBJECT.format(more="", kept="t"), message, used=960)
    assert found.subject == (
        "960 of the 1024 file descriptors that it may have are in use (RLIMIT_NOFILE), 900 of them for tensors in "
        "shared memory: too few were left for what it was receiving; line 11 keeps `t` in `self.truth` in each round"
    )
    assert found.advice.startswith("Keep a copy: `clone()` of each tensor in `t` at line 11.")


@pytest.mark.parametrize(
    ("kind", "count"), [("900 socket", 960), ("300 /dev/shm/torch_#_#_#", 960)], ids=["sockets", "fewer-than-half"]
)
def test_room_that_tensors_do_not_account_for(kind: str, count: int, tmp_path: Path) -> None:
    """The look-alikes: no limit is named where others hold the descriptors, or too few are known."""
    program = tmp_path / "train.py"
    program.write_text(ALIASES)
    values = {**FILES, "used open files": count, "open files like": kind}
    assert reason("RuntimeError", ANCDATA, values, source=program) is None


@pytest.mark.parametrize(
    ("more", "kept"),
    [("", "{k: v.clone() for k, v in t.items()}"), ("", "b"), (", extra=None", "t"), (", *rest", "t")],
    ids=["copied", "other-of-zip", "default", "any-number"],
)
def test_other_item_of_a_zip_is_not_kept(more: str, kept: str, tmp_path: Path) -> None:
    """The look-alikes: what the model made beside it, and a parameter that may be another one."""
    found = shared(tmp_path, OBJECT.format(more=more, kept=kept), ANCDATA, used=960)
    assert "in each round" not in found.subject


@pytest.mark.parametrize(
    ("source", "kept", "copies"),
    [
        (
            COLLECTOR,
            "; lines 8 and 9 keep `batch['id']` and `batch['weight'].numpy()` in `self.ids` and `self.weights`",
            "Keep copies of all that are tensors: `batch['id'].clone()` at line 8 and `batch['weight'].numpy().copy()`",
        ),
        (
            "def load(loader):\n    return [(batch[0], len(batch)) for batch in loader]\n",
            "; line 2 keeps `batch[0]`",
            "Keep a copy: `batch[0].clone()` at line 2.",
        ),
        (
            ALIASES,
            "; line 4 keeps `y` in `labels`",
            "Keep a copy: `clone()` of each tensor in `y` at line 4.",
        ),
        (
            PASSED,
            "; line 5 keeps `np.asarray(sample['x'])` in `where['all']`",
            "Keep a copy: `np.array(sample['x'])` at line 5.",
        ),
    ],
    ids=["method", "comprehension", "aliases", "function"],
)
def test_lines_that_keep_received_tensors_are_named(source: str, kept: str, copies: str, tmp_path: Path) -> None:
    """With the copies to keep instead."""
    found = shared(tmp_path, source)
    assert found.subject.removesuffix(" in each round").endswith(kept)
    assert found.advice.startswith(copies)
    assert "set_sharing_strategy('file_system')" in found.advice


@pytest.mark.parametrize(
    "source",
    [
        ALIASES.replace("target.view(-1)", "target.clone()"),
        ALIASES.replace("(y, model(images))", "(y.tolist(), model(images))"),
        ALIASES.replace("(y, model(images))", 'y.to("cuda")'),
        ALIASES.replace("(y, model(images))", "y) or labels.clear(0"),
        ALIASES.replace("        y = target", "        labels = []\n        y = target"),
        COLLECTOR.replace('batch["id"])', 'batch["id"].clone())').replace(".numpy()", ".numpy().copy()"),
        COLLECTOR.replace("        out.add", "        out = Collector()\n        out.add"),
        PASSED.replace("remember(store,", "remember({'all': []},"),
        PASSED.replace("np.asarray", "np.array"),
        NEXT,
        QUEUE,
        SHARED,
    ],
    ids=[
        "clone", "numbers", "device", "emptied", "of-a-round", "copied", "object-of-a-round", "new-container", "array",
        "no-loop", "no-name", "shared",
    ],
)  # fmt: skip
def test_what_is_copied_or_given_up_is_not_named(source: str, tmp_path: Path) -> None:
    """The look-alikes: the general advice remains."""
    found = shared(tmp_path, source)
    assert "in each round" not in found.subject
    assert "keep no received tensors" in found.advice


def test_other_descriptors_are_not_those_of_tensors(tmp_path: Path) -> None:
    """The look-alike: files that the program opens."""
    program = tmp_path / "train.py"
    program.write_text(ALIASES)
    message = "[Errno 24] Too many open files: 'a.npy'"
    found = reason("OSError", message, {**FILES, "open files like": "900 /data/a#.npy"}, source=program)
    assert found is not None and "in each round" not in found.subject


NAMESAKES = """def evaluate(loader{parameter}):
    for step, batch in enumerate(loader{made}):
        labels.append(batch["label"])
def train(loader):
    for images, target in loader:
        labels = target.view(-1)
def report(labels):
    {other}
"""


@pytest.mark.parametrize(
    ("parameter", "made", "other", "kept"),
    [
        ("", ", len(labels := [])", "pass", True),
        ("", ", len(labels := [])", "labels.clear()", False),
        (", labels", "", "pass", False),
    ],
    ids=["a variable of the function", "emptied where it may be passed to", "a parameter"],
)
def test_variables_of_other_functions_are_others(
    parameter: str, made: str, other: str, kept: bool, tmp_path: Path
) -> None:
    """`labels` of another loop says nothing of this list."""
    found = shared(tmp_path, NAMESAKES.format(parameter=parameter, made=made, other=other))
    assert ("line 3 keeps `batch['label']` in `labels`" in found.subject) == kept


@pytest.mark.parametrize(("length", "others"), [(40, True), (900, False)])
def test_container_with_few_of_them_is_not_all(length: int, others: bool, tmp_path: Path) -> None:
    """Another function kept most of them before."""
    program = tmp_path / "train.py"
    program.write_text(ALIASES.replace("(y, model(images))", "y[0]"))
    held = {"used open files": 1024, "open files like": "900 /dev/shm/torch_#_#_#", "labels": f"list of {length}"}
    found = reason("RuntimeError", WORKERS, {**FILES, **held}, source=program)
    assert found is not None and "keeps `y[0]` in `labels`" in found.subject
    assert ("which is 40 so far: the others may be kept elsewhere" in found.subject) is others
