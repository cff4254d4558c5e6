"""Train on buckets of similar duration; loss statistics are reduced before every validation."""
import datetime
import random

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class DynamicBucketingSampler:
    """Batches limited by total duration, shared out to the ranks by utterance."""

    def __init__(self, durations, max_duration, rank, world_size, seed=0):
        order = list(range(len(durations)))
        random.Random(seed).shuffle(order)
        self.indices = order[rank::world_size]
        self.durations, self.max_duration = durations, max_duration

    def __iter__(self):
        batch, total = [], 0.0
        for i in self.indices:
            if batch and total + self.durations[i] > self.max_duration:
                yield batch
                batch, total = [], 0.0
            batch.append(i)
            total += self.durations[i]
        if batch:
            yield batch


class MetricsTracker(dict):
    def update_loss(self, loss, frames):
        self["loss"] = self.get("loss", 0.0) + loss * frames
        self["frames"] = self.get("frames", 0) + frames

    def reduce(self):
        keys = sorted(self)
        s = torch.tensor([float(self[k]) for k in keys])
        dist.all_reduce(s)
        return {k: v.item() for k, v in zip(keys, s)}


class DurationModel(nn.Module):
    def __init__(self, dim=80):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 256), nn.ReLU(), nn.Linear(256, dim))

    def forward(self, x):
        return self.net(x)


def load_batch(ids, durations):
    frames = [int(durations[i] * 20) for i in ids]
    return torch.randn(sum(frames), 80), sum(frames)


def compute_validation_loss(model, durations, tracker):
    model.eval()
    train_stats = tracker.reduce()
    with torch.no_grad():
        x, _ = load_batch(range(4), durations)
        val = nn.functional.mse_loss(model.module(x), x)
    model.train()
    return train_stats["loss"] / train_stats["frames"], val.item()


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=25))
    rank = dist.get_rank()
    torch.manual_seed(rank)
    rnd = random.Random(7)
    durations = [rnd.uniform(1.0, 16.0) for _ in range(400)]
    model = DDP(DurationModel())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(3):
        tracker = MetricsTracker()
        sampler = DynamicBucketingSampler(durations, 40.0, rank, dist.get_world_size(), seed=epoch)
        for step, ids in enumerate(sampler):
            x, frames = load_batch(ids, durations)
            loss = nn.functional.mse_loss(model(x), x)
            opt.zero_grad()
            loss.backward()
            opt.step()
            tracker.update_loss(loss.item(), frames)
        train_loss, val_loss = compute_validation_loss(model, durations, tracker)
        print(f"[rank {rank}] epoch {epoch} steps {step + 1} train {train_loss:.4f} val {val_loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
