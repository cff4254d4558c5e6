"""Keyword spotting on utterance shards, one contiguous part of the manifest for each process.

torchrun --standalone --nproc-per-node 2 v112_shards.py
"""
import argparse
import math

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class UtteranceSampler:
    """Yields batches of utterance numbers whose total duration stays below max_frames."""

    def __init__(self, durations, rank, world_size, max_frames, seed=0):
        self.durations = durations
        self.max_frames = max_frames
        self.seed = seed
        self.epoch = 0
        total = len(durations)
        per_partition = int(math.ceil(total / float(world_size)))
        start = rank * per_partition
        self.indices = list(range(start, min(start + per_partition, total)))

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.indices), generator=g).tolist()
        batch, frames = [], 0
        for k in order:
            i = self.indices[k]
            if batch and frames + self.durations[i] > self.max_frames:
                yield batch
                batch, frames = [], 0
            batch.append(i)
            frames += self.durations[i]
        if batch:
            yield batch


class Manifest:
    def __init__(self, n=420, n_mels=24, seed=3):
        g = torch.Generator().manual_seed(seed)
        lengths = torch.randint(40, 160, (n,), generator=g)
        self.durations, _ = torch.sort(lengths, descending=True)
        self.durations = self.durations.tolist()
        self.labels = torch.randint(0, 8, (n,), generator=g)
        self.n_mels = n_mels

    def collate(self, indices):
        longest = max(self.durations[i] for i in indices)
        feats = torch.zeros(len(indices), longest, self.n_mels)
        for row, i in enumerate(indices):
            g = torch.Generator().manual_seed(i)
            feats[row, :self.durations[i]] = torch.randn(self.durations[i], self.n_mels, generator=g)
        return feats, self.labels[indices]


class Spotter(nn.Module):
    def __init__(self, n_mels=24, hidden=48, n_words=8):
        super().__init__()
        self.rnn = nn.GRU(n_mels, hidden, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, n_words)

    def forward(self, feats):
        states, _ = self.rnn(feats)
        return self.out(self.norm(states.mean(1)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--max-frames", type=int, default=1600)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(11)

    manifest = Manifest()
    sampler = UtteranceSampler(manifest.durations, rank, world_size, args.max_frames)
    model = DDP(Spotter())
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    if rank == 0:
        print(f"{len(manifest.durations)} utterances, {len(sampler.indices)} on each process", flush=True)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        for step, indices in enumerate(sampler):
            feats, words = manifest.collate(indices)
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(feats), words)
            loss.backward()
            optimizer.step()
            total += loss.item()
            if step % 5 == 0:
                print(f"[rank {rank}] epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        print(f"[rank {rank}] epoch {epoch} finished, mean loss {total / (step + 1):.4f}", flush=True)

    if rank == 0:
        torch.save(model.module.state_dict(), "spotter.pt")
        print("saved spotter.pt", flush=True)


if __name__ == "__main__":
    main()
