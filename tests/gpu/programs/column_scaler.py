"""Scale the columns of a sharded table and share the statistics between the ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist

ROWS = 29800
WIDTH = 128
ROWS_PER_BLOCK = 256
SOURCE = """
extern "C" __global__ void scale_columns(float* table, float* sums, int* arrived, int rows, int width, int blocks) {
    int first = blockIdx.x * 256;
    int last = min(first + 256, rows);
    float total = 0.0f;
    for (int row = first; row < last; ++row) {
        float value = table[(size_t)row * width + threadIdx.x];
        total += value * value;
    }
    atomicAdd(&sums[threadIdx.x], total);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (atomicAdd(arrived, 0) < blocks) {
        }
    }
    __syncthreads();
    float scale = rsqrtf(atomicAdd(&sums[threadIdx.x], 0.0f) / rows);
    for (int row = first; row < last; ++row) {
        table[(size_t)row * width + threadIdx.x] *= scale;
    }
}
"""


def main() -> None:
    """Scale this rank's rows and average the statistics."""
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(0)
    generator = torch.Generator(device="cuda").manual_seed(rank)
    per_rank = -(-ROWS // (ranks * ROWS_PER_BLOCK)) * ROWS_PER_BLOCK
    blocks = per_rank // ROWS_PER_BLOCK
    rows = min(per_rank, ROWS - rank * per_rank)
    kernel = torch.cuda._compile_kernel(SOURCE, "scale_columns")
    for epoch in range(3):
        table = torch.randn(rows, WIDTH, device="cuda", generator=generator)
        sums = torch.zeros(WIDTH, device="cuda")
        arrived = torch.zeros(1, dtype=torch.int32, device="cuda")
        grid = (-(-rows // ROWS_PER_BLOCK), 1, 1)
        kernel(grid=grid, block=(WIDTH, 1, 1), args=[table, sums, arrived, rows, WIDTH, blocks])
        dist.all_reduce(sums)
        if rank == 0:
            print(f"epoch {epoch}: deviation {(sums / ROWS).sqrt().mean().item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
