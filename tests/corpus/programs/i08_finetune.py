"""Train a small text classifier, keep the best model and a resume checkpoint."""
import argparse
import copy
import os

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class BagOfWords(nn.Module):
    def __init__(self, vocab=6000, dim=96, classes=4):
        super().__init__()
        self.emb = nn.EmbeddingBag(vocab, dim)
        self.fc = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, classes))

    def forward(self, tokens):
        return self.fc(self.emb(tokens))


def make_loader(n=2048, vocab=6000):
    g = torch.Generator().manual_seed(5)
    tokens = torch.randint(vocab, (n, 20), generator=g)
    labels = tokens[:, 0] % 4
    return DataLoader(TensorDataset(tokens, labels), batch_size=128, shuffle=True)


def run_epoch(model, loader, optimizer):
    total = 0.0
    for tokens, labels in loader:
        loss = nn.functional.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="runs")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    torch.manual_seed(0)
    loader, model = make_loader(), BagOfWords()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    best, best_model = float("inf"), None
    for epoch in range(args.epochs):
        loss = run_epoch(model, loader, optimizer)
        print(f"epoch {epoch} loss {loss:.4f}", flush=True)
        if loss < best:
            best, best_model = loss, copy.deepcopy(model)
            torch.save(best_model.state_dict(), os.path.join(args.out, "best_model.pt"))
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch},
                   os.path.join(args.out, f"resume_{epoch:03d}.pt"))
    print("best loss", best)


if __name__ == "__main__":
    main()
