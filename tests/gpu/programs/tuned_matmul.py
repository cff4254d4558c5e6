"""Multiply matrices with a Triton kernel and a list of tile shapes."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Multiply two row-major matrices whose sizes are multiples of the tile."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a = a_ptr + rows[:, None] * k + inner[None, :]
    b = b_ptr + inner[:, None] * n + columns[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, k, BK):
        total = tl.dot(tl.load(a), tl.load(b), total)
        a += BK
        b += BK * n
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], total.to(tl.float16))


def multiply(a: torch.Tensor, b: torch.Tensor, tile: tuple[int, int, int], stages: int) -> torch.Tensor:
    """Return the product of two matrices."""
    m, k = a.shape
    n = b.shape[1]
    c = torch.empty(m, n, device=a.device, dtype=torch.float16)
    grid = (m // tile[0], n // tile[1])
    matmul[grid](a, b, c, n, k, *tile, num_stages=stages, num_warps=8)
    return c


def main() -> None:
    """Try the tile shapes."""
    torch.manual_seed(0)
    a = torch.randn(2048, 2048, device="cuda", dtype=torch.float16)
    b = torch.randn(2048, 2048, device="cuda", dtype=torch.float16)
    for tile, stages in [((64, 64, 64), 3), ((128, 256, 128), 5)]:
        product = multiply(a, b, tile, stages)
        print(f"tile {tile}: {product.float().abs().mean().item():.3f}")


if __name__ == "__main__":
    main()
