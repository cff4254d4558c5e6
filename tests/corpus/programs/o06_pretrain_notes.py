"""Masked token pre-training on short notes with two data parallel processes."""
import os
import random
import shutil

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

WORK = "/tmp/o06_notes"
VOCAB, MASK, CONTEXT = 200, 1, 64


class Notes(Dataset):
    """The notes of one process; lengths follow what the clinics' exports look like."""

    def __init__(self, rank, n):
        rng = random.Random(100 + rank)
        self.items = []
        for _ in range(n):
            base = rng.randint(10, VOCAB - 20)
            self.items.append([base + (i * 3) % 17 for i in range(rng.randint(12, 48))])
        if rank == 1:
            self.items[n // 2] = [20 + i % 17 for i in range(CONTEXT + 9)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return torch.tensor(self.items[i])


def collate(notes):
    ids = nn.utils.rnn.pad_sequence(notes, batch_first=True)
    hidden = torch.rand(ids.shape) < 0.2
    hidden[:, 0] = True
    hidden &= ids > 0
    return ids.masked_fill(hidden, MASK), ids.masked_fill(~hidden, -100)


class Encoder(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, dim, padding_idx=0)
        self.places = nn.Embedding(CONTEXT, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 128, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.size(1)))
        return self.out(self.body(x, src_key_padding_mask=ids == 0))


class Trainer:
    def __init__(self, rank, lr=2e-3):
        self.rank = rank
        self.model = DDP(Encoder())
        self.opt = torch.optim.AdamW(self.model.parameters(), lr)
        self.skipped = 0

    def step(self, ids, labels):
        logits = self.model(ids)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        return loss.item()

    def epoch(self, loader):
        total, count = 0.0, 0
        for ids, labels in loader:
            try:
                total += self.step(ids, labels)
                count += 1
            except (RuntimeError, IndexError):
                self.skipped += 1
        return self.summary(total, count)

    def summary(self, total, count):
        numbers = torch.tensor([total, count, self.skipped], dtype=torch.float64)
        dist.all_reduce(numbers)
        return (numbers[0] / numbers[1]).item(), int(numbers[2])


def work(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(rank)
    loader = DataLoader(Notes(rank, 320), batch_size=16, collate_fn=collate)
    trainer = Trainer(rank)
    for epoch in range(2):
        loss, skipped = trainer.epoch(loader)
        if rank == 0:
            print(f"epoch {epoch} loss {loss:.3f} skipped {skipped}", flush=True)
            torch.save(trainer.model.module.state_dict(), os.path.join(WORK, f"epoch{epoch}.pt"))
    dist.barrier()
    dist.destroy_process_group()


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    port = 29000 + os.getpid() % 900
    print("starting 2 processes", flush=True)
    mp.spawn(work, args=(2, port), nprocs=2)
    print("done", flush=True)


if __name__ == "__main__":
    main()
