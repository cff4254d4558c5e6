import resource

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 64, 3, padding=1)
        self.conv2 = nn.Conv2d(64, 64, 3, padding=1)
        self.fc = nn.Linear(64 * 7 * 7, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc(x.flatten(1))


def load_digits(train=256, test=10000):
    x = torch.rand(train + test, 1, 28, 28)
    y = torch.randint(0, 10, (train + test,))
    return x[:train], y[:train], x[train:], y[train:]


def train(model, loader, optimizer):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


def test(model, x_test, y_test):
    model.eval()
    output = model(x_test)
    loss = F.cross_entropy(output, y_test).item()
    accuracy = (output.argmax(1) == y_test).float().mean().item()
    return loss, accuracy


def main(epochs=3):
    torch.manual_seed(0)
    x_train, y_train, x_test, y_test = load_digits()
    loader = DataLoader(TensorDataset(x_train, y_train), batch_size=64, shuffle=True)
    model = ConvNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        print(f"epoch {epoch} train loss {train(model, loader, optimizer):.4f}", flush=True)
        loss, accuracy = test(model, x_test, y_test)
        print(f"epoch {epoch} test loss {loss:.4f} accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (2500 * 2**20, 2500 * 2**20))
    main()
