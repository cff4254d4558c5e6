"""Encode batches and collect the features in pinned host memory."""

from __future__ import annotations

import torch
from torch import nn

ROWS = 4096
WIDTH = 4096
FEATURES = 256
BATCHES = 6


def build() -> nn.Module:
    """Return the encoder."""
    layers: list[nn.Module] = []
    for _ in range(8):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Linear(WIDTH, FEATURES)).cuda().eval()


class Collector:
    """Copies features to the host on its own stream."""

    def __init__(self, rows: int) -> None:
        self.rows = torch.empty(rows, FEATURES, pin_memory=True)
        self.drain = torch.cuda.Stream()
        self.used = 0

    def add(self, features: torch.Tensor) -> None:
        """Append the features of one batch."""
        stop = self.used + features.shape[0]
        with torch.cuda.stream(self.drain):
            self.rows[self.used : stop].copy_(features, non_blocking=True)
        features.record_stream(self.drain)
        self.used = stop

    def finish(self) -> torch.Tensor:
        """Wait for the copies and return all features."""
        self.drain.synchronize()
        return self.rows[: self.used]


@torch.no_grad()
def main() -> None:
    """Encode all batches and compare a sample with the encoder."""
    torch.manual_seed(41)
    encoder = build()
    batches = [torch.randn(ROWS, WIDTH, device="cuda") for _ in range(BATCHES)]
    collector = Collector(ROWS * BATCHES)
    for batch in batches:
        collector.add(encoder(batch))
    features = collector.finish().clone()
    wrong = []
    for index, batch in enumerate(batches):
        expected = encoder(batch).cpu()
        if not torch.allclose(features[index * ROWS : (index + 1) * ROWS], expected, atol=1e-4):
            wrong.append(index)
    if wrong:
        raise RuntimeError(f"features of batches {wrong} differ from the encoder's output")
    print("features written")


if __name__ == "__main__":
    main()
