"""A process that has as many mappings of memory as it may: what keeps them, and what only looks so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pytracer.analyze.evidence.limits.words import LimitReason
from pytracer.report.job import PythonFrame
from tests.unit.analyze.evidence.limits.test_reached import GIB, MAPS, reason

TORCH = "/usr/lib/python3/dist-packages/torch"
RECEIVES = PythonFrame(function="rebuild_storage_filename", file=f"{TORCH}/multiprocessing/reductions.py", line=555)
SENDS = PythonFrame(function="reduce_storage", file=f"{TORCH}/multiprocessing/reductions.py", line=600)
SHARES = PythonFrame(function="UntypedStorage._share_filename_cpu_", file=f"{TORCH}/storage.py", line=531)
MESSAGE = "unable to mmap 80 bytes from file </torch_20786_3267222236_32434>: Cannot allocate memory (12)"
LOADED = """def load(loader, seen):
    for clips in loader:
        for clip in clips:
            seen.append(clip)
"""
REPLAY = """def push(self, state):
    entry = torch.cat([state, state]).share_memory_()
    self.items.append(entry)
"""


def told(
    tmp_path: Path, source: str, *stack: PythonFrame, values: Mapping[str, object] | None = None
) -> LimitReason | None:
    """What is told of an exception at line 2 of a program whose mappings are used up."""
    program = tmp_path / "train.py"
    program.write_text(source)
    return reason("RuntimeError", MESSAGE, {**MAPS, **(values or {})}, *stack, source=program)


def test_line_that_keeps_what_was_received_is_named_with_its_list(tmp_path: Path) -> None:
    """Also of what a loop takes out of it; to copy there, not where it arrives."""
    found = told(tmp_path, LOADED, RECEIVES, values={"seen": "list of 4216", "clips": "list of 8"})
    assert found is not None
    assert found.subject.endswith(
        "it is not memory that is short; line 4 keeps `clip` in `seen` (list of 4216) in each round"
    )
    assert found.advice.startswith("Keep a copy: `clone()` of each tensor in `clip` at line 4, or its numbers")
    assert "descriptor" not in found.advice and "Make few large ones at line 2" not in found.advice


def test_line_that_keeps_what_it_shares_is_named(tmp_path: Path) -> None:
    """An attribute of an object, of which the recorded values have the size."""
    found = told(tmp_path, REPLAY, SHARES, values={"self.items": "list of 65075"})
    assert found is not None
    assert found.subject.endswith("; line 3 keeps each `entry` in `self.items` (list of 65075)")
    assert "line 3 (`self.items.append(entry)`) keeps them: make a few large ones once" in found.advice


@pytest.mark.parametrize(
    ("source", "stack"),
    [
        (LOADED.replace("(clip)", "(clip.clone())"), RECEIVES),
        (LOADED.replace("seen.append(clip)", "seen.append(clip); seen.clear()"), RECEIVES),
        (REPLAY.replace("append(entry)", "append(entry.tolist())"), SHARES),
        (REPLAY.replace("entry)", "entry); self.items.pop(0)"), SHARES),
        (REPLAY, SENDS),  # what is sent is the program's, and shared on the way
    ],
    ids=["clone", "emptied", "numbers", "bounded", "sent"],
)
def test_what_is_copied_or_given_up_keeps_no_mapping(source: str, stack: PythonFrame, tmp_path: Path) -> None:
    """The look-alikes: the number of mappings is a fact, who keeps them is not."""
    found = told(tmp_path, source, stack)
    assert found is not None
    assert found.subject.endswith("allows; it is not memory that is short") or stack is SENDS
    assert "Keep a copy" not in found.advice


@pytest.mark.parametrize(("count", "named"), [(65000, True), (400, False)])
def test_list_with_about_as_many_items_is_named(count: int, named: bool, tmp_path: Path) -> None:
    """Where the source shows no line that keeps them; the look-alike is short."""
    found = told(tmp_path, "\nstore(share(x))\n", SHARES, values={"held": f"list of {count}"})
    assert found is not None
    assert (f"; `held` (list of {count}) keeps about as many" in found.subject) is named


def test_mappings_that_the_exception_released_count(tmp_path: Path) -> None:
    """Those of the batch that was being received; a larger distance is another reason."""
    left = {"machine memory left": 20 * GIB}
    found = told(tmp_path, LOADED, RECEIVES, values={**left, "used mappings": 65050})
    assert found is not None and "65050 of the 65530 mappings of memory that vm.max_map_count" in found.subject
    assert told(tmp_path, LOADED, RECEIVES, values={**left, "used mappings": 60000}) is None
    assert told(tmp_path, LOADED, RECEIVES, values={"used mappings": 65050, "machine memory left": 1 << 20}) is None
