"""Train a gait classifier on several processes per node (mp.spawn, DDP, gloo)."""
import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CHANNELS = 6
WINDOW = 50
CLASSES = 5


class GaitNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(CHANNELS, 24, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(24, 32, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1),
        )
        self.head = nn.Linear(32, CLASSES)

    def forward(self, windows):
        return self.head(self.conv(windows).squeeze(-1))


def simulate_subject(subject, windows, gen):
    t = torch.arange(WINDOW) / 25.0
    labels = torch.randint(0, CLASSES, (windows,), generator=gen)
    pace = 0.8 + 0.35 * labels + 0.05 * torch.randn(windows, generator=gen)
    phase = torch.rand(windows, CHANNELS, 1, generator=gen) * 6.28
    signal = torch.sin(6.28 * pace.view(-1, 1, 1) * t + phase) * (1 + 0.1 * subject % 3)
    return signal + 0.3 * torch.randn(windows, CHANNELS, WINDOW, generator=gen), labels


def prepare_features(args):
    gen = torch.Generator().manual_seed(args.seed)
    signals, labels = zip(*(simulate_subject(s, args.windows, gen) for s in range(args.subjects)))
    signals = torch.cat(signals)
    mean, std = signals.mean(dim=(0, 2), keepdim=True), signals.std(dim=(0, 2), keepdim=True)
    path = os.path.join(args.workdir, "gait_features.pt")
    torch.save({"signals": (signals - mean) / std, "labels": torch.cat(labels)}, path)
    return path


def load_split(path, holdout):
    data = torch.load(path)
    signals, labels = data["signals"], data["labels"]
    cut = int(len(labels) * (1 - holdout))
    return TensorDataset(signals[:cut], labels[:cut]), TensorDataset(signals[cut:], labels[cut:])


def main_worker(local_rank, args):
    rank = args.node_rank * args.nproc + local_rank
    train_set, valid_set = load_split(args.features, args.holdout)
    print(f"[worker {rank}] {len(train_set)} training windows loaded, joining the group", flush=True)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    torch.manual_seed(args.seed)
    model = DDP(GaitNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    sampler = DistributedSampler(train_set, shuffle=True)
    loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for windows, labels in loader:
            loss = F.cross_entropy(model(windows), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            windows, labels = valid_set.tensors
            accuracy = (model.module(windows).argmax(1) == labels).float().mean()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f} accuracy {accuracy:.3f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--nproc", type=int, default=2, help="processes on this node")
    parser.add_argument("--subjects", type=int, default=24)
    parser.add_argument("--windows", type=int, default=120)
    parser.add_argument("--holdout", type=float, default=0.2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--workdir", default=".")
    args = parser.parse_args()

    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(free_port()))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    started = time.time()
    args.features = prepare_features(args)
    args.world_size = args.nodes * args.nproc
    print(f"features written in {time.time() - started:.1f} s to {args.features}", flush=True)
    mp.spawn(main_worker, nprocs=args.nproc, args=(args,), join=True)
    print("training finished", flush=True)


if __name__ == "__main__":
    main()
