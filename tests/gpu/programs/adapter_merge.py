"""Merge low-precision adapter deltas into a base weight with one kernel."""

from __future__ import annotations

import cupy as cp
import numpy as np
import torch

SOURCE = r"""
extern "C" __global__
void add_deltas(float* base, const float* const* deltas, int count, long long size) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += step) {
        float total = base[i];
        for (int d = 0; d < count; ++d) {
            total += deltas[d][i];
        }
        base[i] = total;
    }
}
"""


class Merger:
    """Base weight with the addresses of the deltas to add."""

    def __init__(self, base: torch.Tensor, deltas: list[torch.Tensor]) -> None:
        self.merged = base.float()
        self.count = len(deltas)
        addresses = [delta.float().data_ptr() for delta in deltas]
        self.addresses = torch.tensor(addresses, device="cuda")
        self.add_deltas = cp.RawKernel(SOURCE, "add_deltas")

    def run(self) -> torch.Tensor:
        """Add all deltas to the base."""
        size = self.merged.numel()
        arguments = (self.merged.data_ptr(), self.addresses.data_ptr(), np.int32(self.count), np.int64(size))
        self.add_deltas((512,), (256,), arguments)
        return self.merged


def main() -> None:
    """Merge three adapters and print the norm of the result."""
    torch.manual_seed(4)
    base = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    deltas = [torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) * 0.01 for _ in range(3)]
    merger = Merger(base, deltas)
    torch.cuda.empty_cache()
    merged = merger.run()
    print(f"norm after the merge {merged.norm().item():.2f}")


if __name__ == "__main__":
    main()
