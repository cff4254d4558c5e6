"""One record of a table of reviews has no text."""

import json

import torch
from torch.utils.data import DataLoader, Dataset

RECORDS = [json.dumps({"text": f"this film has {n} scenes", "label": n % 2}) for n in range(24)]
RECORDS[17] = '{"text": null, "label": 1}'


class Reviews(Dataset):
    def __init__(self, lines, words):
        self.records = [json.loads(line) for line in lines]
        self.words = words

    def __len__(self):
        return len(self.records)

    def encode(self, text):
        tokens = text.lower().split()
        return torch.tensor([self.words.get(token, 0) for token in tokens[:5]])

    def __getitem__(self, number):
        record = self.records[number]
        return self.encode(record["text"]), record["label"]


def train(loader):
    for tokens, labels in loader:
        print(tokens.shape, labels.sum())


if __name__ == "__main__":
    train(DataLoader(Reviews(RECORDS, {"film": 1, "scenes": 2}), batch_size=4, num_workers=2))
