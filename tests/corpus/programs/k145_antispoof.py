"""Train a small raw-waveform anti-spoofing net, then score the evaluation list."""
import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

RATE = 4000


def synth_utterance(rng, seconds, spoof):
    n = int(RATE * seconds)
    t = np.arange(n) / RATE
    f0 = rng.uniform(90, 220)
    wave = sum(np.sin(2 * np.pi * f0 * k * t) / k for k in range(1, 5))
    if spoof:
        wave = np.round(wave * 6) / 6
    return (wave + 0.05 * rng.standard_normal(n)).astype(np.float32)


class UtteranceList(Dataset):
    def __init__(self, split, n, max_seconds=1.0, adjust_duration=True, seed=0):
        self.split = split
        self.max_len = int(max_seconds * RATE)
        self.adjust_duration = adjust_duration
        rng = np.random.default_rng(seed)
        self.meta = []
        for i in range(n):
            seconds = round(float(np.clip(rng.normal(1.4, 0.5), 0.6, 2.5)), 2)
            self.meta.append((f"{split}_{i:05d}", seconds, int(rng.integers(0, 2)), int(rng.integers(1 << 30))))
        self.meta.sort(key=lambda m: -m[1])

    def __len__(self):
        return len(self.meta)

    def adjust(self, wave):
        if len(wave) < self.max_len:
            wave = np.tile(wave, self.max_len // len(wave) + 1)
        return wave[:self.max_len]

    def __getitem__(self, index):
        name, seconds, label, seed = self.meta[index]
        wave = synth_utterance(np.random.default_rng(seed), seconds, label)
        if self.adjust_duration:
            wave = self.adjust(wave)
        return torch.from_numpy(wave), label, name


class RawNet(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.front = nn.Conv1d(1, channels, 65, stride=16)
        self.mid = nn.Conv1d(channels, channels, 5, stride=2)
        self.head = nn.Linear(channels, 2)

    def forward(self, x):
        x = torch.relu(self.front(x.unsqueeze(1)))
        x = torch.relu(self.mid(x))
        return self.head(x.mean(dim=-1))


def train(model, loader, epochs):
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    lossf = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        total, n = 0.0, 0
        for wave, label, _ in loader:
            opt.zero_grad()
            loss = lossf(model(wave), label)
            loss.backward()
            opt.step()
            total += loss.item() * len(label)
            n += len(label)
        print(f"epoch {epoch} loss {total / n:.4f}", flush=True)


@torch.no_grad()
def evaluate(model, loader):
    scores = {}
    model.eval()
    for wave, label, names in loader:
        logits = model(wave)
        for name, s in zip(names, (logits[:, 1] - logits[:, 0]).tolist()):
            scores[name] = s
    return scores


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--eval-adjust", action="store_true", help="cut evaluation utterances to the training duration")
    args = ap.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    train_set = UtteranceList("train", 128, seed=1)
    eval_set = UtteranceList("eval", 64, adjust_duration=args.eval_adjust, seed=2)
    train_loader = DataLoader(train_set, args.batch, shuffle=True, num_workers=args.workers)
    eval_loader = DataLoader(eval_set, args.batch, num_workers=args.workers)

    model = RawNet()
    train(model, train_loader, args.epochs)
    scores = evaluate(model, eval_loader)
    print(f"scored {len(scores)} utterances, mean {np.mean(list(scores.values())):.4f}")


if __name__ == "__main__":
    main()
