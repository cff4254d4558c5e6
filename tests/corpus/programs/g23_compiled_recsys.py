import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

N_ITEMS = 5000


class SessionLog(Dataset):
    """Click sessions; the last day also contains items that went on sale later."""

    def __init__(self, n_sessions=2048, length=24, seed=0, late_items=0):
        rng = np.random.default_rng(seed)
        self.items = rng.integers(0, N_ITEMS, size=(n_sessions, length))
        self.target = rng.integers(0, 2, size=n_sessions).astype(np.float32)
        if late_items:
            rows = rng.choice(n_sessions // 2, size=late_items, replace=False) + n_sessions // 2
            self.items[rows, rng.integers(0, length, size=late_items)] += N_ITEMS

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return torch.from_numpy(self.items[i]), self.target[i]


class SessionModel(nn.Module):
    def __init__(self, n_items, dim=64):
        super().__init__()
        self.item_emb = nn.Embedding(n_items, dim)
        self.pos_weight = nn.Parameter(torch.ones(24, 1) / 24)
        self.head = nn.Linear(dim, 1)

    def forward(self, items):
        h = torch.tanh(self.item_emb(items)) * self.pos_weight
        return self.head(h.sum(dim=1)).squeeze(-1)


def train_one_day(model, opt, loader, day):
    total = 0.0
    for items, target in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(items), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    print(f"day {day}: loss {total / len(loader):.4f}", flush=True)


def main():
    torch.manual_seed(0)
    model = SessionModel(N_ITEMS)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    compiled = torch.compile(model)
    days = [SessionLog(seed=0), SessionLog(seed=1), SessionLog(seed=2, late_items=5)]
    for day, log in enumerate(days):
        try:
            train_one_day(compiled, opt, DataLoader(log, batch_size=128), day)
        except (IndexError, RuntimeError) as err:
            print(f"day {day} skipped: {err}", flush=True)
    torch.save(model.state_dict(), "/tmp/session_model.pt")
    print("saved", flush=True)


if __name__ == "__main__":
    main()
