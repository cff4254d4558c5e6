"""Gather tokens into per-expert slots with Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TOKENS, EXPERTS, WIDTH = 4096, 64, 128


class Scratch:
    """One device buffer that is lent out for short-lived index arrays."""

    def __init__(self, words: int) -> None:
        self.words = torch.zeros(words, dtype=torch.int32, device="cuda")

    def take(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Return the buffer's start as an array of another type."""
        return self.words.view(dtype)[:count]


@triton.jit
def dispatch_kernel(tokens, slots, out, stride, width: tl.constexpr):
    """Copy one token's row into its slot."""
    slot = tl.program_id(0)
    columns = tl.arange(0, width)
    token = tl.load(slots + slot)
    row = tl.load(tokens + token * stride + columns)
    tl.store(out + slot * width + columns, row)


def dispatch(tokens: torch.Tensor, expert: torch.Tensor, scratch: Scratch, capacity: int) -> torch.Tensor:
    """Return the tokens grouped by expert, one slot each."""
    choice = scratch.take(TOKENS, torch.int32)
    choice.copy_(expert + 1)
    order = torch.argsort(choice, stable=True)[: TOKENS // 4]
    slots = scratch.take(capacity, torch.int64)
    slots[: order.numel()] = order
    out = torch.empty(capacity, WIDTH, device=tokens.device)
    dispatch_kernel[(capacity,)](tokens, slots, out, tokens.stride(0), width=WIDTH)
    return out


def main() -> None:
    """Route one batch of tokens."""
    torch.manual_seed(0)
    tokens = torch.randn(TOKENS, WIDTH, device="cuda")
    expert = torch.randint(0, EXPERTS, (TOKENS,), device="cuda")
    scratch = Scratch(2 * TOKENS)
    capacity = 24 * EXPERTS
    grouped = dispatch(tokens, expert, scratch, capacity)
    checksum = grouped.double().sum().item()
    print(f"routed {capacity} slots, checksum {checksum:.3f}")


if __name__ == "__main__":
    main()
