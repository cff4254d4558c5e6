import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(0)


class Embedder(nn.Module):
    def __init__(self, dim=40, out=16):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(dim, 64), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(64, out), nn.BatchNorm1d(out), nn.ReLU(), nn.Linear(out, 3))

    def forward(self, x):
        return self.head(self.body(x))


def loaders(n=1067, batch=32):
    x = torch.randn(n, 40)
    data = TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())
    held = n // 10
    train, val = random_split(data, [n - held, held])
    return DataLoader(train, batch_size=batch, shuffle=True), DataLoader(val, batch_size=batch)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    return sum((model(x).argmax(1) == y).sum().item() for x, y in loader) / len(loader.dataset)


def fit(model, epochs):
    train, val = loaders()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(epochs):
        model.train()
        for x, y in train:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print("epoch", epoch, "accuracy", round(accuracy(model, val), 3), flush=True)


fit(Embedder(), 3)
