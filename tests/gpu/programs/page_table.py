"""Hands out cache pages to sequences and takes them back."""

from __future__ import annotations

import torch
from torch import Tensor

MIB = 1 << 20


class PageCache:
    """Keeps one page of keys and values for each running sequence."""

    def __init__(self, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self.pages: dict[int, Tensor] = {}

    def admit(self, sequence: int) -> None:
        """Give a page to a sequence."""
        self.pages[sequence] = torch.zeros(self.page_bytes, dtype=torch.uint8, device="cuda")

    def finish(self, sequence: int) -> None:
        """Take the page of a sequence back."""
        del self.pages[sequence]


def main() -> None:
    """Run many short sequences, end half of them, and admit a long prompt."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(1280 * MIB / total)
    cache = PageCache(9 * MIB)
    for sequence in range(124):
        cache.admit(sequence)
    for sequence in range(0, 124, 2):
        cache.finish(sequence)
    prompt = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
    print("prompt", prompt.numel(), "pages", len(cache.pages))


if __name__ == "__main__":
    main()
