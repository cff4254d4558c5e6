"""Pre-compute sentence features for a language model: one big array per epoch on the job's scratch volume."""
import argparse
import ctypes
import os
import zlib

import numpy as np
import torch
from torch import nn

VOCAB = 4096
WORDS = ["river", "stone", "garden", "engine", "winter", "paper", "signal", "harbor", "copper", "market"]


def job_scratch(path, megabytes):
    """What the batch system's prolog does: a private volume of fixed size for this job only."""
    libc = ctypes.CDLL(None, use_errno=True)
    os.makedirs(path, exist_ok=True)
    private = 0x4000 | 0x40000
    if libc.unshare(0x00020000) or libc.mount(b"none", b"/", None, private, None):
        raise OSError(ctypes.get_errno(), "cannot enter the job namespace")
    if libc.mount(b"scratch", path.encode(), b"tmpfs", 0, f"size={megabytes}m".encode()):
        raise OSError(ctypes.get_errno(), f"cannot mount {path}")
    return path


class Tokenizer:
    def encode(self, sentence, length):
        ids = [1 + zlib.crc32(word.encode()) % (VOCAB - 1) for word in sentence.split()][:length]
        return ids + [0] * (length - len(ids))


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width, padding_idx=0)
        self.mix = nn.Conv1d(width, width, 3, padding=1)

    def forward(self, ids):
        hidden = self.embed(ids).transpose(1, 2)
        return torch.tanh(self.mix(hidden)).transpose(1, 2)


def sentences(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield " ".join(rng.choice(WORDS, size=rng.integers(6, 16)))


def build_cache(folder, epoch, encoder, count, length, width, batch=64):
    """Encode `count` sentences; returns a read-only view on the finished file."""
    name = os.path.join(folder, f"epoch_{epoch}.memmap")
    shape = (count, length, width)
    features = np.memmap(name, dtype=np.float32, mode="w+", shape=shape)
    tokenizer = Tokenizer()
    rows = [tokenizer.encode(text, length) for text in sentences(count, seed=epoch)]
    with torch.no_grad():
        for lo in range(0, count, batch):
            ids = torch.tensor(rows[lo:lo + batch])
            features[lo:lo + batch] = encoder(ids).numpy()
            if lo // batch % 8 == 0:
                print(f"epoch {epoch}: {lo}/{count} sentences encoded", flush=True)
    features.flush()
    return np.memmap(name, dtype=np.float32, mode="r", shape=shape)


def train_head(head, optim, features, steps=30):
    rng = np.random.default_rng(0)
    for _ in range(steps):
        pick = np.sort(rng.choice(len(features), 32, replace=False))
        x = torch.from_numpy(np.array(features[pick]))
        recon = head(x[:, :-1])
        loss = (recon - x[:, 1:]).pow(2).mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
    return loss.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--sentences", type=int, default=2048)
    ap.add_argument("--length", type=int, default=32)
    ap.add_argument("--width", type=int, default=128)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--scratch", default="scratch")
    ap.add_argument("--scratch-mb", type=int, default=80)
    args = ap.parse_args()

    folder = job_scratch(os.path.abspath(args.scratch), args.scratch_mb)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    encoder = Encoder(args.width)
    head = nn.Linear(args.width, args.width)
    optim = torch.optim.Adam(head.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        features = build_cache(folder, epoch, encoder, args.sentences, args.length, args.width)
        loss = train_head(head, optim, features)
        print(f"epoch {epoch}: features {features.nbytes / 2**20:.0f} MiB, head loss {loss:.4f}", flush=True)
    torch.save(head.state_dict(), "head.pt")


if __name__ == "__main__":
    main()
