"""Host code reads an inaccessible page of pinned memory, selected by the first word; see the functions."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, IterableDataset

PAGE, SMALL = 4096, 300_000


class Batches(IterableDataset[torch.Tensor]):
    """One item."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield torch.ones(SMALL // 4)


def empty() -> torch.Tensor:
    """Pinned from the beginning."""
    return torch.empty(SMALL, dtype=torch.uint8, pin_memory=True)


def copied() -> torch.Tensor:
    """A pinned copy."""
    return torch.ones(SMALL // 4).pin_memory()


def loaded() -> torch.Tensor:
    """By a DataLoader's pinning thread."""
    (batch,) = DataLoader(Batches(), batch_size=None, pin_memory=True)
    return batch


def freed() -> tuple[int, int]:
    """Freed, and released to the system by torch's cache."""
    tensor = empty()
    addr = tensor.data_ptr()
    del tensor  # freed
    getattr(torch.accelerator, "empty_host_cache", torch._C._host_emptyCache)()
    return addr, SMALL


def used(tensor: torch.Tensor) -> None:
    """As in training: torch must recognize it as pinned, wait for its copies, and reuse what was freed."""
    assert tensor.is_pinned() and tensor.untyped_storage().is_pinned()
    on_device = tensor.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    assert on_device.cpu().equal(tensor)
    again = empty()
    addr = again.data_ptr()
    del again
    assert empty().data_ptr() == addr != tensor.data_ptr()


def main() -> None:
    """Prints the address, and faults there: in the second page, or after the last one with a second word."""
    made = globals()[sys.argv[1]]()
    if isinstance(made, torch.Tensor):
        used(made)
        base, nbytes = made.data_ptr(), made.untyped_storage().nbytes()
    else:
        base, nbytes = made
    page = base + (PAGE if len(sys.argv) < 3 else -(-nbytes // PAGE) * PAGE)
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0)  # refused where nothing is mapped
    print(json.dumps({"base": base, "nbytes": nbytes, "addr": page + 24}), flush=True)
    ctypes.string_at(page + 24, 4)


if __name__ == "__main__":
    main()
