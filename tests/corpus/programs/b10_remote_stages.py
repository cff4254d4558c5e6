import os
import time
import torch
from torch import nn
import torch.distributed.rpc as rpc


class Stage(nn.Module):
    def __init__(self, layers, width):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def load_shards(self, shards):
        for block, shard in zip(self.blocks, shards):
            time.sleep(1.5)
            torch.manual_seed(shard)
            nn.init.xavier_normal_(block.weight)

    def forward(self, x):
        for block in self.blocks:
            x = torch.relu(block(x))
        return x


STAGES = {}


def build_stage(name, shards, width):
    stage = Stage(len(shards), width)
    stage.load_shards(shards)
    STAGES[name] = stage
    return sum(p.numel() for p in stage.parameters())


def run_stage(name, x):
    return STAGES[name](x)


def train(steps=3, width=128):
    first = Stage(2, width)
    head = nn.Linear(width, 10)
    numel = rpc.rpc_sync("worker1", build_stage, args=("middle", list(range(8)), width))
    print(f"stage on worker1 is ready, {numel} parameters")
    for step in range(steps):
        x = first(torch.randn(4, width))
        y = rpc.rpc_sync("worker1", run_stage, args=("middle", x.detach()))
        print(f"step {step} {head(y).mean().item():.4f}")


def main():
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=4, rpc_timeout=6)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size, rpc_backend_options=options)
    if rank == 0:
        train()
    rpc.shutdown()


if __name__ == "__main__":
    main()
