"""Two-tower retrieval: score users against candidate items with compiled towers."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Sessions(Dataset):
    """item ids of a session (padded to 50) and the id of the next item; ids run from 1 to n_items"""

    def __init__(self, n_sessions, n_items, seed):
        g = torch.Generator().manual_seed(seed)
        self.history = torch.randint(1, n_items + 1, (n_sessions, 50), generator=g)
        self.target = torch.randint(1, n_items + 1, (n_sessions,), generator=g)

    def __len__(self):
        return len(self.target)

    def __getitem__(self, idx):
        return self.history[idx], self.target[idx]


class Tower(nn.Module):
    def __init__(self, num_embeddings, dim=64):
        super().__init__()
        self.embedding = nn.Embedding(num_embeddings, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 128), nn.ReLU(), nn.Linear(128, dim))

    def forward(self, ids):
        return self.mlp(self.embedding(ids).mean(dim=1))


class TwoTower(nn.Module):
    def __init__(self, n_items):
        super().__init__()
        self.user = Tower(n_items)
        self.item = Tower(n_items)

    def forward(self, history, target):
        return (self.user(history) * self.item(target[:, None])).sum(dim=1)


def evaluate(model, loader):
    scores = []
    model.eval()
    with torch.no_grad():
        for step, (history, target) in enumerate(loader):
            scores.append(model(history, target))
            if step % 5 == 0:
                print(f"batch {step}: mean score {scores[-1].mean().item():.4f}", flush=True)
    return torch.cat(scores)


if __name__ == "__main__":
    torch.manual_seed(0)
    n_items = 200_000
    data = Sessions(n_sessions=25_600, n_items=n_items, seed=12)
    loader = DataLoader(data, batch_size=512)
    model = torch.compile(TwoTower(n_items))
    scores = evaluate(model, loader)
    print("evaluated", scores.numel(), "sessions")
