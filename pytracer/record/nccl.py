"""How far NCCL's collectives got, as torch's Flight Recorder knows it.

NCCL's work is queued on a stream; whether the device has come to it, or finished it, only the process group's watchdog
learns, and writes into the Flight Recorder. "started" is known with TORCH_NCCL_ENABLE_TIMING=1 only.
"""

from __future__ import annotations

import importlib
import pickle
from typing import Any

from pytracer.blackbox.numbers import CollectiveState

_WORDS = (
    (CollectiveState.STARTED, "last_started_collective"),
    (CollectiveState.COMPLETED, "last_completed_collective"),
)


class Groups:
    """Copies the progress of each process group into the box."""

    def __init__(self, native_cuda: Any) -> None:
        self._native = native_cuda
        self._told: dict[tuple[str, int], int] = {}
        self._shifts: dict[str, int] = {}  # how far torch's numbers are ahead of the box's, by group

    def look(self) -> bool | None:
        """Reads the Flight Recorder once. True when there will never be anything to read."""
        import torch.distributed as dist

        if not dist.is_available() or not dist.is_nccl_available():
            return True
        if not dist.is_initialized():
            return None
        c10d: Any = importlib.import_module("torch._C._distributed_c10d")

        before = {name: self._native.group_scheduled(name) for name in dist.distributed_c10d._world.pg_names.values()}
        dump = pickle.loads(c10d._dump_nccl_trace(includeCollectives=True, includeStackTraces=False, onlyActive=True))
        names = {str(key): _name(value) for key, value in (dump.get("pg_config") or {}).items()}
        for key, status in (dump.get("pg_status") or {}).items():
            name = names.get(str(key), str(key))
            if name in before:
                self._compare(name, before[name], int(status.get("last_enqueued_collective", -1)))
                for state, word in _WORDS:
                    self._tell(name, state, int(status.get(word, -1)))
        return None

    def _compare(self, name: str, scheduled: int, queued: int) -> None:
        """Where nothing was called meanwhile, both counts are of the same moment."""
        if scheduled and queued > 0 and scheduled == self._native.group_scheduled(name):
            self._shifts[name] = queued - scheduled

    def _tell(self, name: str, state: int, number: int) -> None:
        shift = self._shifts.get(name)
        # Behind the box: torch counts several that it runs as one. Then it is not known which of them are done.
        if shift is None or shift < 0 or number <= 0 or self._told.get((name, state)) == number:
            return
        self._told[name, state] = number
        self._native.group_reached(name, number - shift, state)


def _name(config: Any) -> str:
    return str(config.get("name")) if isinstance(config, dict) else str(config)
