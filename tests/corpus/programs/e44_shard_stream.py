import json
import os
import queue
import threading

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

WORK = "/tmp/e44_shard_stream"
VOCAB, BLOCK, BATCH = 256, 32, 8


def write_shards(folder, count, docs, seed):
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(seed)
    for s in range(count):
        with open(os.path.join(folder, f"shard_{s:03d}.jsonl"), "w") as f:
            for d in range(docs):
                tokens = (rng.integers(0, VOCAB) + np.arange(rng.integers(80, 200)) * 3) % VOCAB
                record = {"id": f"{s}-{d}", "tokens": tokens.tolist()}
                if s == 5 and d == docs // 3:
                    record = {"id": f"{s}-{d}", "text": ""}
                f.write(json.dumps(record) + "\n")


class ShardReader:
    """Packs the documents of this rank's shards into blocks of BLOCK + 1 tokens."""

    def __init__(self, folder, rank, world):
        names = sorted(n for n in os.listdir(folder) if n.endswith(".jsonl"))
        self.paths = [os.path.join(folder, n) for n in names[rank::world]]

    def documents(self):
        while True:
            for path in self.paths:
                with open(path) as f:
                    for line in f:
                        yield json.loads(line)["tokens"]

    def batches(self):
        pool, rows = [], []
        for tokens in self.documents():
            pool.extend(tokens)
            while len(pool) > BLOCK:
                rows.append(pool[:BLOCK + 1])
                pool = pool[BLOCK:]
                if len(rows) == BATCH:
                    yield torch.tensor(rows)
                    rows = []


class Prefetcher:
    def __init__(self, batches, depth=4):
        self.queue = queue.Queue(depth)
        self.closed = threading.Event()
        self.errors = []
        self.thread = threading.Thread(target=self._fill, args=(batches,), daemon=True)
        self.thread.start()

    def _fill(self, batches):
        try:
            for batch in batches:
                while not self.closed.is_set():
                    try:
                        self.queue.put(batch, timeout=0.5)
                        break
                    except queue.Full:
                        continue
                if self.closed.is_set():
                    return
        except Exception as e:
            self.errors.append(e)

    def next(self):
        return self.queue.get()

    def close(self):
        self.closed.set()
        self.thread.join()
        if self.errors:
            raise self.errors[0]


class TinyLM(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, ids):
        return self.out(self.rnn(self.tok(ids))[0])


class Trainer:
    def __init__(self, rank, world):
        self.rank = rank
        self.model = DDP(TinyLM())
        self.opt = torch.optim.AdamW(self.model.parameters(), 3e-3)
        self.data = Prefetcher(ShardReader(os.path.join(WORK, "shards"), rank, world).batches())

    def step(self):
        batch = self.data.next()
        logits = self.model(batch[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), batch[:, 1:].reshape(-1))
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        return loss.detach()

    def run(self, steps, log_every=10):
        for step in range(1, steps + 1):
            loss = self.step()
            if step % log_every == 0:
                dist.all_reduce(loss)
                if self.rank == 0:
                    print(f"step {step} loss {loss.item() / dist.get_world_size():.4f}", flush=True)
        self.data.close()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        write_shards(os.path.join(WORK, "shards"), count=8, docs=30, seed=3)
    dist.barrier()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    trainer = Trainer(rank, world)
    trainer.run(steps=80)
    if rank == 0:
        torch.save(trainer.model.module.state_dict(), os.path.join(WORK, "final.pt"))
        print("training finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
