"""Baseline fit, then evaluation of its forecasts on several stations in parallel."""
import argparse
import multiprocessing as mp
import time

import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self, history, hidden, horizon):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(history, hidden), nn.Tanh(),
            nn.Linear(hidden, hidden), nn.Tanh())
        self.decoder = nn.Linear(hidden, horizon)

    def forward(self, x):
        return self.decoder(self.encoder(x))


def station_series(station, length):
    t = torch.arange(length, dtype=torch.float32)
    daily = torch.sin(2 * torch.pi * (t + 3 * station) / 24)
    weekly = 0.5 * torch.cos(2 * torch.pi * t / 168 + station)
    gen = torch.Generator().manual_seed(100 + station)
    return daily + weekly + 0.1 * torch.randn(length, generator=gen)


def make_windows(series, history, horizon):
    frames = series.unfold(0, history + horizon, 1)
    return frames[:, :history].contiguous(), frames[:, history:].contiguous()


def standardise(x):
    mean = x.mean()
    scale = x.std()
    return (x - mean) / scale, mean, scale


def fit(model, args):
    x, y = make_windows(station_series(0, args.length), args.history, args.horizon)
    x, mean, scale = standardise(x)
    y = (y - mean) / scale
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        order = torch.randperm(len(x))
        for chunk in order.split(512):
            loss = nn.functional.mse_loss(model(x[chunk]), y[chunk])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} mse {loss.item():.4f}", flush=True)


class StationEvaluator:
    def __init__(self, model, args):
        self.state = {k: v.numpy() for k, v in model.state_dict().items()}
        self.args = args

    def __call__(self, station):
        args = self.args
        model = Forecaster(args.history, args.hidden, args.horizon)
        model.load_state_dict({k: torch.from_numpy(v) for k, v in self.state.items()})
        x, y = make_windows(station_series(station, args.length), args.history, args.horizon)
        x, mean, scale = standardise(x)
        with torch.no_grad():
            prediction = model(x) * scale + mean
        error = (prediction - y).abs().mean().item()
        return station, error


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stations", type=int, default=6)
    parser.add_argument("--length", type=int, default=6000)
    parser.add_argument("--history", type=int, default=168)
    parser.add_argument("--horizon", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)

    model = Forecaster(args.history, args.hidden, args.horizon)
    fit(model, args)

    started = time.time()
    stations = list(range(1, args.stations + 1))
    with mp.Pool(args.processes) as pool:
        for station, error in pool.imap(StationEvaluator(model, args), stations):
            print(f"station {station}: mean absolute error {error:.4f}", flush=True)
    print(f"{len(stations)} stations evaluated in {time.time() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
