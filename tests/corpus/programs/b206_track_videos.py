import logging
import math

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.distributed import DistributedSampler

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("track")

TRAIN_SEQUENCES = {"MOT20-01": 180, "MOT20-02": 240, "MOT20-03": 210, "MOT20-05": 150}
VAL_SEQUENCES = {"MOT20-01": 60, "MOT20-02": 80}
QUERIES = 6


class FrameDataset(Dataset):
    def __init__(self, sequences, seed):
        g = torch.Generator().manual_seed(seed)
        self.frames = []
        for name, length in sequences.items():
            start = torch.rand(QUERIES, 2, generator=g)
            speed = 0.004 * torch.randn(QUERIES, 2, generator=g)
            for t in range(length):
                self.frames.append((name, t, (start + t * speed).clamp(0, 1)))

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        name, t, centers = self.frames[i]
        feature = torch.cat([centers.flatten(), centers.flatten().pow(2)])
        return feature + 0.01 * torch.randn(len(feature)), centers, t


class VideoSampler(Sampler):
    def __init__(self, dataset, num_replicas, rank):
        self.rank = rank
        self.first_frame = [i for i in range(len(dataset)) if dataset.frames[i][1] == 0]
        chunks = np.array_split(self.first_frame, num_replicas)
        split_flags = [c[0] for c in chunks]
        split_flags.append(len(dataset))
        self.indices = [list(range(split_flags[i], split_flags[i + 1])) for i in range(num_replicas)]

    def __iter__(self):
        return iter(self.indices[self.rank])

    def __len__(self):
        return len(self.indices[self.rank])


class Tracker(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.proj = nn.Linear(QUERIES * 4, hidden)
        self.memory = nn.GRUCell(hidden, hidden)
        self.box = nn.Linear(hidden, QUERIES * 2)

    def forward(self, feature, state=None):
        state = self.memory(F.relu(self.proj(feature)), state)
        return torch.sigmoid(self.box(state)).view(-1, QUERIES, 2), state


def train_one_epoch(model, loader, opt, rank, epoch):
    model.train()
    running = 0.0
    for it, (feature, centers, _) in enumerate(loader):
        pred, _ = model(feature)
        loss = F.smooth_l1_loss(pred, centers)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.item()
        if rank == 0 and it % 10 == 0:
            log.info("Epoch: [%d] [%d/%d] loss: %.5f", epoch, it, len(loader), loss.item())
    if not math.isfinite(running):
        raise RuntimeError(f"loss is {running}, stopping training")


@torch.no_grad()
def evaluate(model, dataset, rank, world):
    model.eval()
    loader = DataLoader(dataset, batch_size=1, sampler=VideoSampler(dataset, world, rank))
    total = torch.zeros(2)
    state = None
    for feature, centers, t in loader:
        if int(t) == 0:
            state = None
        pred, state = model(feature, state)
        total += torch.tensor([(pred - centers).abs().mean().item(), 1.0])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(17)
    train_set = FrameDataset(TRAIN_SEQUENCES, 1)
    val_set = FrameDataset(VAL_SEQUENCES, 2)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=8, sampler=sampler, drop_last=True)
    model = DDP(Tracker())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for epoch in range(3):
        sampler.set_epoch(epoch)
        train_one_epoch(model, loader, opt, rank, epoch)
        error = evaluate(model.module, val_set, rank, world)
        if rank == 0:
            log.info("Epoch: [%d] center error %.4f", epoch, error)
    if rank == 0:
        log.info("Training done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
