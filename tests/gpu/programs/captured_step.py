"""Train a regression model with its whole step in a CUDA graph."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Trainer:
    """Model, optimizer and the tensors that every step reads."""

    def __init__(self, width: int = 128, rows: int = 512) -> None:
        self.model = nn.Sequential(nn.Linear(width, 256), nn.GELU(), nn.Linear(256, 1)).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2, momentum=0.9)
        self.features = torch.zeros(rows, width, device="cuda")
        self.target = torch.zeros(rows, 1, device="cuda")

    def step(self) -> torch.Tensor:
        """Run one optimizer step and return the loss."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(self.model(self.features), self.target)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, error_if_nonfinite=True)
        self.optimizer.step()
        return loss

    def load(self, features: torch.Tensor, target: torch.Tensor) -> None:
        """Copy one batch into place."""
        self.features.copy_(features)
        self.target.copy_(target)


def main() -> None:
    """Warm up, capture and train."""
    torch.manual_seed(8)
    trainer = Trainer()
    truth = torch.randn(128, 1)
    batches = [torch.randn(512, 128) for _ in range(16)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for features in batches[:3]:
            trainer.load(features, features @ truth)
            trainer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = trainer.step()
    for features in batches:
        trainer.load(features, features @ truth)
        graph.replay()
    print(f"last loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
