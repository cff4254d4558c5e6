"""Train a small sequence model on sharded token files, two data-parallel ranks."""
import json
import os
from collections import Counter

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

WORK = "/tmp/m52_latents_" + os.environ.get("TORCHELASTIC_RUN_ID", "local")[:8]
VOCAB, SEQ, SHARDS, SHARD_LEN = 300, 32, 6, 40_000


def write_shards():
    os.makedirs(WORK, exist_ok=True)
    rng = np.random.default_rng(7)
    for i in range(SHARDS):
        size = SHARD_LEN - 1500 * i
        rng.zipf(1.4, size).clip(max=VOCAB - 1).astype(np.uint16).tofile(f"{WORK}/shard_{i}.bin")


class ShardIndex:
    """Lengths of all shards, kept in a json file beside them."""

    def __init__(self, folder, rank):
        self.folder, self.rank = folder, rank
        self.cache = os.path.join(folder, "index.json")

    def entries(self):
        if os.path.exists(self.cache):
            with open(self.cache) as f:
                return json.load(f)
        if self.rank == 0:
            self._scan()
        dist.barrier()
        return self.entries()

    def _scan(self):
        found = []
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".bin"):
                data = np.fromfile(os.path.join(self.folder, name), dtype=np.uint16)
                found.append({"name": name, "tokens": int(data.size), "top": int(data.max())})
        with open(self.cache + ".tmp", "w") as f:
            json.dump(found, f)
        os.replace(self.cache + ".tmp", self.cache)


class Windows(IterableDataset):
    def __init__(self, entries, rank, world, windows):
        self.files = [e["name"] for e in entries][rank::world]
        self.windows, self.seed = windows, rank

    def __iter__(self):
        rng = np.random.default_rng(self.seed)
        data = [np.fromfile(os.path.join(WORK, n), dtype=np.uint16) for n in self.files]
        for _ in range(self.windows):
            shard = data[rng.integers(len(data))]
            at = rng.integers(0, len(shard) - SEQ - 1)
            yield torch.from_numpy(shard[at:at + SEQ + 1].astype(np.int64))


class ValidationSet:
    """Held-out text, encoded with byte pair merges learned from it."""

    def __init__(self, merges=110, length=150_000):
        rng = np.random.default_rng(11)
        ids = rng.zipf(1.3, length).clip(max=120).tolist()
        for new in range(121, 121 + merges):
            pair = Counter(zip(ids, ids[1:])).most_common(1)[0][0]
            ids = self._merge(ids, pair, new)
        self.ids = torch.tensor(ids)

    @staticmethod
    def _merge(ids, pair, new):
        out, i = [], 0
        while i < len(ids):
            if i + 1 < len(ids) and ids[i] == pair[0] and ids[i + 1] == pair[1]:
                out.append(new)
                i += 2
            else:
                out.append(ids[i])
                i += 1
        return out


class Model(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.emb, self.rnn = nn.Embedding(VOCAB, dim), nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, ids):
        return self.head(self.rnn(self.emb(ids))[0])


def next_token_loss(model, ids):
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        write_shards()
    dist.barrier()
    print(f"rank {rank} shards ready", flush=True)
    validation = ValidationSet() if rank == world - 1 else None
    entries = ShardIndex(WORK, rank).entries()
    print(f"rank {rank} indexed {len(entries)} shards", flush=True)
    total = torch.tensor([float(sum(e["tokens"] for e in entries[rank::world]))])
    dist.all_reduce(total)
    steps = int(total.item() // (SEQ * 16 * world * 4))
    loader = DataLoader(Windows(entries, rank, world, steps * 16), batch_size=16)
    torch.manual_seed(0)
    model = DistributedDataParallel(Model())
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step, ids in enumerate(loader):
        loss = next_token_loss(model, ids)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0 and rank == 0:
            print(f"step {step}/{steps} loss {loss.item():.3f}", flush=True)
    if validation is not None:
        with torch.no_grad():
            held = validation.ids[: 8 * (SEQ + 1)].view(8, SEQ + 1)
            print(f"validation {next_token_loss(model.module, held).item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
