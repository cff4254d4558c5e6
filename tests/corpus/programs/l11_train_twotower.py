import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

N_ITEMS, DIM, WEEKS = 500, 16, 12


class BasketDataset(Dataset):
    """Baskets in order of time: the target is the amount that is bought in the following week."""

    def __init__(self, n=1184, seed=7):
        rng = np.random.default_rng(seed)
        week = np.sort(rng.integers(0, WEEKS, n))
        self.baskets = [rng.integers(0, N_ITEMS, rng.integers(1, 9)) for _ in range(n)]
        self.target = rng.normal(3.0, 1.0, n).astype(np.float32)
        self.target[week == WEEKS - 1] = np.nan      # next week is not there yet
        self.season = np.stack([np.sin(week / 2), np.cos(week / 2)], 1).astype(np.float32)

    def __len__(self):
        return len(self.baskets)

    def __getitem__(self, i):
        return self.baskets[i], self.season[i], self.target[i]


def collate(rows):
    items = torch.from_numpy(np.concatenate([r[0] for r in rows])).long()
    lengths = torch.tensor([len(r[0]) for r in rows])
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
    season = torch.from_numpy(np.stack([r[1] for r in rows]))
    target = torch.tensor([float(r[2]) for r in rows])
    labeled = ~torch.isnan(target)
    return items, offsets[labeled], season[labeled], target[labeled]


class SpendModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.EmbeddingBag(N_ITEMS, DIM, mode="mean")
        self.head = nn.Sequential(nn.Linear(DIM + 2, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, items, offsets, season):
        basket = self.items(items, offsets)
        return self.head(torch.cat([basket, season], 1)).squeeze(1)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(BasketDataset(), batch_size=32, collate_fn=collate, num_workers=2)
    model = SpendModel()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        for step, (items, offsets, season, target) in enumerate(loader):
            loss = nn.functional.huber_loss(model(items, offsets, season), target, reduction="sum")
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step}/{len(loader)} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
