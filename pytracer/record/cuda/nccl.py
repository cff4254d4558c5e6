"""Progress of NCCL's collectives, from torch's Flight Recorder.

NCCL's work is queued on a CUDA stream; only the process group's watchdog learns whether the device has started or
completed it, and records that in the Flight Recorder. "started" needs TORCH_NCCL_ENABLE_TIMING=1.
"""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pytracer.blackbox.numbers import CollectiveState

if TYPE_CHECKING:
    from pytracer.record.cuda.library import CudaLibrary
    from pytracer.record.torch_objects import GroupStatus, TraceEntry

_Word = Literal["last_started_collective", "last_completed_collective"]
_WORDS: tuple[tuple[int, _Word], ...] = (
    (CollectiveState.STARTED, "last_started_collective"),
    (CollectiveState.COMPLETED, "last_completed_collective"),
)


class Groups:
    """Copies the progress of each process group into the recording."""

    def __init__(self, hooks: CudaLibrary) -> None:
        self._hooks = hooks
        self._told: dict[tuple[str, int], int] = {}

    def look(self) -> bool | None:
        """Reads the Flight Recorder once. True if there will never be anything to read."""
        import torch.distributed as dist

        if not dist.is_available() or not dist.is_nccl_available():
            return True
        if not dist.is_initialized():
            return None
        c10d = importlib.import_module("torch._C._distributed_c10d")

        before = {name: self._hooks.group_scheduled(name) for name in dist.distributed_c10d._world.pg_names.values()}
        dump = pickle.loads(c10d._dump_nccl_trace(includeCollectives=True, includeStackTraces=False, onlyActive=True))
        names = {str(key): _name(value) for key, value in (dump.get("pg_config") or {}).items()}
        for key, status in (dump.get("pg_status") or {}).items():
            name = names.get(str(key), str(key))
            # Comparable only if nothing was called meanwhile: then both describe the same moment.
            if before.get(name) and before[name] == self._hooks.group_scheduled(name):
                entries = [item for item in dump.get("entries") or () if _group_of(item) == name]
                for state, word in _WORDS:
                    self._tell(name, state, reached(before[name], status, entries, word))
        return None

    def _tell(self, name: str, state: int, number: int | None) -> None:
        if number is None or number <= 0 or self._told.get((name, state)) == number:
            return
        self._told[name, state] = number
        self._hooks.group_reached(name, number, state)


def reached(scheduled: int, status: GroupStatus, entries: Sequence[TraceEntry], word: _Word) -> int | None:
    """How many of the `scheduled` collectives of a group have reached `word`; None if that is uncertain.

    torch numbers them differently: one number for all collectives of a coalesced region, one for each batch of sends
    and receives. So those that have not reached `word` are counted, among the entries that are not completed.
    """
    queued, last = int(status.get("last_enqueued_collective", -1)), max(0, int(status.get(word, -1)))
    behind = [item for item in entries if int(item.get("collective_seq_id", 0)) > last]
    if queued < last or len({item["collective_seq_id"] for item in behind}) != queued - last:
        return None  # the recorder is too small, or its watchdog has not recorded everything yet
    own = [item for item in behind if not item.get("is_p2p") and not _closes_region(item)]
    return scheduled - len(own)


def _closes_region(entry: TraceEntry) -> bool:
    """The entry for a coalesced region as a whole, which follows those of its collectives."""
    return str(entry.get("profiling_name", "")).endswith(":coalesced")


def _group_of(entry: TraceEntry) -> str:
    group = entry.get("process_group")
    return str(group[0]) if group else ""


def _name(config: object) -> str:
    return str(config.get("name")) if isinstance(config, dict) else str(config)
