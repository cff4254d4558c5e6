# a sample without a label: KeyError in a DataLoader worker
import torch
from torch.utils.data import DataLoader, Dataset


class Reviews(Dataset):
    labels = {"good": 1, "bad": 0}

    def __init__(self):
        self.rows = [{"text": [i, i + 1], "label": "good" if i % 2 else "bad"} for i in range(40)]
        self.rows[23]["label"] = "goood"

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return torch.tensor(row["text"]), self.labels[row["label"]]


def train():
    for text, label in DataLoader(Reviews(), batch_size=4, num_workers=2):
        (text.float().sum() * label.sum()).item()


if __name__ == "__main__":
    train()
