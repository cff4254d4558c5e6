"""Data set with a background thread that refreshes a bank of noise clips used for augmentation."""
import threading
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class NoiseBank:
    """A thread replaces the clips now and then, readers take a copy of one clip."""

    def __init__(self, clips=32, length=4000):
        self.lock = threading.Lock()
        self.clips = [torch.randn(length) for _ in range(clips)]
        self.generation = 0
        threading.Thread(target=self._refresh, daemon=True).start()

    def _refresh(self):
        while True:
            with self.lock:
                for i in range(len(self.clips)):
                    self.clips[i] = self._download(i)
                self.generation += 1
            time.sleep(0.5)

    def _download(self, i):
        time.sleep(0.01)                      # object store
        return torch.randn(len(self.clips[i]))

    def sample(self):
        with self.lock:
            return self.clips[int(torch.randint(0, len(self.clips), ()))].clone()


class Utterances(Dataset):
    def __init__(self, n, bank):
        self.n, self.bank = n, bank

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        clean = torch.sin(torch.arange(4000) * (0.01 + 0.001 * (i % 10)))
        return clean + 0.1 * self.bank.sample(), i % 10


def fit(workers, n=64):
    loader = DataLoader(Utterances(n, NoiseBank()), batch_size=16, num_workers=workers, shuffle=True)
    net = nn.Sequential(nn.Unflatten(1, (1, -1)), nn.Conv1d(1, 8, 25, stride=5), nn.ReLU(),
                        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 10))
    opt = torch.optim.Adam(net.parameters())
    for epoch in range(2):
        for wav, label in loader:
            loss = nn.functional.cross_entropy(net(wav), label)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"workers={workers} epoch {epoch} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    fit(workers=0)
    fit(workers=2)
