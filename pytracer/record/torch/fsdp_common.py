"""Shared by FSDP1 and FSDP2: the entries that name a unit, its parameters and its shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytracer.blackbox.numbers import Entry
from pytracer.record.bootstrap.best_effort import BestEffort
from pytracer.record.bootstrap.dynamo import unseen
from pytracer.record.core import Core
from pytracer.record.torch import process_groups
from pytracer.record.torch.scopes import scope

if TYPE_CHECKING:
    from pytracer.record.torch_objects import Tensor

CLOSE_CALLS = 3  # names and shards rarely change after the first steps
LATER_EVERY = 64
MOST_GENERATIONS = 8  # of one unit: the journal is finite

best_effort = BestEffort()
_roots: dict[str, int] = {}


def root_name(kind: str) -> str:
    """`Net`, then `Net #2`: several models of one class."""
    _roots[kind] = _roots.get(kind, 0) + 1
    return kind if _roots[kind] == 1 else f"{kind} #{_roots[kind]}"


class Unit:
    """One unit: when it was read, and what was last recorded."""

    def __init__(self, module: str, fqn: str) -> None:
        self.module, self.fqn = module, fqn
        self.calls = 0
        self.by_hand = False  # FSDP2: see fsdp2.py
        self._noted: dict[str, object] | None = None
        self._generation = -1

    def is_time(self) -> bool:
        """True for the first calls and every 64th."""
        self.calls += 1
        return self.calls <= CLOSE_CALLS or self.calls % LATER_EVERY == 0

    @unseen
    def scope(self, step: str, box: Core) -> int:
        """The scope that FSDP2's own range of that name would have, e.g. `FSDP::all_gather (layers.0)`."""
        return scope(box, f"{step} ({self.fqn})" if self.fqn else step)

    def note(self, box: Core, described: dict[str, object]) -> None:
        """Writes UNIT if it differs from the last entry."""
        if described == self._noted or self._generation + 1 >= MOST_GENERATIONS:
            return
        self._noted = described
        self._generation += 1
        process_groups.note_rank(box)
        box.journal(Entry.UNIT, {"module": self.module, "unit": self.fqn, "generation": self._generation, **described})


def storage_addr(tensor: Tensor) -> int:
    """Address of its storage; 0 if it has none at the moment."""
    return int(tensor.data_ptr()) if tensor.untyped_storage().nbytes() else 0
