"""Split training: one process extracts features of the ECG windows, the other trains on them."""
import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

WINDOW = 512
FEATURES = 32
EXTRACTOR, LEARNER = 0, 1


class FeatureExtractor(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, 32, 9, padding=4), nn.ReLU(),
            nn.Conv1d(32, 64, 9, padding=4), nn.ReLU(),
            nn.Conv1d(64, FEATURES, 9, padding=4))

    def forward(self, signal):
        return self.conv(signal).mean(-1)


class RhythmClassifier(nn.Module):
    def __init__(self, rhythms=3):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, rhythms))

    def forward(self, x):
        return self.net(x)


def ecg_windows(batch, index):
    gen = torch.Generator().manual_seed(index)
    rhythm = torch.randint(0, 3, (batch,), generator=gen)
    t = torch.linspace(0, 1, WINDOW)
    rate = (4 + 5 * rhythm).view(-1, 1)
    signal = torch.sin(6.28 * rate * t) ** 9 + 0.1 * torch.randn(batch, WINDOW, generator=gen)
    return signal.unsqueeze(1), rhythm


class Extractor:
    def __init__(self, args):
        torch.manual_seed(1)
        self.args = args
        self.net = FeatureExtractor().eval()
        self.cache = {}

    @torch.no_grad()
    def features(self, index):
        if index not in self.cache:
            signal, rhythm = ecg_windows(self.args.batch, index)
            packed = torch.cat([self.net(signal), rhythm.float().unsqueeze(1)], 1)
            self.cache[index] = packed
        return self.cache[index]

    def run(self):
        for epoch in range(self.args.epochs):
            for index in range(self.args.batches):
                dist.isend(self.features(index), dst=LEARNER)
            print(f"extractor: epoch {epoch} sent {self.args.batches} batches", flush=True)


class Learner:
    def __init__(self, args):
        torch.manual_seed(2)
        self.args = args
        self.net = RhythmClassifier()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=2e-3)
        self.buffer = torch.empty(args.batch, FEATURES + 1)

    def step(self):
        x, y = self.buffer[:, :-1], self.buffer[:, -1].long()
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def run(self):
        for epoch in range(self.args.epochs):
            total = 0.0
            for index in range(self.args.batches):
                dist.recv(self.buffer, src=EXTRACTOR)
                total += self.step()
            print(f"learner: epoch {epoch} loss {total / self.args.batches:.4f}", flush=True)
        torch.save(self.net.state_dict(), os.path.join(self.args.out, "rhythm.pt"))
        print("learner: saved", flush=True)


def worker(rank, args, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    dist.barrier()
    role = Extractor(args) if rank == EXTRACTOR else Learner(args)
    role.run()
    print(f"rank {rank} finished", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--out", default=".")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        mp.spawn(worker, nprocs=2, args=(args, os.path.join(scratch, "rendezvous")))


if __name__ == "__main__":
    main()
