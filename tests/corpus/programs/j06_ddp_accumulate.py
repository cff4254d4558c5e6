import argparse
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


class TextClassifier(nn.Module):
    def __init__(self, vocab=500, dim=32, depth=3, classes=4):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, classes)

    def forward(self, ids):
        x = self.emb(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x.mean(dim=1))


def get_loader(batch_size):
    g = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.randint(0, 500, (256, 20), generator=g), torch.randint(0, 4, (256,), generator=g))
    return DataLoader(data, batch_size=batch_size, sampler=DistributedSampler(data, shuffle=True, seed=1))


def run_epoch(model, loader, optimizer, accum):
    optimizer.zero_grad()
    for i, (ids, labels) in enumerate(loader):
        last_of_window = (i + 1) % accum == 0
        with nullcontext() if last_of_window else model.no_sync():
            loss = F.cross_entropy(model(ids), labels) / accum
            loss.backward()
        if last_of_window:
            optimizer.step()
            optimizer.zero_grad()
            if dist.get_rank() == 0:
                print(f"update {(i + 1) // accum} loss {loss.item() * accum:.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accum", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(TextClassifier(), static_graph=True, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    run_epoch(model, get_loader(args.batch_size), optimizer, args.accum)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
