import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, args):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = args.port
    dist.init_process_group(args.backend, rank=rank, world_size=args.world_size)


def train(gpu, args):
    rank = args.node_rank * args.gpus + gpu
    print(f"process {gpu}: rank {rank}", flush=True)
    setup(rank, args)
    torch.manual_seed(args.seed)
    model = DDP(nn.Sequential(nn.Embedding(262, 16), nn.Flatten(), nn.Linear(16 * 50, 100)))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    for step in range(args.max_steps):
        characters = torch.randint(0, 262, (8, 50))
        labels = torch.randint(0, 100, (8,))
        loss = nn.functional.cross_entropy(model(characters), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"done, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--port", default="28476")
    parser.add_argument("--learning-rate", type=float, default=6e-3)
    parser.add_argument("--max-steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    args.world_size = args.nodes * args.gpus
    mp.spawn(train, nprocs=args.gpus, args=(args,))


if __name__ == "__main__":
    main()
