"""torch.distributed.checkpoint saves asynchronously, and the next step frees a tensor: saved_by_async_save.py HOW.

"freed": a stager that hands on the tensors themselves, as for a state that is on the CPU already. "copied": torch's own
stager copies first.
"""

import contextlib
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.staging import AsyncStager

HOW = sys.argv[1]
begun = threading.Event()
WEIGHT = torch.ones(64 << 20, dtype=torch.uint8)


class SameTensors(AsyncStager):
    """It copies nothing."""

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """What is saved."""
        return state_dict


class SlowFile:
    """A file that takes its time, as a network file system does."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        """The head of the weight's record is written; its data are next."""
        if b"data/0" in bytes(data[:4096]):
            begun.set()
            time.sleep(1)
        return int(self._file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class SlowFileSystem(FileSystem):
    """All files are slow."""

    @contextlib.contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        """See FileSystem."""
        with super().create_stream(path, mode) as file:
            yield SlowFile(file)


def main() -> None:
    """The next step frees the weight."""
    with tempfile.TemporaryDirectory() as directory:
        writer = dcp.FileSystemWriter(directory)
        writer.fs = SlowFileSystem()
        stager = SameTensors() if HOW == "freed" else None
        saved = dcp.async_save({"weight": WEIGHT}, storage_writer=writer, async_stager=stager, no_dist=True)
        assert begun.wait(60)
        WEIGHT.untyped_storage().resize_(0)
        saved.result()


if __name__ == "__main__":
    main()
