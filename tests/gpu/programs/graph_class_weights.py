"""Captures a weighted loss for a validation loop."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CLASS_WEIGHTS = [0.2, 1.0, 1.0, 4.0]


def weighted_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross entropy, weighted by class."""
    weights = torch.tensor(CLASS_WEIGHTS, device=logits.device)
    return nn.functional.cross_entropy(logits, labels, weight=weights)


@torch.no_grad()
def main() -> None:
    """Capture the loss and evaluate it on a few batches."""
    torch.manual_seed(0)
    head = nn.Linear(64, len(CLASS_WEIGHTS)).cuda()
    features = torch.randn(256, 64, device="cuda")
    labels = torch.randint(0, len(CLASS_WEIGHTS), (256,), device="cuda")
    for _ in range(3):
        weighted_loss(head(features), labels)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = weighted_loss(head(features), labels)
    for _ in range(4):
        features.normal_()
        graph.replay()
        print("loss", loss.item())


if __name__ == "__main__":
    main()
