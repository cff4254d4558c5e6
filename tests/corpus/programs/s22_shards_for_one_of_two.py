import datetime
import queue
import threading
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

SHARDS = [f"clips-{i:05d}.tar" for i in range(7)]


class Prefetch:
    """Reads shards in a thread, ahead of the training."""

    def __init__(self, shards, per_shard, depth=4):
        self.shards, self.per_shard = shards, per_shard
        self.ready = queue.Queue(depth)
        threading.Thread(target=self.fill, daemon=True).start()

    def fill(self):
        for name in self.shards:
            gen = torch.Generator().manual_seed(int(name[6:11]))
            for _ in range(self.per_shard):
                self.ready.put(torch.randn(8, 20, generator=gen))

    def __next__(self):
        return self.ready.get()


def check_all_here(step):
    """Names the rank that is missing, where an all-reduce would only wait."""
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=10), wait_all_ranks=True)
    if dist.get_rank() == 0:
        print("all ranks at step", step, flush=True)


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    rank, world = dist.get_rank(), dist.get_world_size()
    per_shard = 3
    data = Prefetch(SHARDS[rank::world], per_shard)
    steps = len(SHARDS[::world]) * per_shard
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1)))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        x = next(data)
        check_all_here(step)
        loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


main()
