"""Captures an inference step while a loader thread uploads the next batch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn


def fetch(index: int) -> Tensor:
    """Load one batch and move it to the device."""
    generator = torch.Generator().manual_seed(index)
    batch = torch.rand(64, 3, 224, 224, generator=generator)
    return batch.to("cuda")


@torch.no_grad()
def main() -> None:
    """Capture the step during the first upload, then run a few batches."""
    model = nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(588, 100)).cuda().eval()
    inputs = torch.zeros(64, 3, 224, 224, device="cuda")
    for _ in range(3):
        model(inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with ThreadPoolExecutor(max_workers=1) as pool:
        with torch.cuda.graph(graph):
            pending = pool.submit(fetch, 0)
            scores = model(inputs)
            batch = pending.result()
        for index in range(1, 4):
            pending = pool.submit(fetch, index)
            inputs.copy_(batch)
            graph.replay()
            print("best score", scores.max().item())
            batch = pending.result()


if __name__ == "__main__":
    main()
