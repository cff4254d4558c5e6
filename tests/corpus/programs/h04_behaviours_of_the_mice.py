import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

BEHAVIOURS = ["background", "groom", "dig", "scratch", "lick"]


class SequenceDataset(Dataset):
    def __init__(self, videos=24, frames=60):
        generator = torch.Generator().manual_seed(0)
        self.features = torch.randn(videos, 128, frames, generator=generator)
        self.labels = torch.randint(0, len(BEHAVIOURS), (videos, frames), generator=generator)

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        labels = F.one_hot(self.labels[index], len(BEHAVIOURS))
        return {"features": self.features[index], "labels": labels.permute(1, 0)}


class SequenceModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(128, 32, 5, padding=2), nn.ReLU(),
            nn.Conv1d(32, len(BEHAVIOURS), 5, padding=2))

    def forward(self, features):
        return self.net(features)


class ClassificationLoss(nn.Module):
    def __init__(self, weight=None):
        super().__init__()
        self.ce = nn.CrossEntropyLoss(weight=weight)

    def forward(self, outputs, labels):
        return self.ce(outputs, labels)


def train(epochs=2):
    torch.manual_seed(0)
    loader = DataLoader(SequenceDataset(), batch_size=8, shuffle=True)
    model = SequenceModel()
    criterion = ClassificationLoss(weight=torch.tensor([0.2, 1.0, 1.0, 1.0, 1.0]))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for epoch in range(epochs):
        for batch in loader:
            outputs = model(batch["features"])
            loss = criterion(outputs, batch["labels"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    train()
