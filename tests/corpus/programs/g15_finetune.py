import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class ProgressBar:
    """The part of tqdm that we use."""

    def __init__(self, total, disable=False):
        self.total, self.disable, self.n = total, disable, 0

    def update(self, k=1):
        if self.disable:
            return
        self.n += k
        if self.n % 10 == 0:
            print(f"step {self.n}/{self.total}", flush=True)


class Classifier(nn.Module):
    def __init__(self, vocab=1000, dim=64, labels=4):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.enc = nn.TransformerEncoderLayer(dim, 4, 128, batch_first=True)
        self.cls = nn.Linear(dim, labels)

    def forward(self, ids):
        return self.cls(self.enc(self.emb(ids)).mean(1))


def make_loader(n, seed, batch_size=16):
    g = torch.Generator().manual_seed(seed)
    data = TensorDataset(torch.randint(0, 1000, (n, 24), generator=g), torch.randint(0, 4, (n,), generator=g))
    return DataLoader(data, batch_size=batch_size, sampler=DistributedSampler(data))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hits = []
    for ids, labels in loader:
        correct = (model(ids).argmax(-1) == labels).float()
        gathered = [torch.empty_like(correct) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, correct)
        hits.append(torch.cat(gathered))
    model.train()
    return torch.cat(hits).mean().item()


def main(epochs=2, eval_every=20):
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    rank = dist.get_rank()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DDP(Classifier())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train_loader, eval_loader = make_loader(1600, 1), make_loader(320, 2)
    progress_bar = ProgressBar(epochs * len(train_loader), disable=rank != 0)
    for epoch in range(epochs):
        train_loader.sampler.set_epoch(epoch)
        for ids, labels in train_loader:
            loss = nn.functional.cross_entropy(model(ids), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            progress_bar.update(1)
            if progress_bar.n and progress_bar.n % eval_every == 0:
                accuracy = evaluate(model, eval_loader)
                if rank == 0:
                    print(f"accuracy after {progress_bar.n} steps: {accuracy:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
