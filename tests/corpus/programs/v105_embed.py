"""Fine-tune a small two-tower product encoder on two ranks, embed the catalogue and build a neighbour table.

python v105_embed.py
"""
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def make_catalogue(n_items, n_attrs):
    gen = torch.Generator().manual_seed(11)
    groups = torch.randint(0, 40, (n_items,), generator=gen)
    profile = torch.rand(40, n_attrs, generator=gen)
    attrs = (torch.rand(n_items, n_attrs, generator=gen) < profile[groups]).float()
    return attrs, groups


class ProductEncoder(nn.Module):
    def __init__(self, n_attrs, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_attrs, 128), nn.ReLU(), nn.Linear(128, dim))

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


def contrastive_loss(a, b, temperature=0.1):
    logits = a @ b.t() / temperature
    target = torch.arange(len(a))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2


def fit(model, attrs, steps, rank):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(rank)
    for step in range(steps):
        x = attrs[torch.randint(0, len(attrs), (128,), generator=gen)]
        drop = torch.rand(2, *x.shape, generator=gen) > 0.2
        views = model(torch.cat([x * drop[0], x * drop[1]]))
        loss = contrastive_loss(*views.chunk(2))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


@torch.inference_mode()
def embed_part(model, attrs, ids, chunk):
    model.eval()
    for part in ids.split(chunk):
        yield part, model(attrs[part])


def run_rank(rank, args, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    attrs, _ = make_catalogue(args.items, args.attrs)
    torch.manual_seed(0)
    model = DDP(ProductEncoder(args.attrs, args.dim))
    fit(model, attrs, args.steps, rank)

    mine = torch.arange(rank, args.items, args.ranks)
    for ids, vectors in embed_part(model.module, attrs, mine, args.chunk):
        results.put((rank, ids.clone(), vectors.clone()))
    dist.barrier()
    dist.destroy_process_group()


def collect(results, args):
    table = torch.empty(args.items, args.dim)
    received = 0
    while received < args.items:
        rank, ids, vectors = results.get()
        table[ids] = vectors
        received += len(ids)
        print(f"received {len(ids)} vectors from rank {rank}", flush=True)
    return table


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--items", type=int, default=6000)
    parser.add_argument("--attrs", type=int, default=96)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--chunk", type=int, default=1000)
    args = parser.parse_args()

    results = mp.get_context("spawn").Queue()
    mp.spawn(run_rank, args=(args, free_port(), results), nprocs=args.ranks, join=True)
    print("all ranks finished, collecting", flush=True)
    table = collect(results, args)

    _, groups = make_catalogue(args.items, args.attrs)
    neighbours = (table[:500] @ table.t()).topk(6, dim=1).indices[:, 1:]
    hits = (groups[neighbours] == groups[:500, None]).float().mean()
    print(f"neighbour precision@5 {hits:.3f}", flush=True)


if __name__ == "__main__":
    main()
