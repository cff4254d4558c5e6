"""Two spawned trainers that read one feature table from named shared memory."""
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn as nn


@dataclass
class TableSpec:
    name: str
    shape: tuple
    dtype: str


class FeatureTable:
    """Creates the table in the parent; the children attach by name."""

    def __init__(self, rows=200000, dim=64):
        data = np.random.default_rng(0).standard_normal((rows, dim), dtype=np.float32)
        self.shm = SharedMemory(create=True, size=data.nbytes)
        np.ndarray(data.shape, data.dtype, buffer=self.shm.buf)[:] = data
        self.spec = TableSpec(self.shm.name, data.shape, "float32")

    @staticmethod
    def attach(spec):
        shm = SharedMemory(name=spec.name)
        table = np.ndarray(spec.shape, dtype=spec.dtype, buffer=shm.buf)
        print("attached", table.shape, f"mean {table.mean():.4f}", flush=True)
        return torch.from_numpy(table)

    def close(self):
        self.shm.close()
        self.shm.unlink()


def trainer(rank, spec, steps):
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    table = FeatureTable.attach(spec)
    model = nn.Sequential(nn.Linear(spec.shape[1], 32), nn.ReLU(), nn.Linear(32, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        rows = torch.randint(0, len(table), (256,))
        batch = table[rows]
        loss = (model(batch).squeeze(1) - batch.sum(1)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.3f}", flush=True)


def main():
    table = FeatureTable()
    try:
        mp.spawn(trainer, args=(table.spec, 50), nprocs=2)
    finally:
        table.close()


if __name__ == "__main__":
    main()
