"""Continue a single-process pre-training run of the price model with FSDP2 on all ranks."""
import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard

FEATURES = 12
HORIZON = 4


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


class PriceModel(nn.Module):
    def __init__(self, dim=48, depth=3):
        super().__init__()
        self.inp = nn.Linear(FEATURES, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.out = nn.Linear(dim, HORIZON)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


class MarketStream:
    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.mixing = torch.randn(FEATURES, HORIZON, generator=torch.Generator().manual_seed(1))

    def batch(self, size):
        x = torch.randn(size, FEATURES, generator=self.gen)
        noise = 0.1 * torch.randn(size, HORIZON, generator=self.gen)
        return x, torch.tanh(x @ self.mixing) + noise


def make_optimizer(model, args):
    return torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)


def run_steps(model, optimizer, stream, steps, label):
    for step in range(steps):
        x, y = stream.batch(64)
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if label and step % 20 == 0:
            print(f"{label} step {step} loss {loss.item():.4f}", flush=True)
    return loss


@torch.no_grad()
def evaluate(model, stream):
    x, y = stream.batch(256)
    total = F.mse_loss(model(x), y)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def pretrain(args, path):
    """The old recipe: plain module on one process, ordinary torch.save checkpoint."""
    torch.manual_seed(args.seed)
    model = PriceModel()
    optimizer = make_optimizer(model, args)
    run_steps(model, optimizer, MarketStream(args.seed), args.pretrain_steps, "pretrain")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


def restore(model, optimizer, path):
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    options = StateDictOptions(full_state_dict=True)
    set_model_state_dict(model, checkpoint["model"], options=options)
    optimizer.load_state_dict(checkpoint["optimizer"])
    return len(checkpoint["optimizer"]["state"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pretrain-steps", type=int, default=80)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--run-name", default="prices")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    run_id = os.environ.get("TORCHELASTIC_RUN_ID", "local")
    path = os.path.join(tempfile.gettempdir(), f"{args.run_name}_{run_id}.pt")
    if rank == 0:
        pretrain(args, path)
    dist.barrier()

    model = PriceModel()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = make_optimizer(model, args)
    restored = restore(model, optimizer, path)
    stream = MarketStream(args.seed + 1 + rank)
    before = evaluate(model, stream)
    if rank == 0:
        print(f"restored {restored} optimizer entries, validation loss {before:.4f}", flush=True)
        os.remove(path)
    run_steps(model, optimizer, stream, args.steps, "continue" if rank == 0 else "")
    after = evaluate(model, stream)
    if rank == 0:
        print(f"validation loss after continuing {after:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
