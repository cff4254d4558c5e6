"""Histogram detector pulse heights with a small CUDA kernel."""

from __future__ import annotations

import torch

DEVICE = torch.device("cuda")
SOURCE = r"""
extern "C" __global__ void count_pulses(const float* heights, int* counts, double low, double high, int n, int bins) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double position = (heights[i] - low) / (high - low);
    int bin = static_cast<int>(floor(position * bins));
    assert(bin >= 0 && bin < bins);
    atomicAdd(&counts[bin], 1);
}
"""


class PulseHistogram:
    """Counts of pulse heights in equal bins."""

    def __init__(self, bins: int) -> None:
        """Compile the kernel and reserve the counts."""
        self.bins = bins
        self.counts = torch.zeros(bins, dtype=torch.int32, device=DEVICE)
        self.kernel = torch.cuda._compile_kernel(SOURCE, "count_pulses")

    def fill(self, heights: torch.Tensor, low: float, high: float) -> torch.Tensor:
        """Count the heights between low and high."""
        n = heights.numel()
        self.counts.zero_()
        grid = ((n + 255) // 256, 1, 1)
        self.kernel(grid=grid, block=(256, 1, 1), args=[heights, self.counts, low, high, n, self.bins])
        return self.counts


def main() -> None:
    """Histogram some runs, first on the detector's range and then on each run's own range."""
    torch.manual_seed(5)
    histogram = PulseHistogram(128)
    runs = [torch.rand(50_000, device=DEVICE) * 3000.0 + 100.0 for _ in range(3)]
    for number, run in enumerate(runs):
        counts = histogram.fill(run, 0.0, 4096.0).cpu()
        print(f"run {number}: fullest bin {int(counts.argmax())}", flush=True)
    for number, run in enumerate(runs):
        low, high = run.min().item(), run.max().item()
        counts = histogram.fill(run, low, high)
        zoomed = counts.tolist()
        print(f"run {number}: {sum(zoomed)} pulses between {low:.0f} and {high:.0f}", flush=True)


if __name__ == "__main__":
    main()
