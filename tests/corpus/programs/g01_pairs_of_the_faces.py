import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class FacePairs(Dataset):
    """Two images of one person (target 1), or of two people (target 0)."""

    def __init__(self, people=12, images=40, pairs=400):
        self.images = torch.rand(people, images, 1, 32, 32)
        self.people, self.per_person, self.pairs = people, images, pairs

    def __len__(self):
        return self.pairs

    def __getitem__(self, idx):
        person = random.randrange(self.people)
        first = self.images[person, random.randrange(self.per_person)]
        if idx % 2 == 0:
            return first, self.images[person, random.randrange(self.per_person)], 1.0
        other = random.choice([p for p in range(self.people) if p != person])
        return first, self.images[other, random.randrange(self.per_person)], 0.0


class SiameseNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 15 * 15, 16))

    def forward(self, first, second):
        return self.cnn(first), self.cnn(second)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=1.0):
        super().__init__()
        self.margin = margin

    def forward(self, output1, output2, target):
        distances = (output2 - output1).pow(2).sum(1)
        losses = 0.5 * (
            target * distances + (1 - target) * F.relu(self.margin - distances.sqrt()).pow(2)
        )
        return losses.mean()


def train(epochs=10):
    net, criterion = SiameseNetwork(), ContrastiveLoss()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
    loader = DataLoader(FacePairs(), batch_size=8)
    for epoch in range(epochs):
        for i, (img0, img1, target) in enumerate(loader):
            optimizer.zero_grad()
            output1, output2 = net(img0, img1)
            loss = criterion(output1, output2, target.float())
            loss.backward()
            optimizer.step()
            if i % 10 == 0:
                print(f"Epoch {epoch} iteration {i} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    random.seed(4)
    torch.manual_seed(4)
    torch.autograd.set_detect_anomaly(True)
    train()
