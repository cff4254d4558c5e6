"""Fine-tune a small answer grader with DDP, then grade the held-out answers and write one report."""
import json
import logging
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Subset
from torch.utils.data.distributed import DistributedSampler

LEVELS = ["poor", "fair", "good", "excellent"]
VOCAB = 500
LENGTH = 24

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("grader")


class AnswerSet(Dataset):
    def __init__(self, count, seed):
        gen = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(1, VOCAB, (count, LENGTH), generator=gen)
        self.level = (self.tokens.float().mean(dim=1) / VOCAB * 8 - 2).clamp(0, 3).long()

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return i, self.tokens[i], self.level[i]


class Grader(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, len(LEVELS))

    def forward(self, tokens):
        _, last = self.encoder(self.embed(tokens))
        return self.head(last[-1])


def train(model, loader, sampler, optimizer, epochs):
    loss_fn = nn.CrossEntropyLoss()
    model.train()
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        for _, tokens, level in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(tokens), level)
            loss.backward()
            optimizer.step()
            total += loss.item()
        if dist.get_rank() == 0:
            log.info("epoch %d loss %.4f", epoch, total / len(loader))


@torch.no_grad()
def grade(model, dataset, batch_size=32):
    rank, world = dist.get_rank(), dist.get_world_size()
    shard = Subset(dataset, range(rank, len(dataset), world))
    model.eval()
    rows = []
    for index, tokens, level in DataLoader(shard, batch_size=batch_size):
        probs = model(tokens).softmax(dim=-1)
        for i, p, want in zip(index.tolist(), probs, level.tolist()):
            best = int(p.argmax())
            rows.append({"id": i, "grade": LEVELS[best], "p": round(float(p[best]), 4), "label": LEVELS[want]})
    return rows


def collect(rows):
    merged = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(rows, merged, dst=0)
    return sorted((r for part in merged for r in part), key=lambda r: r["id"])


def write_report(path, rows):
    with open(path, "w") as f:
        for row in rows:
            f.write(json.dumps(row) + "\n")
    right = sum(r["grade"] == r["label"] for r in rows)
    log.info("graded %d answers, agreement %.3f, wrote %s", len(rows), right / len(rows), path)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    train_set, eval_set = AnswerSet(1536, seed=1), AnswerSet(400, seed=2)
    sampler = DistributedSampler(train_set, shuffle=True)
    loader = DataLoader(train_set, batch_size=32, sampler=sampler)
    model = DDP(Grader())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    start = time.time()
    train(model, loader, sampler, optimizer, epochs=3)
    rows = grade(model.module, eval_set)
    log.info("rank %d graded %d answers after %.1fs", rank, len(rows), time.time() - start)

    with tempfile.TemporaryDirectory() as out:
        if rank == 0:
            report = collect(rows)
            write_report(os.path.join(out, "grades.jsonl"), report)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
