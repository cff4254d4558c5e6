"""A thread saves a tensor, as asynchronous checkpoints do; the main thread goes on: saved_by_a_thread.py HOW.

"freed": the main thread frees the memory while it is written. "own": the thread itself does. "copied": the thread
writes a copy.
"""

import io
import sys
import threading
import time
from typing import Any

import torch

HOW = sys.argv[1]
begun = threading.Event()
WEIGHT = torch.ones(64 << 20, dtype=torch.uint8)


class Slow(io.BytesIO):
    """A file that takes its time, as a network file system does."""

    def write(self, data: Any) -> int:
        """The head of the weight's record is written; its data are next."""
        if b"data/0" in bytes(data[:4096]):
            if HOW == "own":
                WEIGHT.untyped_storage().resize_(0)
            begun.set()
            time.sleep(1)
        return len(memoryview(data))


def save(state: dict[str, torch.Tensor]) -> None:
    """What the thread does."""
    torch.save(state, Slow())


def main() -> None:
    """The next step frees the weight."""
    state = {"weight": WEIGHT.clone() if HOW == "copied" else WEIGHT}
    writer = threading.Thread(target=save, args=(state,), name="writer")
    writer.start()
    begun.wait()
    if HOW != "own":
        WEIGHT.untyped_storage().resize_(0)
    writer.join()


if __name__ == "__main__":
    main()
