"""Event camera: predict the event count of short windows cut from sparse recordings."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


def slice_sparse(events, rows, ticks):
    """events[rows, ticks] of a coalesced COO tensor, as a COO tensor."""
    idx, val = events.indices(), events.values()
    keep = (idx[0] >= rows.start) & (idx[0] < rows.stop)
    keep &= idx[1] < ticks.stop
    shift = torch.tensor([[rows.start], [ticks.start]])
    shape = (rows.stop - rows.start, ticks.stop - ticks.start)
    return torch.sparse_coo_tensor(idx[:, keep] - shift, val[keep], shape, check_invariants=False)


class EventWindows(Dataset):
    def __init__(self, recordings=4, rows=512, ticks=200_000_000, events=40000, size=64, windows=48):
        self.rows, self.ticks, self.size, self.windows = rows, ticks, size, windows
        self.warmup = ticks // 2
        self.recordings = [self.record(s, events) for s in range(recordings)]

    def record(self, seed, events):
        g = torch.Generator().manual_seed(seed)
        idx = torch.stack([torch.randint(0, self.rows, (events,), generator=g),
                           torch.randint(0, self.ticks, (events,), generator=g)])
        return torch.sparse_coo_tensor(idx, torch.ones(events), (self.rows, self.ticks),
                                       check_invariants=True).coalesce()

    def __len__(self):
        return self.windows

    def __getitem__(self, i):
        events = self.recordings[i % len(self.recordings)]
        row = self.size * (i % (self.rows // self.size))
        tick = self.warmup + i * ((self.ticks - self.warmup) // self.windows)
        window = slice_sparse(events, slice(row, row + self.size), slice(tick, tick + self.size))
        dense = window.to_dense()
        return dense.unsqueeze(0), dense.sum()


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
                                 nn.Flatten(), nn.Linear(128, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def main():
    torch.manual_seed(0)
    model = Counter()
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(EventWindows(), batch_size=4, num_workers=1)
    for step, (windows, counts) in enumerate(loader):
        loss = nn.functional.smooth_l1_loss(model(windows), counts)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
