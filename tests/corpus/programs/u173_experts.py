"""Mixture of per-domain experts for dialogue turns; gradients averaged by hand.

    torchrun --standalone --nproc-per-node 2 u173_experts.py
"""
import argparse
import random
from collections import defaultdict

import torch
import torch.distributed as dist
import torch.nn as nn

DOMAINS = {"hotel": 24, "taxi": 8, "rail": 16, "restaurant": 32, "attraction": 12}


class Turns:
    """Dialogue turns of this worker, in the order of the corpus."""

    def __init__(self, rank, world_size, n=720, dim=20):
        g = torch.Generator().manual_seed(3)
        rnd = random.Random(3)
        feats = torch.randn(n, dim, generator=g)
        single = sorted(rnd.choice(["hotel", "taxi"]) for _ in range(n // 3))
        multi = [rnd.choice(sorted(DOMAINS)) for _ in range(n - len(single))]
        labels = single + multi
        targets = torch.randn(n, generator=g)
        self.rows = [(feats[i], labels[i], targets[i]) for i in range(rank, n, world_size)]

    def batches(self, size):
        for i in range(0, len(self.rows) - size + 1, size):
            yield self.rows[i:i + size]


class DomainExperts(nn.Module):
    def __init__(self, dim=20):
        super().__init__()
        self.shared = nn.Linear(dim, 48)
        self.experts = nn.ModuleDict({
            name: nn.Sequential(nn.Linear(48, width), nn.ReLU(), nn.Linear(width, 1))
            for name, width in DOMAINS.items()
        })

    def forward(self, feats, domain):
        return self.experts[domain](torch.tanh(self.shared(feats))).squeeze(1)


class AveragedGradients:
    """Flattens the gradients per module and averages them over the workers."""

    def __init__(self, model, world_size):
        self.model = model
        self.world_size = world_size
        self.buckets = defaultdict(list)
        for p in model.shared.parameters():
            self.buckets["shared"].append(p)

    def track(self, domain):
        if domain not in self.buckets:
            self.buckets[domain] = list(self.model.experts[domain].parameters())

    def flat_reduce(self):
        for name in self.buckets:
            params = self.buckets[name]
            grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in params]
            coalesced = torch.cat([g.reshape(-1) for g in grads])
            dist.all_reduce(coalesced)
            coalesced /= self.world_size
            offset = 0
            for p in params:
                p.grad = coalesced[offset:offset + p.numel()].view_as(p).clone()
                offset += p.numel()


def broadcast_parameters(model):
    for p in model.parameters():
        dist.broadcast(p.data, 0)


def train(model, turns, reducer, opt, args, rank):
    for epoch in range(args.epochs):
        for step, batch in enumerate(turns.batches(args.batch_size)):
            opt.zero_grad()
            by_domain = defaultdict(list)
            for feats, domain, target in batch:
                by_domain[domain].append((feats, target))
            loss = 0.0
            for domain, items in by_domain.items():
                feats = torch.stack([f for f, _ in items])
                target = torch.stack([t for _, t in items])
                loss = loss + nn.functional.mse_loss(model(feats, domain), target, reduction="sum")
                reducer.track(domain)
            loss = loss / len(batch)
            loss.backward()
            reducer.flat_reduce()
            opt.step()
            if step % 5 == 0:
                print(f"[rank {rank}] epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch-size", type=int, default=24)
    ap.add_argument("--lr", type=float, default=0.01)
    args = ap.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(rank)

    model = DomainExperts()
    broadcast_parameters(model)
    turns = Turns(rank, world_size)
    opt = torch.optim.SGD(model.parameters(), lr=args.lr)
    train(model, turns, AveragedGradients(model, world_size), opt, args, rank)

    total = torch.tensor([sum(p.detach().abs().sum().item() for p in model.parameters())])
    dist.all_reduce(total)
    print(f"[rank {rank}] done, mean weight norm {total.item() / world_size:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
