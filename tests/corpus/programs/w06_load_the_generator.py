import os
import tempfile

import torch
from torch import nn


class MattingBase(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(6, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.decoder = nn.ConvTranspose2d(16, 4, 2, stride=2)

    def forward(self, source, background):
        out = self.decoder(self.encoder(torch.cat([source, background], 1)))
        return torch.sigmoid(out[:, :1]), out[:, 1:]


def train(path, epochs):
    model = MattingBase()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        source, background = torch.rand(2, 3, 64, 64), torch.rand(2, 3, 64, 64)
        alpha, foreground = model(source, background)
        loss = alpha.mean() + (foreground - source).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    torch.save(model.state_dict(), path)


def matte(path):
    model = torch.jit.load(path)
    model.eval()
    with torch.no_grad():
        alpha, foreground = model(torch.rand(1, 3, 64, 64), torch.rand(1, 3, 64, 64))
    print(f"coverage {alpha.mean().item():.3f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        weights = os.path.join(folder, "pytorch_resnet101.pth")
        train(weights, 3)
        matte(weights)
