"""Average the loss over rare events of all ranks while the learning rate is set by rank 0."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

DEVICE = torch.device("cuda", 0)


def shard(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the features and event labels of a rank's part of a batch."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    features = torch.randn(256, 32, generator=generator)
    threshold = 1.2 if (rank, step) != (1, 6) else 9.0
    return features.to(DEVICE), (features[:, 0] > threshold).to(DEVICE)


def main() -> None:
    """Train on all ranks."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Linear(32, 1).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rate = torch.tensor([0.1], device=DEVICE)
    for step in range(30):
        features, events = shard(rank, step)
        scores = model(features).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(scores, events.float())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if events.any():
            totals = torch.stack([scores.detach()[events].sum(), events.sum().float()])
            dist.all_reduce(totals)
            print(f"rank {rank} step {step}: mean event score {(totals[0] / totals[1]).item():.3f}", flush=True)
        rate.mul_(0.99)
        dist.broadcast(rate, src=0)
        optimizer.param_groups[0]["lr"] = rate.item()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
