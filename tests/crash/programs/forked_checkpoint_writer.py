"""A checkpoint writer in a forked child; what the child finds of its parent's memory: forked_checkpoint_writer.py HOW.

"dontfork": the pages of the weight are MADV_DONTFORK, as drivers mark what they have registered. "copied": the parent
copies the weight into ordinary memory first. "own": the child makes the weight itself, and unmaps it. "borrowed": the
weight is memory of another owner, who unmaps it in the child.
"""

import ctypes
import io
import mmap
import multiprocessing
import sys

import numpy
import torch

HOW = sys.argv[1]
MADV_DONTFORK = 10
NBYTES = 8 << 20
LIBC = ctypes.CDLL(None, use_errno=True)
PAGES = mmap.mmap(-1, NBYTES)


def pages(weight: torch.Tensor) -> tuple[ctypes.c_void_p, ctypes.c_size_t]:
    """The whole pages of its data."""
    first = -(-weight.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (weight.data_ptr() + NBYTES - first) // mmap.PAGESIZE * mmap.PAGESIZE
    return ctypes.c_void_p(first), ctypes.c_size_t(length)


def made() -> torch.Tensor:
    """The weight."""
    if HOW == "borrowed":
        return torch.from_numpy(numpy.frombuffer(PAGES, dtype=numpy.uint8))
    return torch.ones(NBYTES, dtype=torch.uint8)


def write(state: dict[str, torch.Tensor]) -> None:
    """What the child does."""
    if HOW == "own":
        state = {"weight": made()}
    if HOW in ("own", "borrowed"):
        assert LIBC.munmap(*pages(state["weight"])) == 0
    torch.save(state, io.BytesIO())


def main() -> None:
    """The parent waits for its writer."""
    state = {"weight": made()}
    if HOW in ("dontfork", "copied"):
        assert LIBC.madvise(*pages(state["weight"]), MADV_DONTFORK) == 0
    if HOW == "copied":
        state = {name: tensor.clone() for name, tensor in state.items()}
    writer = multiprocessing.get_context("fork").Process(target=write, args=(state,))
    writer.start()
    writer.join()
    sys.exit(writer.exitcode != 0)


if __name__ == "__main__":
    main()
