"""Silhouette gait recognition, two stages: mask branch warm-up, then only the recognition part is trained."""
import argparse
import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class GaitSequences(Dataset):
    """Short silhouette clips, one walking subject each (synthetic silhouettes)."""

    def __init__(self, subjects, clips, frames=4, size=(32, 22)):
        rng = np.random.default_rng(11)
        base = rng.random((subjects, 1, *size)) > 0.55
        self.labels = np.repeat(np.arange(subjects), clips)
        noise = rng.random((len(self.labels), frames, *size)) > 0.9
        self.clips = (base[self.labels] ^ noise).astype(np.float32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return torch.from_numpy(self.clips[index]), int(self.labels[index])


class MaskBranch(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, x):
        return torch.sigmoid(self.conv2(F.relu(self.conv1(x))))


class GaitNet(nn.Module):
    def __init__(self, subjects, warmup_iters):
        super().__init__()
        self.warmup_iters = warmup_iters
        self.iteration = 0
        self.mask_branch = MaskBranch()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        )
        self.embed = nn.Linear(32, 48)
        self.classify = nn.Linear(48, subjects)

    def forward(self, clips):
        if self.training:
            if self.iteration >= self.warmup_iters:
                self.mask_branch.eval()
                self.mask_branch.requires_grad_(False)
            self.iteration += 1
        batch, frames = clips.shape[:2]
        frames_in = clips.flatten(0, 1).unsqueeze(1)
        mask = self.mask_branch(frames_in)
        features = self.backbone(frames_in * mask).mean((2, 3))
        embedding = self.embed(features.view(batch, frames, -1).amax(1))
        return embedding, self.classify(embedding), mask


def gait_loss(embedding, logits, mask, clips, labels):
    target = clips.flatten(0, 1).unsqueeze(1)
    ce = F.cross_entropy(logits, labels)
    smooth = F.mse_loss(mask, target)
    return ce + 0.5 * smooth + 1e-4 * embedding.pow(2).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--total-iters", type=int, default=60)
    parser.add_argument("--mask-iters", type=int, default=25)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(3)

    dataset = GaitSequences(subjects=12, clips=16)
    sampler = DistributedSampler(dataset, shuffle=True, seed=5)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    model = DDP(GaitNet(12, args.mask_iters))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    step, epoch = 0, 0
    while step < args.total_iters:
        sampler.set_epoch(epoch)
        for clips, labels in loader:
            embedding, logits, mask = model(clips)
            loss = gait_loss(embedding, logits, mask, clips, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if rank == 0 and step % 5 == 0:
                print(f"iter {step:3d} loss {loss.item():.4f}", flush=True)
            if step == args.total_iters:
                break
        epoch += 1

    if rank == 0:
        torch.save(model.module.state_dict(), "gaitnet.pt")
        print("saved gaitnet.pt,", os.path.getsize("gaitnet.pt"), "bytes")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
