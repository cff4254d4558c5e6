"""Serves a captured scoring model and loads a new checkpoint in between."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Server:
    """Answers requests by replaying a recorded forward pass."""

    def __init__(self, model: nn.Linear, batch: int) -> None:
        self.model = model
        self.inputs = torch.zeros(batch, model.in_features, device="cuda")
        self.model(self.inputs)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.scores = self.model(self.inputs)

    def answer(self, batch: Tensor) -> Tensor:
        """Return the scores of the batch."""
        self.inputs.copy_(batch)
        self.graph.replay()
        return self.scores.clone()

    def load(self, weight: Tensor) -> None:
        """Take over the weight of a new checkpoint."""
        self.model.weight.data = weight.to("cuda")


@torch.no_grad()
def main() -> None:
    """Answer a request before and after the new checkpoint."""
    torch.manual_seed(0)
    model = nn.Linear(1024, 256).cuda()
    server = Server(model, 128)
    batch = torch.randn(128, 1024, device="cuda")
    torch.testing.assert_close(server.answer(batch), model(batch), rtol=1e-2, atol=1e-2)
    server.load(torch.randn(256, 1024))
    torch.testing.assert_close(server.answer(batch), model(batch), rtol=1e-2, atol=1e-2, msg="stale scores")
    print("both checkpoints answered")


if __name__ == "__main__":
    main()
