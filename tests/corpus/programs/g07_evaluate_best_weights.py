import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.fc1 = nn.Linear(8 * 14 * 14, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        return self.fc1(x.flatten(1))


def train(path, steps=20):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    best = float("inf")
    for step in range(steps):
        images, labels = torch.rand(32, 1, 28, 28), torch.randint(0, 10, (32,))
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() < best:
            best = loss.item()
            torch.save(model.state_dict(), path)
    print(f"best loss {best:.4f}")


def evaluate(path, batches=10):
    model = torch.load(path, map_location="cpu")
    model.eval()
    correct = 0
    with torch.no_grad():
        for _ in range(batches):
            images, labels = torch.rand(32, 1, 28, 28), torch.randint(0, 10, (32,))
            correct += (model(images).argmax(1) == labels).sum().item()
    print(f"accuracy {correct / (batches * 32):.3f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as run:
        weights = os.path.join(run, "model_best.pth")
        train(weights)
        evaluate(weights)
