"""Capture a decoder whose activations are observed for quantization."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

BATCH = 64
WIDTH = 512
EVERY = 4


class ArrayView:
    """Shows a tensor to NumPy without a copy."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(tensor.shape),
            "typestr": "<f4",
            "data": (tensor.data_ptr(), False),
        }


class Observer:
    """Range of the activations, sampled in every fourth call."""

    def __init__(self) -> None:
        self.calls = 0
        self.peak = 0.0

    def update(self, activations: torch.Tensor) -> None:
        """Widen the range by a sample of the activations."""
        self.calls += 1
        if self.calls % EVERY == 0:
            self.peak = max(self.peak, float(np.asarray(ArrayView(activations)).max()))


class Decoder(nn.Module):
    """Two layers with an observer between them."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.observer = Observer()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Decode one batch."""
        activations = torch.relu(self.up(hidden))
        self.observer.update(activations)
        return self.down(activations)


def capture(decoder: Decoder, hidden: torch.Tensor) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """Warm up and capture one step."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            decoder(hidden)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = decoder(hidden)
    return graph, output


@torch.no_grad()
def main() -> None:
    """Decode a few batches from the graph."""
    torch.manual_seed(67)
    decoder = Decoder().cuda().eval()
    hidden = torch.zeros(BATCH, WIDTH, device="cuda")
    graph, output = capture(decoder, hidden)
    for batch in range(4):
        hidden.normal_()
        graph.replay()
        print(f"batch {batch}: {output.norm().item():.4f}, observed peak {decoder.observer.peak:.4f}")


if __name__ == "__main__":
    main()
