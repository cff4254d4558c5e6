"""Score windows of a recording and keep the total of each for the report."""

from __future__ import annotations

import torch
from torch import nn

ROWS = 1024
WIDTH = 4096
WINDOWS = 6
DEPTH = 96


class Uploader:
    """Moves windows to the device through one pinned buffer."""

    def __init__(self) -> None:
        self.staging = torch.empty(ROWS, WIDTH, pin_memory=True)

    def upload(self, window: torch.Tensor) -> torch.Tensor:
        """Return the window on the device."""
        self.staging.copy_(window)
        return self.staging.to("cuda", non_blocking=True)


class Scorer(nn.Module):
    """A recurrent cell applied a fixed number of times."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(WIDTH, WIDTH)

    def forward(self, window: torch.Tensor) -> torch.Tensor:
        """Return the score of one window."""
        hidden = window
        for _ in range(DEPTH):
            hidden = torch.tanh(self.cell(hidden))
        return hidden.mean()


@torch.no_grad()
def main() -> None:
    """Score all windows and check the totals against the recording."""
    torch.manual_seed(43)
    scorer = Scorer().cuda()
    uploader = Uploader()
    recording = [torch.full((ROWS, WIDTH), float(index + 1)) for index in range(WINDOWS)]
    totals, scores = [], []
    for window in recording:
        on_device = uploader.upload(window)
        totals.append(on_device.sum(dtype=torch.float64))
        scores.append(scorer(on_device))
    for index, (window, total, score) in enumerate(zip(recording, totals, scores, strict=True)):
        expected = window.sum(dtype=torch.float64).item()
        if total.item() != expected:
            raise RuntimeError(f"window {index}: total {total.item():.0f} on the device, expected {expected:.0f}")
        print(f"window {index}: score {score.item():.6f}")


if __name__ == "__main__":
    main()
