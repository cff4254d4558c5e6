from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, IterableDataset

VOCAB, SEQ = 100, 32


class PackedDocuments(IterableDataset):
    def __init__(self, lengths, rank, world):
        self.lengths = lengths[rank::world]

    def __iter__(self):
        buffer = []
        for i, n in enumerate(self.lengths):
            buffer += [(i * 7 + k) % VOCAB for k in range(n)]
            while len(buffer) >= SEQ + 1:
                chunk = torch.tensor(buffer[:SEQ + 1])
                buffer = buffer[SEQ + 1:]
                yield chunk[:-1], chunk[1:]


class Transformer(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 4, dim * 2, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, x):
        h = self.embed(x)
        for layer in self.layers:
            h = layer(h)
        return self.out(h)


def parallelize(model, mesh):
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def compute_loss(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def validate(model, loader):
    model.eval()
    losses = [compute_loss(model, x, y) for x, y in loader]
    loss = torch.stack(losses).mean()
    dist.all_reduce(loss, op=dist.ReduceOp.SUM)
    model.train()
    return loss.item() / dist.get_world_size()


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=8))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = parallelize(Transformer(), init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    val_lengths = [120, 40, 95, 61, 210, 33, 88, 70, 140, 52]
    val_loader = DataLoader(PackedDocuments(val_lengths, rank, world), batch_size=2)
    for step in range(1, 11):
        tokens = torch.randint(0, VOCAB, (2, SEQ + 1))
        loss = compute_loss(model, tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            val_loss = validate(model, val_loader)
            if rank == 0:
                print(f"step {step} validation loss {val_loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
