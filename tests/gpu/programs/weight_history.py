"""Keep the last versions of a weight on the host while training goes on."""

from __future__ import annotations

import torch


class WeightHistory:
    """Pinned copies of a weight, filled in the background."""

    def __init__(self, weight: torch.Tensor, versions: int) -> None:
        self.host = torch.zeros((versions, *weight.shape), pin_memory=True)
        self.stored = 0
        self.background = torch.cuda.Stream()

    def push(self, weight: torch.Tensor) -> None:
        """Store the present values of the weight."""
        snapshot = weight.detach().clone()
        self.background.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.background):
            self.host[self.stored].copy_(snapshot, non_blocking=True)
        self.stored += 1

    def versions(self) -> torch.Tensor:
        """Return all stored versions."""
        self.background.synchronize()
        return self.host[: self.stored]


def main() -> None:
    """Train with a constant gradient and compare the history with the known values."""
    weight = torch.nn.Parameter(torch.zeros(16384, 4096, device="cuda"))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    weight.grad = torch.full_like(weight, -1.0)
    history = WeightHistory(weight, 4)
    for _ in range(4):
        optimizer.step()
        history.push(weight)
    for number, version in enumerate(history.versions(), start=1):
        low, high = version.min().item(), version.max().item()
        print(f"version {number}: {low:.0f} to {high:.0f}")
        if low != number or high != number:
            raise RuntimeError(f"version {number} holds values from {low} to {high}")


if __name__ == "__main__":
    main()
