import argparse
import datetime
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def get_args():
    parser = argparse.ArgumentParser("latent classifier")
    parser.add_argument("--local_rank", type=int, default=0)
    parser.add_argument("--dist_timeout", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    return parser.parse_args()


class LatentNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.SiLU())
        self.head = nn.Linear(128, 10)

    def forward(self, z):
        return self.head(self.encoder(z))


def init_distributed(args):
    dist.init_process_group(
        backend="gloo",
        rank=args.local_rank,
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=datetime.timedelta(seconds=args.dist_timeout),
    )


def train():
    args = get_args()
    torch.manual_seed(args.local_rank)
    init_distributed(args)
    model = DDP(LatentNet())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for _ in range(10):
            z = torch.randn(args.batch, 64)
            y = torch.randint(0, 10, (args.batch,))
            loss = nn.functional.cross_entropy(model(z), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
