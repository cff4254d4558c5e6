import argparse
import os
import tempfile
import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile


def make_series(n, steps, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(steps + 1, dtype=torch.float32)
    phase = torch.rand(n, 1, generator=g) * 6.28
    freq = 0.1 + 0.4 * torch.rand(n, 1, generator=g)
    x = torch.sin(freq * t + phase) + 0.1 * torch.randn(n, steps + 1, generator=g)
    return x[:, :-1].unsqueeze(-1), x[:, -1:]


class Forecaster(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.head(h[:, -1])


class Member(threading.Thread):
    """One member of the deep ensemble, trained on its own bootstrap sample."""

    def __init__(self, index, data, args, outdir):
        super().__init__(name=f"member-{index}")
        self.index, self.data, self.args, self.outdir = index, data, args, outdir
        torch.manual_seed(100 + index)
        self.model = Forecaster(args.hidden)
        self.losses = []

    def train_epoch(self, opt, x, y):
        total = 0.0
        for chunk in torch.randperm(len(x)).split(self.args.batch_size):
            loss = F.mse_loss(self.model(x[chunk]), y[chunk])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(chunk)
        return total / len(x)

    def run(self):
        x, y = self.data
        boot = torch.randint(0, len(x), (len(x),))
        x, y = x[boot], y[boot]
        opt = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        prof = profile(activities=[ProfilerActivity.CPU])
        prof.start()
        for epoch in range(self.args.epochs):
            self.losses.append(self.train_epoch(opt, x, y))
            print(f"{self.name} epoch {epoch} mse {self.losses[-1]:.4f}", flush=True)
        prof.stop()
        report = prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=15)
        with open(os.path.join(self.outdir, f"{self.name}.txt"), "w") as f:
            f.write(report)
        print(f"{self.name} profile written", flush=True)


@torch.no_grad()
def ensemble_rmse(members, x, y):
    preds = torch.stack([m.model(x) for m in members])
    return F.mse_loss(preds.mean(0), y).sqrt().item(), preds.std(0).mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--members", type=int, default=2)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--hidden", type=int, default=32)
    p.add_argument("--batch-size", type=int, default=64)
    args = p.parse_args()

    train = make_series(1024, 32, seed=1)
    test = make_series(256, 32, seed=2)
    with tempfile.TemporaryDirectory(prefix="ensemble_") as outdir:
        members = [Member(i, train, args, outdir) for i in range(args.members)]
        for m in members:
            m.start()
            time.sleep(0.5)
        for m in members:
            m.join()
        rmse, spread = ensemble_rmse(members, *test)
        print(f"ensemble of {len(members)}: rmse {rmse:.4f}, spread {spread:.4f}", flush=True)


if __name__ == "__main__":
    main()
