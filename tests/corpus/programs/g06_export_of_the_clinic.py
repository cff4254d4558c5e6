import csv
import io

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


def read_patients(count=200):
    """The export of the clinic: age, sex, pressure, glucose, outcome."""
    rng = np.random.default_rng(3)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["age", "sex", "pressure", "glucose", "outcome"])
    for _ in range(count):
        writer.writerow(
            [rng.integers(20, 90), rng.choice(["F", "M"]), rng.integers(90, 180), rng.integers(4, 9), rng.integers(2)]
        )
    text.seek(0)
    return list(csv.DictReader(text))


def number(value):
    try:
        return float(value)
    except ValueError:
        return value


class TabularDataset(Dataset):
    def __init__(self, rows, target="outcome"):
        columns = [name for name in rows[0] if name != target]
        self.features = np.array([[number(row[name]) for name in columns] for row in rows], dtype=object)
        self.labels = np.array([int(row[target]) for row in rows])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        return {
            "features": torch.tensor(self.features[idx]).float(),
            "label": torch.tensor(self.labels[idx]),
        }


def main():
    torch.manual_seed(0)
    loader = DataLoader(TabularDataset(read_patients()), batch_size=16, shuffle=True, num_workers=1)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["features"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
