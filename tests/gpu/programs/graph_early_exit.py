"""Captures a classifier with an early exit for confident batches."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class EarlyExit(nn.Module):
    """A classifier that skips its second half for confident batches."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(128, 128)
        self.first_head = nn.Linear(128, 10)
        self.tail = nn.Sequential(nn.ReLU(), nn.Linear(128, 10))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of the first confident head."""
        hidden = self.stem(inputs)
        logits = self.first_head(hidden)
        confidence = logits.softmax(dim=1).amax(dim=1).mean()
        if confidence.item() > 0.9:
            return logits
        return self.tail(hidden)


@torch.no_grad()
def main() -> None:
    """Capture the classifier and run it on some batches."""
    torch.manual_seed(0)
    model = EarlyExit().cuda().eval()
    inputs = torch.zeros(64, 128, device="cuda")
    for _ in range(3):
        model(inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = model(inputs)
    for _ in range(4):
        inputs.normal_()
        graph.replay()
        print("classes", logits.argmax(dim=1)[:8].tolist())


if __name__ == "__main__":
    main()
