"""Averages the pixel values of prefetched image batches."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn


class Prefetcher:
    """Copies the next batch to the device while the current one is in use."""

    def __init__(self, batches: list[Tensor]) -> None:
        self.batches: Iterator[Tensor] = iter(batches)
        self.stream = torch.cuda.Stream()
        self.preload()

    def preload(self) -> None:
        """Start the copy of the next batch."""
        host = next(self.batches, None)
        with torch.cuda.stream(self.stream):
            self.upcoming = None if host is None else host.to("cuda", non_blocking=True)

    def next(self) -> Tensor | None:
        """Return the batch that was copied and start the next copy."""
        torch.cuda.current_stream().wait_stream(self.stream)
        batch = self.upcoming
        self.preload()
        return batch


class Encoder(nn.Module):
    """Stands for a deep encoder in front of the pooling layer."""

    def forward(self, images: Tensor) -> Tensor:
        """Return the mean of the images."""
        torch.cuda._sleep(400_000_000)
        return images.mean()


def main() -> None:
    """Run one epoch and compare the means with the host's."""
    torch.manual_seed(0)
    batches = [torch.full((32, 3, 224, 224), float(i)).pin_memory() for i in range(8)]
    encoder = Encoder()
    encoder(torch.zeros(32, 3, 224, 224, device="cuda")).item()
    prefetcher = Prefetcher(batches)
    means: list[Tensor] = []
    batch = prefetcher.next()
    while batch is not None:
        means.append(encoder(batch))
        batch = prefetcher.next()
    found = torch.stack(means).tolist()
    expected = [host.mean().item() for host in batches]
    if any(abs(a - b) > 1e-3 for a, b in zip(found, expected, strict=True)):
        raise ValueError(f"batch means {found} differ from {expected}")
    print("epoch mean", sum(found) / len(found))


if __name__ == "__main__":
    main()
