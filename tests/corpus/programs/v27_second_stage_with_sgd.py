import os
import tempfile

import torch
import torch.nn as nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.head = nn.Linear(32, 64)

    def forward(self, images):
        x = torch.relu(self.conv1(images))
        x = torch.relu(self.conv2(x)).mean(dim=(2, 3))
        return self.head(x)


class Config:
    policy = "adam"
    learning_rate = 1e-3
    momentum = 0.9
    weights = None


def build_solver(cfg, encoder):
    params = filter(lambda p: p.requires_grad, encoder.parameters())
    if cfg.policy == "adam":
        return torch.optim.Adam(params, lr=cfg.learning_rate)
    return torch.optim.SGD(params, lr=cfg.learning_rate, momentum=cfg.momentum)


def train_net(cfg, epochs, directory):
    torch.manual_seed(0)
    encoder = Encoder()
    encoder_solver = build_solver(cfg, encoder)
    if cfg.weights is not None:
        checkpoint = torch.load(cfg.weights)
        encoder.load_state_dict(checkpoint["encoder_state_dict"])
        encoder_solver.load_state_dict(checkpoint["encoder_solver_state_dict"])
        print(f"recovered from epoch {checkpoint['epoch_idx']}")
    for epoch in range(epochs):
        for _ in range(4):
            images, volumes = torch.randn(8, 3, 16, 16), torch.randn(8, 64)
            loss = nn.functional.mse_loss(encoder(images), volumes)
            encoder_solver.zero_grad()
            loss.backward()
            encoder_solver.step()
        print(f"[{cfg.policy}] epoch {epoch} loss {loss.item():.4f}")
    path = os.path.join(directory, "ckpt.pth")
    torch.save({"epoch_idx": epochs, "encoder_state_dict": encoder.state_dict(),
                "encoder_solver_state_dict": encoder_solver.state_dict()}, path)
    return path


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        cfg = Config()
        cfg.weights = train_net(cfg, 2, directory)
        cfg.policy, cfg.learning_rate = "sgd", 1e-2
        train_net(cfg, 2, directory)
