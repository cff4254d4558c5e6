"""Sum several matrices in one launch with a table of addresses."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

ELEMENTS = 4096 * 2048


@triton.jit
def sum_group(table_ptr, out_ptr, elements, BLOCK: tl.constexpr):
    """Sum one matrix of the group."""
    number = tl.program_id(0)
    source = tl.load(table_ptr + number).to(tl.pointer_type(tl.float32))
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for begin in range(0, elements, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        total += tl.load(source + offsets, mask=offsets < elements, other=0.0)
    tl.store(out_ptr + number, tl.sum(total, axis=0))


def address_table(weights: list[torch.Tensor]) -> torch.Tensor:
    """Return the addresses of the weights in single precision."""
    converted = [weight.float() for weight in weights]
    return torch.tensor([weight.data_ptr() for weight in converted], dtype=torch.int64, device="cuda")


def main() -> None:
    """Sum the weights of all experts."""
    torch.manual_seed(0)
    experts = [torch.randn(4096, 2048, device="cuda", dtype=torch.bfloat16) for _ in range(8)]
    table = address_table(experts)
    torch.cuda.empty_cache()
    sums = torch.zeros(len(experts), device="cuda")
    sum_group[(len(experts),)](table, sums, ELEMENTS, BLOCK=1024)
    print([round(value, 2) for value in sums.tolist()])


if __name__ == "__main__":
    main()
