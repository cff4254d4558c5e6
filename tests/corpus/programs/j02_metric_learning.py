import threading

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Crops(Dataset):
    """Object crops with an identity; identity -1 is background."""

    def __init__(self, n=512, dim=24):
        g = torch.Generator().manual_seed(5)
        self.x = torch.randn(n, dim, generator=g)
        self.identity = torch.randint(-1, 4, (n,), generator=g)
        self.identity[320:336] = -1

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.identity[i]


class Embedder(nn.Module):
    def __init__(self, dim=24, out=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, out))

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


def spread_loss(emb, identity):
    """Pushes all foreground crops of a batch apart (pairs closer than the margin)."""
    foreground = emb[identity >= 0]
    pair_distances = F.pdist(foreground)
    return F.relu(1.2 - pair_distances).sum()


def center_loss(emb, identity, centers):
    keep = identity >= 0
    return (emb[keep] - centers[identity[keep]]).pow(2).sum()


class Trainer(threading.Thread):
    def __init__(self, loader, epochs=1):
        super().__init__(name="trainer")
        self.loader, self.epochs = loader, epochs
        self.model = Embedder()
        self.centers = nn.Parameter(F.normalize(torch.randn(4, 16), dim=1))
        self.optimizer = torch.optim.SGD([*self.model.parameters(), self.centers], lr=0.01)
        self.history = []

    def run(self):
        for epoch in range(self.epochs):
            for i, (x, identity) in enumerate(self.loader):
                emb = self.model(x)
                loss = spread_loss(emb, identity) + 0.5 * center_loss(emb, identity, self.centers)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.history.append(loss.item())
                print(f"epoch {epoch} batch {i} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    trainer = Trainer(DataLoader(Crops(), batch_size=16))
    trainer.start()
    trainer.join()
    print("mean loss", sum(trainer.history) / len(trainer.history))
