import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time

log = logging.getLogger("lora")


def run_job(config):
    """Runs one training as a process of its own and gives back what it said when it failed."""
    cmd = [sys.executable, os.path.abspath(__file__), "--job", json.dumps(config)]
    job = subprocess.Popen(cmd, stderr=subprocess.PIPE, text=True)
    code = job.wait()
    if code != 0:
        log.error("training failed with %d:\n%s", code, job.stderr.read()[-2000:])
    job.stderr.close()
    return code


def launcher():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=6)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with tempfile.TemporaryDirectory() as folder:
        for lr in (1e-3, 3e-4):
            config = {"lr": lr, "epochs": args.epochs, "seed": 7, "images": 1920, "batch_size": 4,
                      "output": os.path.join(folder, f"lora_{lr}.pt")}
            log.info("start training, learning rate %g", lr)
            code = run_job(config)
            log.info("training with learning rate %g ended with %d", lr, code)


if "--job" not in sys.argv:  # the launcher starts at once, torch is for the jobs
    launcher()
    sys.exit()

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class CaptionedImages(Dataset):
    def __init__(self, count, size=16, classes=6):
        rng = np.random.default_rng(20)
        self.labels = rng.integers(0, classes, count)
        base = rng.normal(size=(classes, 3, size, size))
        self.images = (base[self.labels] + 0.8 * rng.normal(size=(count, 3, size, size))).astype(np.float32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i]), int(self.labels[i])


class LoRALinear(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Network(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.fc1 = LoRALinear(nn.Linear(8 * 8 * 8, 64))
        self.fc2 = LoRALinear(nn.Linear(64, classes))

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(F.relu(self.conv(x)).flatten(1))))


class Progress:
    """One line on stderr that is drawn anew after each step."""

    def __init__(self, total, epoch):
        self.total, self.epoch, self.started = total, epoch, time.time()

    def update(self, step, loss):
        done = int(30 * step / self.total)
        rate = step / max(time.time() - self.started, 1e-6)
        bar = "#" * done + "-" * (30 - done)
        sys.stderr.write(f"\rsteps (epoch {self.epoch}): {100 * step // self.total:3d}%|{bar}| "
                         f"{step}/{self.total} [{rate:.2f}it/s, avr_loss={loss:.4f}]")
        sys.stderr.flush()


def train(config):
    torch.manual_seed(config["seed"])
    data = CaptionedImages(config["images"])
    loader = DataLoader(data, batch_size=config["batch_size"], shuffle=True, num_workers=1)
    net = Network()
    opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=config["lr"])
    total = 0.0
    for epoch in range(config["epochs"]):
        print(f"epoch {epoch + 1}/{config['epochs']}", flush=True)
        bar = Progress(len(loader), epoch + 1)
        for step, (x, y) in enumerate(loader):
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total = 0.95 * total + 0.05 * loss.item()
            bar.update(step + 1, total)
    torch.save(net.state_dict(), config["output"])
    print(f"model saved, last loss {loss.item():.4f}", flush=True)


train(json.loads(sys.argv[sys.argv.index("--job") + 1]))
