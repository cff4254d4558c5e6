import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class CatalogModel(nn.Module):
    """Product classifier: title tokens and, where there is one, the picture."""

    def __init__(self, vocab=300, dim=32, classes=6):
        super().__init__()
        self.title = nn.EmbeddingBag(vocab, dim)
        self.head = nn.Linear(dim, classes)
        self.picture = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, tokens, pictures, has_picture):
        features = self.title(tokens)
        if has_picture.any():
            rows = has_picture.nonzero().squeeze(1)
            features = features.index_add(0, rows, self.picture(pictures[rows]))
        return self.head(features)


def load_catalog(path="catalog"):
    """Records in the order of the export: products first, then the gift cards."""
    g = torch.Generator().manual_seed(11)
    products, gift_cards = 88, 8
    n = products + gift_cards
    return {"tokens": torch.randint(0, 300, (n, 12), generator=g),
            "pictures": torch.rand(n, 3, 8, 8, generator=g),
            "has_picture": torch.arange(n) < products,
            "labels": torch.randint(0, 6, (n,), generator=g)}


def shard(catalog, rank, world_size):
    per_rank = len(catalog["labels"]) // world_size
    return {k: v[rank * per_rank:(rank + 1) * per_rank] for k, v in catalog.items()}


def average_gradients(model, world_size):
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            p.grad /= world_size


def train(model, data, optimizer, rank, world_size, batch_size=8):
    for step, start in enumerate(range(0, len(data["labels"]), batch_size)):
        b = {k: v[start:start + batch_size] for k, v in data.items()}
        loss = F.cross_entropy(model(b["tokens"], b["pictures"], b["has_picture"]), b["labels"])
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model, world_size)
        optimizer.step()
        print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = CatalogModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    train(model, shard(load_catalog(), rank, world_size), optimizer, rank, world_size)
    dist.barrier()
    if rank == 0:
        torch.save(model.state_dict(), os.devnull)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
