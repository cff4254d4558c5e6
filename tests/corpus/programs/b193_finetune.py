"""Fine-tunes a small ticket summariser; batches are grouped by length and dealt to the ranks."""
import logging
import math
import random
from itertools import islice

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, Dataset

log = logging.getLogger("finetune")
VOCAB, PAD = 400, 0


class Tickets(Dataset):
    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(n):
            start, stride = rng.randrange(1, VOCAB), rng.randrange(1, 5)
            length = rng.randrange(8, 40)
            self.rows.append([1 + (start + k * stride) % (VOCAB - 1) for k in range(length)])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class LengthBatchSampler(BatchSampler):
    """Sorts by length, cuts into batches and hands every world_size-th batch to a rank."""

    def __init__(self, data, batch_size, num_replicas, rank, shuffle, seed=0):
        self.batch_size, self.num_replicas, self.rank = batch_size, num_replicas, rank
        self.shuffle, self.seed, self.epoch = shuffle, seed, 0
        order = sorted(range(len(data)), key=lambda i: len(data[i]))
        self.batches = [order[k:k + batch_size] for k in range(0, len(order) - batch_size + 1, batch_size)]

    def __iter__(self):
        batches = list(self.batches)
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(batches)
        return islice(iter(batches), self.rank, None, self.num_replicas)

    def __len__(self):
        return len(range(self.rank, len(self.batches), self.num_replicas))


def collate(rows):
    width = max(map(len, rows))
    ids = torch.full((len(rows), width), PAD)
    for k, row in enumerate(rows):
        ids[k, :len(row)] = torch.tensor(row)
    return ids


class Summariser(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, 96, batch_first=True)
        self.out = nn.Linear(96, VOCAB)

    def forward(self, ids):
        hidden, _ = self.rnn(self.embed(ids[:, :-1]))
        logits = self.out(hidden)
        return nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=PAD)


def evaluate(model, loader):
    model.eval()
    eval_loss = 0.0
    with torch.no_grad():
        for ids in loader:
            eval_loss += model.module(ids).detach()
    dist.all_reduce(eval_loss, op=dist.ReduceOp.SUM)
    eval_loss = eval_loss / max(len(loader), 1) / dist.get_world_size()
    model.train()
    return eval_loss.item(), math.exp(eval_loss.item())


def loaders(batch_size):
    world, rank = dist.get_world_size(), dist.get_rank()
    train_set, val_set = Tickets(384, seed=1), Tickets(12, seed=2)
    out = []
    for data, shuffle in ((train_set, True), (val_set, False)):
        sampler = LengthBatchSampler(data, batch_size, world, rank, shuffle)
        out.append(DataLoader(data, batch_sampler=sampler, collate_fn=collate))
    if rank == 0:
        log.info("%d training and %d validation tickets", len(train_set), len(val_set))
    return out


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    train_loader, val_loader = loaders(batch_size=8)
    model = DDP(Summariser())
    optim = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(3):
        train_loader.batch_sampler.epoch = epoch
        for step, ids in enumerate(train_loader):
            loss = model(ids)
            optim.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optim.step()
            if dist.get_rank() == 0 and step % 8 == 0:
                log.info("epoch %d step %d/%d loss %.4f", epoch, step, len(train_loader), loss.item())
        val, ppl = evaluate(model, val_loader)
        if dist.get_rank() == 0:
            log.info("epoch %d validation loss %.4f perplexity %.2f", epoch, val, ppl)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
