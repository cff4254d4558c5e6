import os
import signal
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ShutdownHandler:
    def __init__(self):
        self.requested = False
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGUSR1, self._on_signal)

    def _on_signal(self, signum, frame):
        self.requested = True


class AudioChunks(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, i):
        time.sleep(0.06)
        g = torch.Generator().manual_seed(i)
        return torch.randn(400, generator=g), i % 3


class CheckpointManager:
    def __init__(self, folder):
        self.folder = folder

    def save(self, step, model, opt):
        path = os.path.join(self.folder, f"step_{step}.pt")
        torch.save({"step": step, "model": model.state_dict(), "opt": opt.state_dict()}, path)
        print(f"saved {path}", flush=True)


def train(model, loader, ckpt, handler, save_every=500):
    opt = torch.optim.AdamW(model.parameters())
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if handler.requested:
            print(f"shutdown requested at step {step}", flush=True)
            ckpt.save(step, model, opt)
            return
        if step and step % save_every == 0:
            ckpt.save(step, model, opt)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    handler = ShutdownHandler()
    ckpt = CheckpointManager(tempfile.mkdtemp(prefix="run_"))
    model = nn.Sequential(nn.Linear(400, 64), nn.ReLU(), nn.Linear(64, 3))
    loader = DataLoader(AudioChunks(), batch_size=8, num_workers=2, shuffle=True)
    train(model, loader, ckpt, handler)


if __name__ == "__main__":
    main()
