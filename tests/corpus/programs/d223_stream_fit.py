import json
import os
import tempfile
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


def write_shards(root, n_shards=6, per_shard=512, seq=24, seed=1):
    rng = np.random.default_rng(seed)
    index = []
    for s in range(n_shards):
        x = rng.integers(1, 64, (per_shard, seq))
        y = (x.sum(1) % 4).astype(np.int64)
        np.savez(os.path.join(root, f"shard.{s:05d}.npz"), x=x, y=y)
        index.append({"file": f"shard.{s:05d}.npz", "samples": per_shard})
    with open(os.path.join(root, "index.json"), "w") as f:
        json.dump({"version": 2, "shards": index}, f)


class World:
    def __init__(self):
        self.rank = int(os.environ.get("RANK", 0))
        self.local_rank = int(os.environ.get("LOCAL_RANK", 0))
        self.num_ranks = int(os.environ.get("WORLD_SIZE", 1))

    @property
    def is_local_leader(self):
        return self.local_rank == 0


class SharedArray:
    """A small int64 array that the processes of one node share."""

    def __init__(self, name, shape, create):
        size = int(np.prod(shape)) * 8
        self.shm = SharedMemory(name=name, create=create, size=size)
        self.array = np.ndarray(shape, dtype=np.int64, buffer=self.shm.buf)
        if create:
            self.array[:] = 0


class StreamDataset(IterableDataset):
    def __init__(self, local, prefix, shuffle_seed=9176):
        self.local = local
        self.shuffle_seed = shuffle_seed
        with open(os.path.join(local, "index.json")) as f:
            self.shards = json.load(f)["shards"]
        self.world = World()
        leader = self.world.is_local_leader
        if not leader:
            dist.barrier()
        self.epoch_shape = SharedArray(f"{prefix}_epoch_shape", (4,), leader)
        self.next_epoch = SharedArray(f"{prefix}_next_epoch", (1,), leader)
        if leader:
            self.epoch_shape.array[:] = (self.world.num_ranks, len(self.shards), 1, len(self))
            if self.world.num_ranks > 1:
                dist.barrier()

    def __len__(self):
        return sum(s["samples"] for s in self.shards) // self.world.num_ranks

    def __iter__(self):
        epoch = int(self.next_epoch.array[0])
        order = np.random.default_rng(self.shuffle_seed + epoch).permutation(len(self.shards))
        for s in order[self.world.rank::self.world.num_ranks]:
            with np.load(os.path.join(self.local, self.shards[s]["file"])) as z:
                x, y = z["x"], z["y"]
            for row in range(len(y)):
                yield torch.from_numpy(x[row]), int(y[row])


class Tagger(nn.Module):
    def __init__(self, vocab=64, dim=32, classes=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, classes)

    def forward(self, x):
        return self.out(self.rnn(self.embed(x))[1][-1])


def fit(local_rank, world_size, root, prefix, epochs):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{root}/rendezvous", rank=local_rank, world_size=world_size)
    train = StreamDataset(root, prefix)
    loader = DataLoader(train, batch_size=32, drop_last=True)
    model = DDP(Tagger())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        dist.barrier()
        if local_rank == 0:
            train.next_epoch.array[0] += 1
            print(f"epoch {epoch} steps {step + 1} loss {loss.item():.4f}", flush=True)
        dist.barrier()
    if local_rank == 0:
        train.epoch_shape.shm.unlink()
        train.next_epoch.shm.unlink()
    dist.destroy_process_group()


def main():
    devices = 2
    with tempfile.TemporaryDirectory(prefix="mds_") as root:
        write_shards(root)
        print(f"fitting on {devices} devices, data in {root}", flush=True)
        mp.start_processes(fit, args=(devices, root, f"{os.getpid():06d}", 3), nprocs=devices, start_method="fork")
    print("fit finished", flush=True)


if __name__ == "__main__":
    main()
