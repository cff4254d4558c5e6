"""Score SST patches from several buoys with the trained encoder, one buoy per pool process."""
import argparse
import multiprocessing as mp
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn


class PatchEncoder(nn.Module):
    def __init__(self, patch=256, hidden=512):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(patch, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
        )
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(-1)


def make_series(buoy, n=500, patch=256):
    rng = np.random.default_rng(100 + buoy)
    base = np.sin(np.linspace(0, 60, n * 4 + patch)) + 0.1 * rng.standard_normal(n * 4 + patch)
    idx = np.arange(n)[:, None] * 4 + np.arange(patch)[None, :]
    x = base[idx].astype(np.float32)
    y = x[:, -8:].mean(axis=1)
    return torch.from_numpy(x), torch.from_numpy(y)


def train(model, x, y, epochs, batch):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    lossf = nn.MSELoss()
    for epoch in range(epochs):
        total = 0.0
        for i in range(0, len(x), batch):
            opt.zero_grad()
            loss = lossf(model(x[i:i + batch]), y[i:i + batch])
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total:.4f}", flush=True)


def load_model(path):
    model = PatchEncoder()
    model.load_state_dict(torch.load(path))
    model.eval()
    return model


class BuoyScorer:
    def __init__(self, path):
        self.path = path

    @torch.no_grad()
    def __call__(self, buoy):
        model = load_model(self.path)
        x, y = make_series(buoy)
        pred = model(x)
        rmse = torch.sqrt(((pred - y) ** 2).mean()).item()
        return buoy, rmse


def baseline(path, x, y):
    model = load_model(path)
    with torch.no_grad():
        pred = model(x)
    return torch.sqrt(((pred - y) ** 2).mean()).item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--batch", type=int, default=250)
    ap.add_argument("--buoys", type=int, default=4)
    ap.add_argument("--procs", type=int, default=2)
    args = ap.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(2)
    workdir = tempfile.mkdtemp(prefix="sst_")
    path = os.path.join(workdir, "encoder.pt")

    x, y = make_series(0)
    model = PatchEncoder()
    train(model, x, y, args.epochs, args.batch)
    torch.save(model.state_dict(), path)
    print(f"reference buoy rmse {baseline(path, x, y):.4f}", flush=True)

    scorer = BuoyScorer(path)
    with mp.Pool(args.procs) as pool:
        results = pool.map(scorer, range(1, args.buoys + 1))
    for buoy, rmse in results:
        print(f"buoy {buoy:02d} rmse {rmse:.4f}")
    print("done")


if __name__ == "__main__":
    main()
