"""Modulation recognition on synthetic baseband signals, generated on the fly."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CONSTELLATIONS = {
    "bpsk": np.array([-1, 1], dtype=np.complex64),
    "qpsk": np.exp(1j * np.pi * (np.arange(4) / 2 + 0.25)).astype(np.complex64),
    "8psk": np.exp(1j * np.pi * np.arange(8) / 4).astype(np.complex64),
    "16qam": np.array([a + 1j * b for a in (-3, -1, 1, 3) for b in (-3, -1, 1, 3)], dtype=np.complex64) / np.sqrt(10),
}
CLASSES = list(CONSTELLATIONS)


class MetadataError(AttributeError):
    pass


class Described:
    """Metadata fields that can be read as attributes; what is not found here is asked of the parent."""

    def __init__(self, parent=None, **fields):
        self.parent = parent
        self._fields = dict(fields)

    def __getattribute__(self, key):
        try:
            return super().__getattribute__(key)
        except AttributeError:
            return self[key]

    def __getitem__(self, key):
        if key == "_fields":
            raise KeyError(f"unknown field for {type(self).__name__}: {list(self.__dict__)}; check the metadata names")
        if key in self._fields:
            return self._fields[key]
        if self.parent is not None:
            return self.parent[key]
        raise MetadataError(f"'{key}' is not in the metadata")


class SignalConfig(Described):
    pass


class Signal(Described):
    def __init__(self, iq, parent=None, **fields):
        super().__init__(parent, **fields)
        self.iq = iq

    def spectrum(self):
        return np.abs(np.fft.fftshift(np.fft.fft(self.iq))) / np.sqrt(len(self.iq))


class SignalDataset(Dataset):
    def __init__(self, count, config, seed):
        self.count, self.config, self.seed = count, config, seed

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng((self.seed, index))
        name = CLASSES[rng.integers(len(CLASSES))]
        points = CONSTELLATIONS[name]
        symbols = points[rng.integers(len(points), size=self.config.num_samples // self.config.oversampling)]
        iq = np.repeat(symbols, self.config.oversampling)
        snr_db = float(rng.uniform(self.config.snr_min, self.config.snr_max))
        noise = rng.standard_normal((2, len(iq))).astype(np.float32) * 10 ** (-snr_db / 20) / np.sqrt(2)
        iq = (iq + noise[0] + 1j * noise[1]).astype(np.complex64)
        return Signal(iq, modulation=name, snr_db=snr_db, center=0.0, start=index)


def keep_list(signals):
    return signals


def to_tensors(signals):
    x = np.stack([np.stack([s.iq.real, s.iq.imag, np.log1p(s.spectrum())]) for s in signals]).astype(np.float32)
    y = torch.tensor([CLASSES.index(s.modulation) for s in signals])
    weight = torch.tensor([1.0 if s.snr_db > 5 else 0.5 for s in signals])
    return torch.from_numpy(x), y, weight


class IQNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(3, width, 7, stride=2, padding=3), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Conv1d(width, 2 * width, 5, stride=2, padding=2), nn.ReLU())
        self.head = nn.Linear(4 * width, len(CLASSES))

    def forward(self, x):
        h = self.body(x)
        return self.head(torch.cat([h.mean(-1), h.amax(-1)], 1))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = total = 0
    for signals in loader:
        x, y, _ = to_tensors(signals)
        right += (model(x).argmax(1) == y).sum().item()
        total += len(y)
    return right / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", type=int, default=1600)
    parser.add_argument("--val", type=int, default=320)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = SignalConfig(num_samples=1024, oversampling=8, snr_min=0.0, snr_max=20.0, sample_rate=1e6)
    val = DataLoader(SignalDataset(args.val, config, 1), batch_size=args.batch_size, collate_fn=keep_list)
    train = DataLoader(SignalDataset(args.train, config, 0), batch_size=args.batch_size, shuffle=True,
                       num_workers=args.num_workers, collate_fn=keep_list)
    model = IQNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    print(f"before training: accuracy {accuracy(model, val):.3f}", flush=True)
    for epoch in range(args.epochs):
        model.train()
        start = time.time()
        for step, signals in enumerate(train):
            x, y, weight = to_tensors(signals)
            loss = (F.cross_entropy(model(x), y, reduction="none") * weight).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
        print(f"epoch {epoch}: accuracy {accuracy(model, val):.3f} ({time.time() - start:.1f}s)", flush=True)
    print("finished", flush=True)


if __name__ == "__main__":
    main()
