import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, random_split


class MicrobiomeCorpus(Dataset):
    """Abundances of the genera in each sample, as tokens in descending order."""

    def __init__(self, samples=385, genera=120, length=24):
        generator = torch.Generator().manual_seed(7)
        self.tokens = torch.stack([torch.randperm(genera, generator=generator)[:length] for _ in range(samples)])
        self.host = torch.randint(0, 4, (samples,), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, idx):
        return self.tokens[idx], self.host[idx]


class Classifier(nn.Module):
    def __init__(self, genera=120, dim=32, hosts=4):
        super().__init__()
        self.embed = nn.EmbeddingBag(genera, dim)
        self.head = nn.Linear(dim, hosts)

    def forward(self, tokens):
        return self.head(self.embed(tokens))


def train(cfg):
    corpus = MicrobiomeCorpus()
    train_set, val_set = random_split(
        corpus, [int(len(corpus) * (1 - cfg.val_split)), int(len(corpus) * cfg.val_split)]
    )
    loader = DataLoader(train_set, batch_size=cfg.batch_size, shuffle=True)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(cfg.epochs):
        for tokens, host in loader:
            loss = nn.functional.cross_entropy(model(tokens), host)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.3f} (validation: {len(val_set)} samples)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--val-split", type=float, default=0.1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    train(parser.parse_args())
