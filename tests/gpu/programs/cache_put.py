"""Fill a paged key cache during decoding."""

from __future__ import annotations

import torch

BLOCKS = 256
BLOCK_SIZE = 16


class KeyCache:
    """A cache of fixed-size blocks for a batch of sequences."""

    def __init__(self, heads: int, width: int) -> None:
        self.keys = torch.zeros(BLOCKS, BLOCK_SIZE, heads, width, device="cuda", dtype=torch.float16)
        self.tables: dict[int, list[int]] = {}
        self.next_block = 0

    def slots(self, sequence: int, position: int) -> tuple[int, int]:
        """Return block and offset of a position, taking a new block when needed."""
        table = self.tables.setdefault(sequence, [])
        if position % BLOCK_SIZE == 0:
            table.append(self.next_block)
            self.next_block += 1
        return table[position // BLOCK_SIZE], position % BLOCK_SIZE

    def append(self, position: int, keys: torch.Tensor) -> None:
        """Write the keys of one position of every sequence."""
        places = torch.tensor([self.slots(sequence, position) for sequence in range(len(keys))], device=keys.device)
        self.keys.index_put_((places[:, 0], places[:, 1]), keys)


def main() -> None:
    """Decode a batch of sequences."""
    torch.manual_seed(0)
    cache = KeyCache(heads=8, width=64)
    for position in range(160):
        keys = torch.randn(32, 8, 64, device="cuda", dtype=torch.float16)
        cache.append(position, keys)
        if position % 16 == 0:
            torch.cuda.synchronize()
            print(f"position {position}: {cache.next_block} blocks")


if __name__ == "__main__":
    main()
