"""Train a forecaster; after every epoch score it on held-out stations with a process pool."""
import argparse
import json
import os
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch
from torch import nn

LAGS = 24


class RunLog:
    """Collects events of a run and streams them to the tracking folder in chunks."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "events.jsonl")
        self.lock = threading.Lock()
        self.pending = []
        self.stream = None

    def event(self, **fields):
        with self.lock:
            self.pending.append(dict(fields, time=time.time(), pid=os.getpid()))

    def _upload(self, begun, chunk=16):
        with self.lock:
            begun.set()
            with open(self.path, "a") as f:
                for k in range(0, len(self.pending), chunk):
                    for e in self.pending[k:k + chunk]:
                        f.write(json.dumps(e) + "\n")
                    f.flush()
                    os.fsync(f.fileno())
                    time.sleep(0.25)
            self.pending.clear()

    def upload(self):
        begun = threading.Event()
        self.stream = threading.Thread(target=self._upload, args=(begun,), daemon=True)
        self.stream.start()
        begun.wait()

    def close(self):
        self.upload()
        self.stream.join()


LOG = None


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(LAGS, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def station_series(station, n=1200):
    rng = np.random.default_rng(station)
    t = np.arange(n)
    s = np.sin(2 * np.pi * t / 24 + station) + 0.3 * np.sin(2 * np.pi * t / 168)
    return (s + 0.1 * rng.standard_normal(n)).astype(np.float32)


def windows(series):
    w = np.lib.stride_tricks.sliding_window_view(series, LAGS + 1)
    return torch.from_numpy(w[:, :-1].copy()), torch.from_numpy(w[:, -1].copy())


def score_station(station, weights):
    torch.set_num_threads(1)
    model = Forecaster()
    model.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
    x, y = windows(station_series(station))
    with torch.no_grad():
        rmse = float((model(x) - y).square().mean().sqrt())
    LOG.event(kind="score", station=station, rmse=rmse)
    return rmse


def evaluate(model, stations, workers):
    weights = {k: v.numpy() for k, v in model.state_dict().items()}
    with ProcessPoolExecutor(max_workers=workers) as pool:
        futures = [pool.submit(score_station, s, weights) for s in stations]
        return float(np.mean([f.result() for f in futures]))


def train_epoch(model, opt, stations):
    for s in stations:
        x, y = windows(station_series(s))
        for xb, yb in zip(x.split(128), y.split(128)):
            loss = nn.functional.mse_loss(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            LOG.event(kind="step", station=s, loss=loss.item())
    return loss.item()


def main():
    global LOG
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    LOG = RunLog(tempfile.mkdtemp(prefix="run_"))
    model = Forecaster()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    print(f"baseline rmse {evaluate(model, range(100, 106), args.workers):.4f}", flush=True)
    for epoch in range(args.epochs):
        loss = train_epoch(model, opt, range(6))
        print(f"epoch {epoch} train loss {loss:.4f}", flush=True)
        LOG.upload()
        rmse = evaluate(model, range(100, 106), args.workers)
        print(f"epoch {epoch} held-out rmse {rmse:.4f}", flush=True)
    LOG.close()
    print("done")


if __name__ == "__main__":
    main()
