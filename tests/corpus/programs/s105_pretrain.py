"""Masked pre-training in a terminal session of its own, followed by a linear probe on the saved encoder."""
import argparse
import os
import pty
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn

CHECKPOINT = Path("encoder.pt")


class Encoder(nn.Module):
    def __init__(self, patch=16, width=48):
        super().__init__()
        self.embed = nn.Linear(patch, width)
        self.block = nn.TransformerEncoderLayer(width, 4, 96, dropout=0.0, batch_first=True)

    def forward(self, patches):
        return self.block(self.embed(patches))


class MaskedModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = nn.Linear(48, 16)

    def forward(self, patches, mask):
        visible = patches * mask.unsqueeze(-1)
        return self.decoder(self.encoder(visible))


def make_images(path, count):
    rng = np.random.default_rng(4)
    phase = rng.uniform(0, 6.28, (count, 1, 1))
    label = rng.integers(0, 2, count)
    grid = np.linspace(0, 12, 16 * 16).reshape(1, 16, 16)
    images = np.sin(grid * (1 + label[:, None, None]) + phase) + rng.normal(0, 0.1, (count, 16, 16))
    np.savez(path, patches=images.astype(np.float32), labels=label)


def pretrain(path, epochs):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    patches = torch.from_numpy(np.load(path)["patches"])
    model = MaskedModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        total = 0.0
        for batch in torch.randperm(len(patches)).split(32):
            mask = (torch.rand(len(batch), 16) > 0.6).float()
            error = (model(patches[batch], mask) - patches[batch]).square().mean(-1)
            loss = (error * (1 - mask)).sum() / (1 - mask).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        print(f"epoch {epoch + 1}/{epochs} loss {total / len(patches):.4f}", flush=True)
    torch.save(model.encoder.state_dict(), CHECKPOINT)
    print("encoder saved", flush=True)


class Session:
    """A job in a terminal of its own; its output is followed for a while."""

    def __init__(self, function, *args):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            function(*args)
            os._exit(0)

    def follow(self, lines):
        with open(self.terminal, "rb", buffering=0) as stream:
            text = b""
            while text.count(b"\n") < lines:
                text += stream.read(4096)
        for line in text.decode().splitlines():
            print(f"[session {self.pid}] {line}", flush=True)

    def wait(self):
        return os.waitpid(self.pid, 0)[1]


def linear_probe(path):
    data = np.load(path)
    encoder = Encoder()
    encoder.load_state_dict(torch.load(CHECKPOINT))
    with torch.no_grad():
        features = encoder(torch.from_numpy(data["patches"])).mean(1).double()
    target = torch.from_numpy(data["labels"]).double() * 2 - 1
    weights = torch.linalg.lstsq(features, target.unsqueeze(1)).solution
    accuracy = ((features @ weights).squeeze(1).sign() == target).double().mean()
    print(f"linear probe accuracy {accuracy:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--follow", type=int, default=3)
    args = parser.parse_args()

    path = Path("images.npz")
    make_images(path, args.images)
    started = time.monotonic()
    session = Session(pretrain, path, args.epochs)
    session.follow(args.follow)
    print(f"training runs in the background as {session.pid}", flush=True)
    status = session.wait()
    print(f"session over after {time.monotonic() - started:.1f} s", flush=True)
    if status:
        sys.exit(f"pre-training returned {status}")
    linear_probe(path)


if __name__ == "__main__":
    main()
