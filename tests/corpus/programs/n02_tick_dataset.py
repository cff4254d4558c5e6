"""Stream quantised order-book ticks into a small forecaster."""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

NO_QUOTE = np.iinfo(np.int32).min


def record_session(n_days, n_ticks, seed=0):
    rng = np.random.default_rng(seed)
    price = rng.integers(-9_000, 9_000, size=(n_days, n_ticks), dtype=np.int32)
    side = rng.choice(np.array([-1, 1], dtype=np.int32), size=(n_days, n_ticks))
    lots = rng.integers(1, 5, size=(n_days, n_ticks), dtype=np.int32)
    halted = rng.integers(0, n_ticks, size=n_days)
    for day in range(n_days // 2, n_days):
        price[day, halted[day]:halted[day] + 12] = NO_QUOTE
    return price, side * lots


class TickDataset(Dataset):
    def __init__(self, price, volume, window=256):
        self.price = torch.from_numpy(price)
        self.volume = torch.from_numpy(volume)
        self.window = window
        self.per_day = price.shape[1] // window

    def __len__(self):
        return self.price.size(0) * self.per_day

    def __getitem__(self, idx):
        day, slot = divmod(idx, self.per_day)
        sl = slice(slot * self.window, (slot + 1) * self.window)
        price = self.price[day, sl]
        volume = self.volume[day, sl]
        per_lot = torch.div(price, volume, rounding_mode="trunc")
        x = torch.stack([per_lot.float(), volume.float()])
        x = x.clamp(-1e4, 1e4) / 1e4
        return x, x[0, -32:].mean()


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(2, 8, 9, stride=4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(1))

    def forward(self, x):
        return self.body(x).squeeze(1)


def train(epochs=2):
    price, volume = record_session(n_days=40, n_ticks=4096)
    loader = DataLoader(TickDataset(price, volume), batch_size=32, num_workers=2)
    model = Forecaster()
    opt = None
    for epoch in range(epochs):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            opt = opt or torch.optim.Adam(model.parameters(), lr=1e-3)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.5f}", flush=True)


if __name__ == "__main__":
    train()
