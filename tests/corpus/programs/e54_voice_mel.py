"""Voice model fine tuning on two processes: mel frames in, next frame out."""
import math
import os
import socket
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

WORK = Path("/tmp/e54_voice_mel_logs")
HP = {"epochs": 30, "batch": 16, "lr": 3e-3, "patience": 2, "min_delta": 0.001, "mels": 40, "segment": 32}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def synth_voice(count, seconds, seed, rate=8000):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(int(rate * seconds)) / rate
    waves = []
    for _ in range(count):
        pitch = 90 + 160 * torch.rand((), generator=g)
        wave = sum(torch.sin(2 * math.pi * pitch * k * t) / k for k in range(1, 8))
        waves.append(wave * torch.hann_window(len(t)) + 0.02 * torch.randn(len(t), generator=g))
    return torch.stack(waves)


def mel_frames(waves, mels, n_fft=512, hop=128):
    spec = torch.stft(waves, n_fft, hop, window=torch.hann_window(n_fft), return_complex=True).abs()
    edges = torch.linspace(0, spec.size(1) - 1, mels + 2)
    bins = torch.arange(spec.size(1)).float()[None]
    left, mid, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    bank = torch.minimum((bins - left) / (mid - left), (right - bins) / (right - mid)).clamp(min=0)
    return torch.log1p(torch.einsum("mf,bft->btm", bank, spec))


class Segments(Dataset):
    def __init__(self, frames, length):
        self.parts = [f[i:i + length + 1] for f in frames for i in range(0, len(f) - length - 1, length)]

    def __len__(self):
        return len(self.parts)

    def __getitem__(self, i):
        return self.parts[i][:-1], self.parts[i][1:]


class FrameModel(nn.Module):
    def __init__(self, mels, width=64):
        super().__init__()
        self.rnn = nn.GRU(mels, width, batch_first=True)
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, mels))

    def forward(self, x):
        return x + self.out(self.rnn(x)[0])


class OvertrainingDetector:
    def __init__(self, patience, min_delta):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.stale, self.best_epoch = float("inf"), 0, 0

    def step(self, epoch, value):
        if value < self.best - self.min_delta:
            self.best, self.best_epoch, self.stale = value, epoch, 0
        else:
            self.stale += 1
        return self.stale >= self.patience


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total = sum(nn.functional.mse_loss(model(x), y).item() for x, y in loader)
    model.train()
    return total / len(loader)


class Trainer:
    def __init__(self, rank, world):
        self.rank = rank
        torch.manual_seed(7)
        frames = mel_frames(synth_voice(24, 2.0, seed=1), HP["mels"])
        held_out = mel_frames(synth_voice(6, 2.0, seed=2), HP["mels"])
        dataset = Segments(frames, HP["segment"])
        self.sampler = DistributedSampler(dataset, world, rank, seed=5)
        self.loader = DataLoader(dataset, HP["batch"], sampler=self.sampler)
        self.valid = DataLoader(Segments(held_out, HP["segment"]), HP["batch"])
        self.model = DDP(FrameModel(HP["mels"]))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=HP["lr"])
        self.detector = OvertrainingDetector(HP["patience"], HP["min_delta"])

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        for x, y in self.loader:
            loss = nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def fit(self):
        for epoch in range(HP["epochs"]):
            self.train_epoch(epoch)
            if self.rank == 0:
                value = evaluate(self.model.module, self.valid)
                print(f"epoch={epoch} lowest={min(value, self.detector.best):.4f} now={value:.4f}", flush=True)
                torch.save(self.model.module.state_dict(), WORK / "last.pt")
                if self.detector.step(epoch, value):
                    print(f"best epoch was {self.detector.best_epoch}, training is done", flush=True)
                    return


def run(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    Trainer(rank, world).fit()


if __name__ == "__main__":
    WORK.mkdir(exist_ok=True)
    mp.spawn(run, args=(2, free_port()), nprocs=2)
    print("model ready for inference", flush=True)
