"""Denoiser with a text alignment branch, two CPU processes started from here: python v114_unet.py"""
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class AlignedDenoiser(nn.Module):
    def __init__(self, channels=24, text_dim=32):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(4, channels, 5, padding=2), nn.SiLU(),
            nn.Conv1d(channels, channels, 5, padding=2), nn.SiLU())
        self.project = nn.Linear(channels, text_dim)
        self.decoder = nn.Sequential(
            nn.Conv1d(channels, channels, 5, padding=2), nn.SiLU(),
            nn.Conv1d(channels, 4, 5, padding=2))

    def forward(self, noisy, text):
        hidden = self.encoder(noisy)
        noise_pred = self.decoder(hidden)
        pooled = F.normalize(self.project(hidden.mean(-1)), dim=-1)
        align_loss = (1.0 - (pooled * F.normalize(text, dim=-1)).sum(-1)).mean()
        return noise_pred, align_loss


class MotionClips:
    def __init__(self, rank, batch_size):
        self.generator = torch.Generator().manual_seed(40 + rank)
        self.batch_size = batch_size
        self.words = torch.randn(16, 32, generator=torch.Generator().manual_seed(1))

    def next_batch(self):
        word = torch.randint(0, 16, (self.batch_size,), generator=self.generator)
        clip = torch.randn(self.batch_size, 4, 64, generator=self.generator).cumsum(-1) * 0.1
        noise = torch.randn(clip.shape, generator=self.generator)
        return clip + noise, noise, self.words[word]


class Schedule:
    """First the denoiser with a little alignment, later the alignment for itself."""

    def __init__(self, joint_steps, weight):
        self.joint_steps, self.weight = joint_steps, weight

    def combine(self, step, denoise_loss, align_loss):
        if step < self.joint_steps:
            return denoise_loss + self.weight * align_loss
        return align_loss


def train_step(model, optimizer, batch, schedule, step):
    noisy, noise, text = batch
    noise_pred, align_loss = model(noisy, text)
    denoise_loss = F.mse_loss(noise_pred, noise)
    loss = schedule.combine(step, denoise_loss, align_loss)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return denoise_loss.item(), align_loss.item()


def worker(rank, world_size, port, args):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(2)
    model = DDP(AlignedDenoiser())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    schedule = Schedule(args.joint_steps, args.align_weight)
    clips = MotionClips(rank, args.batch_size)
    for step in range(args.steps):
        denoise, align = train_step(model, optimizer, clips.next_batch(), schedule, step)
        if rank == 0 and step % 4 == 0:
            print(f"step {step} denoise {denoise:.4f} align {align:.4f}", flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), "denoiser.pt")
        print("saved denoiser.pt", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--joint-steps", type=int, default=24)
    parser.add_argument("--align-weight", type=float, default=0.1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    mp.spawn(worker, args=(args.processes, free_port(), args), nprocs=args.processes)


if __name__ == "__main__":
    main()
