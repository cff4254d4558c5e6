"""Average packed sequences with a Triton kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def ragged_mean(values_ptr, starts_ptr, out_ptr, WIDTH: tl.constexpr):
    """Average the rows of one sequence."""
    sequence = tl.program_id(0)
    begin = tl.load(starts_ptr + sequence)
    end = tl.load(starts_ptr + sequence + 1)
    columns = tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), dtype=tl.float32)
    for row in range(begin, end):
        total += tl.load(values_ptr + row * WIDTH + columns)
    tl.store(out_ptr + sequence * WIDTH + columns, total / (end - begin))


def starts_of(lengths: list[int]) -> torch.Tensor:
    """Return the first row of each sequence and the end of the last one."""
    return torch.tensor([0, *lengths]).cumsum(0)


def main() -> None:
    """Average a packed batch."""
    torch.manual_seed(0)
    lengths = [5, 9, 2, 30, 17]
    values = torch.randn(sum(lengths), 128, device="cuda")
    starts = starts_of(lengths)
    out = torch.empty(len(lengths), 128, device="cuda")
    ragged_mean[(len(lengths),)](values, starts, out, WIDTH=128)
    print(out.norm(dim=1).tolist())


if __name__ == "__main__":
    main()
