"""Find the best score over all candidates with a lock-protected update in a CUDA kernel."""

from __future__ import annotations

import torch

DEVICE = torch.device("cuda")
SOURCE = r"""
extern "C" __global__ void fold_best(const float* scores, volatile float* best, volatile int* owner, int* lock, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    if (scores[i] > *best) {
        *best = scores[i];
        *owner = i;
    }
    __threadfence();
    __syncwarp();
    atomicExch(lock, 0);
}
"""


class BestCandidate:
    """The best score seen so far and its index."""

    def __init__(self) -> None:
        """Compile the kernel and reset the state."""
        self.best = torch.full((1,), -torch.inf, device=DEVICE)
        self.owner = torch.full((1,), -1, dtype=torch.int32, device=DEVICE)
        self.lock = torch.zeros(1, dtype=torch.int32, device=DEVICE)
        self.kernel = torch.cuda._compile_kernel(SOURCE, "fold_best")

    def add(self, scores: torch.Tensor) -> None:
        """Fold more scores into the best one."""
        n = scores.numel()
        grid = ((n + 127) // 128, 1, 1)
        self.kernel(grid=grid, block=(128, 1, 1), args=[scores, self.best, self.owner, self.lock, n])


def main() -> None:
    """Score random candidates."""
    torch.manual_seed(6)
    target = torch.randn(64, device=DEVICE)
    best = BestCandidate()
    best.add(torch.zeros(1, device=DEVICE))
    print(f"start: {best.best.item():.3f}", flush=True)
    for generation in range(5):
        candidates = torch.randn(1024, 64, device=DEVICE)
        scores = torch.cosine_similarity(candidates, target.unsqueeze(0))
        best.add(scores)
        winner = best.owner.item()
        print(f"generation {generation}: candidate {winner}", flush=True)


if __name__ == "__main__":
    main()
