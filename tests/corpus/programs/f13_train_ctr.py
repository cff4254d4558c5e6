"""CTR model on integer count features; the binning of the features is compiled."""
import csv
import io
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

COLUMNS = ["impressions", "visits", "age_days", "position", "price_cents", "shop_type"]


def read_log(rows):
    rng = random.Random(0)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS + ["clicked"])
    for _ in range(rows):
        writer.writerow([rng.randrange(9000), rng.randrange(300), rng.randrange(1, 900), rng.randrange(64), rng.randrange(50, 40000), rng.randrange(3), rng.randrange(2)])
    text.seek(0)
    records = list(csv.DictReader(text))
    x = torch.tensor([[int(r[c]) for c in COLUMNS] for r in records])
    y = torch.tensor([float(r["clicked"]) for r in records])
    return x, y


class BinnedFeatures(nn.Module):
    def __init__(self, x, bins=32, dim=8):
        super().__init__()
        self.bins = bins
        low, high = x.min(0).values, x.max(0).values
        self.register_buffer("low", low)
        self.register_buffer("width", (high - low + 1) // bins)
        self.register_buffer("offset", torch.arange(x.shape[1]) * (bins + 1))
        self.table = nn.Embedding(x.shape[1] * (bins + 1), dim)

    @torch.compile(dynamic=False)
    def slots(self, x):
        bucket = torch.div(x - self.low, self.width, rounding_mode="trunc")
        return bucket.clamp(0, self.bins) + self.offset

    def forward(self, x):
        return self.table(self.slots(x)).flatten(1)


class CTRModel(nn.Module):
    def __init__(self, x, dim=8):
        super().__init__()
        self.features = BinnedFeatures(x, dim=dim)
        self.mlp = nn.Sequential(nn.Linear(dim * x.shape[1], 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x):
        return self.mlp(self.features(x)).squeeze(1)


def train(model, loader, opt, epochs=2):
    for epoch in range(epochs):
        for x, y in loader:
            loss = F.binary_cross_entropy_with_logits(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


def main():
    torch.manual_seed(0)
    x, y = read_log(4096)
    loader = DataLoader(TensorDataset(x, y), batch_size=256, shuffle=True, drop_last=True)
    model = CTRModel(x)
    print("table", tuple(model.features.table.weight.shape), flush=True)
    train(model, loader, torch.optim.Adam(model.parameters(), lr=1e-3))


if __name__ == "__main__":
    main()
