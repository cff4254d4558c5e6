"""Drains a device-side work queue with a persistent kernel."""

from __future__ import annotations

import torch
from torch import Tensor

SOURCE = """
extern "C" __global__ void drain(const int* ready, const float* items, float* total, int count) {
    volatile const int* flag = ready;
    while (*flag == 0) {
    }
    float sum = 0.0f;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        sum += items[i];
    }
    atomicAdd(total, sum);
}
"""


def start_worker(ready: Tensor, items: Tensor, total: Tensor) -> None:
    """Launch the worker that consumes the items once they are ready."""
    drain = torch.cuda._compile_kernel(SOURCE, "drain")
    drain(grid=(1, 1, 1), block=(128, 1, 1), args=[ready, items, total, items.numel()])


def publish(ready: Tensor, items: Tensor) -> None:
    """Fill the queue and mark it as ready."""
    items.fill_(1.0)
    ready.fill_(1)


def main() -> None:
    """Start the worker, publish the items and wait for the total."""
    ready = torch.full((1,), 0, dtype=torch.int32, device="cuda")
    items = torch.full((4096,), 0.0, device="cuda")
    total = torch.zeros(1, device="cuda")
    start_worker(ready, items, total)
    publish(ready, items)
    torch.cuda.synchronize()
    print("total", total.item())


if __name__ == "__main__":
    main()
