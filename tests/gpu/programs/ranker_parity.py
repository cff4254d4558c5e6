"""Serve a ranking model from a CUDA graph and compare it with the plain model."""

from __future__ import annotations

import torch
from torch import nn

Batch = dict[str, torch.Tensor]


class Ranker(nn.Module):
    """Scores of users and items."""

    def __init__(self) -> None:
        super().__init__()
        self.user = nn.Embedding(5000, 64)
        self.item = nn.Embedding(20000, 64)
        self.head = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return one score per pair."""
        pair = torch.cat((self.user(batch["user"]), self.item(batch["item"])), dim=1)
        return self.head(pair).squeeze(1)


def requests(rows: int = 2048) -> Batch:
    """Return a batch of pairs on the host."""
    return {"user": torch.randint(0, 5000, (rows,)), "item": torch.randint(0, 20000, (rows,))}


class GraphedRanker:
    """Replay of the model's forward pass."""

    def __init__(self, model: Ranker, example: Batch) -> None:
        self.inputs = {name: value.cuda() for name, value in example.items()}
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(self.inputs)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.scores = model(self.inputs)

    def __call__(self, batch: Batch) -> torch.Tensor:
        """Return the scores of a batch."""
        self.inputs = {name: value.cuda(non_blocking=True) for name, value in batch.items()}
        self.graph.replay()
        return self.scores.clone()


@torch.no_grad()
def main() -> None:
    """Compare both ways on a few batches."""
    torch.manual_seed(6)
    model = Ranker().cuda().eval()
    graphed = GraphedRanker(model, requests())
    for _ in range(4):
        batch = requests()
        fast = graphed(batch)
        plain = model({name: value.cuda() for name, value in batch.items()})
        torch.testing.assert_close(fast, plain, rtol=1e-3, atol=1e-3)
    print("graphed and plain scores agree")


if __name__ == "__main__":
    main()
