"""Crashes that look alike: one file, one function, often one message, but each has another cause.

    python look_alikes.py CAUSE

scripts/fingerprint_pairs.py runs them; every function here whose name is given is a cause of its own.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

import torch
import torch.nn.functional as F

TABLE = torch.zeros(4, 2)
ROWS = torch.tensor([1, 9])


def step(cause: str) -> object:
    """All of them end here."""
    batch = None
    if cause == "embedding_of_missing_row":
        return F.embedding(ROWS, TABLE)
    if cause == "select_of_missing_row":
        return torch.index_select(TABLE, 0, ROWS)
    if cause == "layer_of_missing_row":
        return torch.nn.Embedding(4, 2)(ROWS)
    if cause == "none_has_no_shape":
        return batch.shape
    if cause == "none_has_no_backward":
        return batch.backward()
    if cause == "name_of_loss":
        return loss  # noqa: F821
    if cause == "name_of_scheduler":
        return scheduler  # noqa: F821
    if cause == "no_argument_dropout":
        return dict.fromkeys([1], dropout=1)
    if cause == "class_as_float":
        return F.cross_entropy(torch.zeros(2, 3), torch.tensor([0.0, 1.0]))
    if cause == "likelihood_as_float":
        return F.nll_loss(torch.zeros(2, 3), torch.tensor([0.0, 1.0]))
    if cause == "read_of_null":
        return ctypes.c_long.from_address(0).value
    if cause == "write_of_null":
        return ctypes.memset(0, 1, 8)
    if cause == "aborts":
        return os.abort()
    if cause == "freed_twice":
        libc = ctypes.CDLL(None)
        libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        block = libc.malloc(64 << 10)
        libc.free(block + 16)
        return None
    if cause == "terminates_itself":
        return os.kill(os.getpid(), signal.SIGTERM)
    if cause == "kills_itself":
        return os.kill(os.getpid(), signal.SIGKILL)
    if cause == "leaves_with_3":
        return os._exit(3)
    if cause == "leaves_with_4":
        return os._exit(4)
    raise SystemExit(f"there is no cause {cause}")


def validate(cause: str) -> object:
    """The same error as in `step`, found elsewhere."""
    return F.embedding(ROWS, TABLE) if cause.endswith("embedding") else TABLE.view(3, 3)


def main() -> None:
    """The cause that is named."""
    cause = sys.argv[1]
    validate(cause) if cause.startswith("validate") else step(cause)


if __name__ == "__main__":
    main()
