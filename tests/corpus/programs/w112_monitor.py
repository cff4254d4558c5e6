"""Fit a regression model while a background thread follows the weights."""
import argparse
import threading
import time

import torch
from torch import nn


class WeightMonitor:
    """Keeps running statistics of the parameters during training."""

    def __init__(self, model):
        self.params = [(n, p) for n, p in model.named_parameters()]
        self.norms = {n: 0.0 for n, _ in self.params}
        self.rounds = 0
        self.thread = threading.Thread(target=self.follow, name="weight-monitor", daemon=True)

    def start(self):
        self.thread.start()

    def follow(self):
        while True:
            for name, param in self.params:
                snapshot = param.detach().clone()
                self.norms[name] = 0.9 * self.norms[name] + 0.1 * snapshot.norm().item()
            self.rounds += 1

    def summary(self):
        return ", ".join(f"{n}={v:.3f}" for n, v in self.norms.items())


class PriceModel(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(features, hidden), nn.Tanh(),
            nn.Linear(hidden, hidden), nn.Tanh(),
            nn.Linear(hidden, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def make_houses(count, features):
    gen = torch.Generator().manual_seed(3)
    x = torch.randn(count, features, generator=gen)
    w = torch.randn(features, generator=gen)
    y = torch.sin(x @ w) + 0.1 * torch.randn(count, generator=gen)
    return x, y


def run_epoch(model, opt, x, y, batch_size):
    order = torch.randperm(len(x))
    total = 0.0
    for start in range(0, len(x), batch_size):
        sel = order[start:start + batch_size]
        loss = nn.functional.mse_loss(model(x[sel]), y[sel])
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(sel)
    return total / len(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--houses", type=int, default=1024)
    parser.add_argument("--features", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--out", default="prices.pt")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    x, y = make_houses(args.houses, args.features)
    model = PriceModel(args.features, args.hidden)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    monitor = WeightMonitor(model)
    monitor.start()

    began = time.time()
    for epoch in range(args.epochs):
        loss = run_epoch(model, opt, x, y, args.batch_size)
        print(f"epoch {epoch} mse {loss:.4f} ({time.time() - began:.1f}s)", flush=True)
    print("weights:", monitor.summary(), flush=True)
    torch.save(model.state_dict(), args.out)
    print("saved", args.out, flush=True)


if __name__ == "__main__":
    main()
