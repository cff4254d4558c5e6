"""Sentiment of reviews: they are cut to a length, and put together by the DataLoader's workers."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TEXTS = [("word " * (12 + n % 3 if n == 41 else 40)).strip() for n in range(64)]


class Tokenizer:
    def __init__(self, length):
        self.length = length

    def encode(self, text):
        ids = [len(word) for word in text.split()]
        return ids[: self.length]


class Reviews(Dataset):
    def __init__(self, texts, tokenizer):
        self.texts, self.tokenizer = texts, tokenizer

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        ids = self.tokenizer.encode(self.texts[index])
        return {"ids": torch.tensor(ids), "label": index % 2}


def train(epochs):
    data = Reviews(TEXTS, Tokenizer(32))
    loader = DataLoader(data, batch_size=8, num_workers=2)
    model = nn.EmbeddingBag(100, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["ids"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    train(2)
