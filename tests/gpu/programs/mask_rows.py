"""Count the set bytes of every row of a large mask."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

ROWS = 40_000
COLUMNS = 57_344


@triton.jit
def count_rows(mask_ptr, counts_ptr, columns, row_stride, BLOCK: tl.constexpr):
    """Count the non-zero bytes of one row."""
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.int32)
    start = mask_ptr + row * row_stride
    for begin in range(0, columns, BLOCK):
        inside = begin + offsets < columns
        total += tl.load(start + begin + offsets, mask=inside, other=0).to(tl.int32)
    tl.store(counts_ptr + row, tl.sum(total, axis=0))


def row_counts(mask: torch.Tensor) -> torch.Tensor:
    """Return the number of set bytes of each row."""
    counts = torch.empty(mask.shape[0], dtype=torch.int32, device=mask.device)
    count_rows[(mask.shape[0],)](mask, counts, mask.shape[1], mask.stride(0), BLOCK=1024)
    return counts


def main() -> None:
    """Count on a small crop first, then on the whole mask."""
    mask = torch.zeros(ROWS, COLUMNS, dtype=torch.uint8, device="cuda")
    mask[:, ::64] = 1
    crop = row_counts(mask[:512])
    print(f"crop: {int(crop.sum())}")
    counts = row_counts(mask)
    total = int(counts.sum())
    print(f"all: {total}")


if __name__ == "__main__":
    main()
