import datetime
import os
import random
import re
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CACHE = "/tmp/i26_cache/tokenized.pt"
WORDS = ["model", "attention", "long", "context", "window", "token", "layer", "position", "rope", "sparse"]


def load_documents(n):
    rng = random.Random(0)
    return [" ".join(rng.choice(WORDS) for _ in range(120)) for _ in range(n)]


def tokenize_fn(text, vocab, context=64):
    ids = []
    for piece in re.findall(r"\w+|\S", text):
        ids.extend(vocab.setdefault(piece[i:i + 3], len(vocab)) for i in range(0, len(piece), 3))
    return (ids + [0] * context)[:context]


def prepare_dataset(rank, n_docs=2000):
    if rank > 0:
        dist.barrier()
    if os.path.exists(CACHE) and rank > 0:
        data = torch.load(CACHE)
    else:
        vocab, rows = {"<pad>": 0}, []
        started = time.time()
        for i, doc in enumerate(load_documents(n_docs)):
            rows.append(tokenize_fn(doc, vocab))
            time.sleep(0.012)  # tokenizer of the base model
            if i % 500 == 0:
                print(f"Map: {i}/{n_docs} [{time.time() - started:.0f}s]", flush=True)
        data = {"input_ids": torch.tensor(rows), "vocab_size": len(vocab)}
        os.makedirs(os.path.dirname(CACHE), exist_ok=True)
        torch.save(data, CACHE)
    if rank == 0:
        dist.barrier()
    return data


class Bigram(nn.Module):
    def __init__(self, vocab_size, dim=64):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, dim)
        self.head = nn.Linear(dim, vocab_size)

    def forward(self, ids):
        return self.head(self.emb(ids))


def train():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=12))
    rank = dist.get_rank()
    data = prepare_dataset(rank)
    dataset = TensorDataset(data["input_ids"])
    loader = DataLoader(dataset, batch_size=32, sampler=DistributedSampler(dataset))
    model = DDP(Bigram(data["vocab_size"]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (ids,) in enumerate(loader):
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
