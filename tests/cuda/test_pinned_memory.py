"""A fault of host code in pinned memory names the storage and both of its call sites."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from pytracer.report.job import Fault, StorageReport
from tests.cuda.jobs import line_of, only_victim, program
from tests.support.crash import Ended

SMALL = 300_000
PINNED = [
    ("empty", "return torch.empty"),
    ("copied", "return torch.ones"),
    ("loaded", None),  # by a thread of torch's
]


def told(done: Ended) -> tuple[dict[str, int], Fault, StorageReport]:
    """The program's output, and the reported storage at the address."""
    assert done.status == 128 + signal.SIGSEGV, done.stderr
    truth = json.loads(done.stdout)
    fault = only_victim(done.report).fault
    assert fault is not None and fault.storage is not None
    assert int(fault.addr or "0", 16) == truth["addr"]
    storage = fault.storage
    assert (int(storage.base or "0", 16), storage.nbytes) == (truth["base"], truth["nbytes"])
    assert storage.origin == "pinned"
    return truth, fault, storage


@pytest.mark.parametrize(("kind", "text"), PINNED, ids=[kind for kind, _ in PINNED])
def test_a_live_pinned_storage_is_named(kind: str, text: str | None, run: Path) -> None:
    """Address, size, offset and line; torch treats the memory as pinned, and copies from it as untraced."""
    truth, fault, storage = told(program("pinned", kind, run=run))
    assert (fault.kind, storage.state, storage.found) == ("in-storage", "live", "exact")
    assert storage.offset_bytes == truth["addr"] - truth["base"]
    assert storage.allocated is not None
    if text is not None:
        assert storage.allocated.python is not None
        assert storage.allocated.python.line == line_of("pinned", text)


def test_an_access_behind_it_tells_the_distance(run: Path) -> None:
    """The size is the requested one, not torch's power of two."""
    truth, fault, storage = told(program("pinned", "empty", "behind", run=run))
    assert (fault.kind, storage.state) == ("past-storage", "live")
    assert storage.distance_bytes == truth["addr"] - (truth["base"] + SMALL - 1)


def test_a_freed_one_is_a_use_after_free(run: Path) -> None:
    """With both lines."""
    done = program("pinned", "freed", run=run)
    _, fault, storage = told(done)
    assert done.report.verdict is not None
    assert done.report.verdict.class_ == "use-after-free"
    assert (fault.kind, storage.state, storage.found) == ("freed-storage", "freed", "exact")
    assert storage.allocated is not None and storage.allocated.python is not None
    assert storage.allocated.python.line == line_of("pinned", "return torch.empty")
    assert storage.freed is not None and storage.freed.python is not None
    assert storage.freed.python.line == line_of("pinned", "del tensor  # freed")
