"""How far NCCL's collectives got: torch's Flight Recorder is read once a second by a thread of its own.

NCCL's work is queued on a stream; whether the device has come to it, or finished it, only the process group's watchdog
knows, and writes into the Flight Recorder. Neither may be asked while a process dies, so that the box is kept up to date
before. "started" is known with TORCH_NCCL_ENABLE_TIMING=1 only.
"""

from __future__ import annotations

import pickle
import threading
from typing import Any

from pytracer.blackbox.schema import CollectiveState
from pytracer.record.core import Core

SECONDS = 1.0
STARTED, COMPLETED = int(CollectiveState.STARTED), int(CollectiveState.COMPLETED)

_stop: threading.Event | None = None


def start(box: Core, native_cuda: Any) -> None:
    """Starts the thread, once, where torch has NCCL."""
    global _stop
    import torch

    if _stop is not None or not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        return
    _stop = threading.Event()
    reader = _Reader(box, native_cuda)
    threading.Thread(target=reader.run, args=(_stop,), name="pytracer-nccl", daemon=True).start()


def stop() -> None:
    """Ends the thread."""
    global _stop
    if _stop is not None:
        _stop.set()
    _stop = None


class _Reader:
    """Copies what the Flight Recorder knows of each group into the box."""

    def __init__(self, box: Core, native_cuda: Any) -> None:
        self._box, self._native = box, native_cuda
        self._told: dict[tuple[str, int], int] = {}
        self._shifts: dict[str, int] = {}  # how far torch's numbers are ahead of the box's, by group
        self._deaf = False

    def run(self, stop: threading.Event) -> None:
        """Until it is told to stop, or the first error."""
        while not stop.wait(SECONDS):
            try:
                self._look_at_allocator()
                self._look_at_groups()
            except Exception as error:
                self._box.lib.pytracer_count_hook_error()
                self._box.note(f"how far NCCL's collectives get is not recorded: {type(error).__name__}: {error}")
                return

    def _look_at_allocator(self) -> None:
        if not self._deaf and self._native.is_deaf():
            self._deaf = True
            self._box.note("memory of CUDA devices is not followed: the allocator accepted the tracker and never calls it")

    def _look_at_groups(self) -> None:
        import torch.distributed as dist
        from torch._C import _distributed_c10d as c10d

        if not dist.is_initialized():
            return
        before = {name: self._native.group_scheduled(name) for name in self._known()}
        data = c10d._dump_nccl_trace(includeCollectives=True, includeStackTraces=False, onlyActive=True)
        dump = pickle.loads(data)
        names = {str(key): _name(value) for key, value in dict(dump.get("pg_config") or {}).items()}
        for key, status in dict(dump.get("pg_status") or {}).items():
            name = names.get(str(key), str(key))
            queued = int(status.get("last_enqueued_collective", -1))
            if name not in before:
                continue
            self._compare(name, before[name], queued)
            for state, word in ((STARTED, "last_started_collective"), (COMPLETED, "last_completed_collective")):
                self._tell(name, state, int(status.get(word, -1)))

    def _known(self) -> list[str]:
        import torch.distributed as dist

        return list(dict(dist.distributed_c10d._world.pg_names).values())

    def _compare(self, name: str, scheduled: int, queued: int) -> None:
        """Where nothing was called meanwhile, both counts are of the same moment."""
        if scheduled and scheduled == self._native.group_scheduled(name):
            self._shifts[name] = queued - scheduled

    def _tell(self, name: str, state: int, number: int) -> None:
        shift = self._shifts.get(name)
        # Behind the box: torch counts several that it runs as one. Then the last ones are not known.
        if shift is None or shift < 0 or number <= 0 or self._told.get((name, state)) == number:
            return
        self._told[name, state] = number
        self._native.group_reached(name, number - shift, state)


def _name(config: Any) -> str:
    return str(config.get("name")) if isinstance(config, dict) else str(config)
