"""The deaths of `training`, for processes that have no torch."""

import ctypes
import mmap
import os
import queue
import time
from pathlib import Path


def die(death: str) -> None:
    if death == "fault":
        read_closed_file()
    elif death == "kill":
        tell("victim")
        time.sleep(120)
    elif death == "exception":
        raise ValueError("label 11 in shard 3, but there are 10 classes")  # exception
    elif death == "hang":
        tell("hangs")
        queue.Queue().get()  # hang


def tell(what: str) -> None:
    """As in training."""
    named = Path(os.environ["HOMES_WORK"], what)
    named.with_suffix(".new").write_text(str(os.getpid()))
    named.with_suffix(".new").rename(named)


def read_closed_file() -> None:
    """A native reader of a file that was closed."""
    page = mmap.mmap(-1, 1 << 20)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    page.close()
    ctypes.string_at(address, 64)  # fault
