import os
import shutil
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)

    def forward(self, x):
        return F.relu(self.conv2(F.relu(self.conv1(x))))


class ParsingNet(nn.Module):
    def __init__(self, cls_dim=(11, 6, 2)):
        super().__init__()
        self.cls_dim = cls_dim
        self.model = Backbone()
        self.pool = nn.Conv2d(16, 4, 1)
        self.cls = nn.Sequential(nn.Linear(4 * 8 * 16, 64), nn.ReLU(), nn.Linear(64, 11 * 6 * 2))

    def forward(self, x):
        features = self.pool(self.model(x)).flatten(1)
        return self.cls(features).view(-1, *self.cls_dim)


def get_net(checkpoint):
    net = ParsingNet()
    state_all = torch.load(checkpoint)["model"]
    state_clip = {k: v for k, v in state_all.items() if "model" in k}
    net.load_state_dict(state_clip, strict=False)
    for param in net.parameters():
        param.requires_grad = False
    return net


def train(checkpoint, epochs=2):
    net = get_net(checkpoint)
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-4, weight_decay=1e-4)
    for epoch in range(epochs):
        for step in range(5):
            images = torch.randn(4, 3, 32, 64)
            labels = torch.randint(0, 11, (4, 6, 2))
            outputs = net(images)
            loss = F.cross_entropy(outputs, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    try:
        path = os.path.join(folder, "culane_18.pth")
        torch.save({"model": ParsingNet().state_dict()}, path)
        train(path)
    finally:
        shutil.rmtree(folder)
