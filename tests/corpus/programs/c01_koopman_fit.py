"""Fit a linear latent dynamics model and log its spectral radius."""
import argparse

import torch
import torch.nn as nn


class KoopmanAutoencoder(nn.Module):
    def __init__(self, n_obs=8, n_latent=24):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(n_obs, 48), nn.ReLU(), nn.Linear(48, n_latent))
        self.decoder = nn.Sequential(nn.Linear(n_latent, 48), nn.ReLU(), nn.Linear(48, n_obs))
        self.K = nn.Parameter(torch.eye(n_latent) + 0.05 * torch.randn(n_latent, n_latent))

    def forward(self, x, steps):
        z = self.encoder(x)
        preds = []
        for _ in range(steps):
            z = z @ self.K.T
            preds.append(self.decoder(z))
        return torch.stack(preds, dim=1)

    @torch.no_grad()
    def spectral_radius(self):
        return torch.linalg.eigvals(self.K).abs().max().item()


def make_trajectories(n=512, steps=12, n_obs=8):
    t = torch.linspace(0, 4, steps + 1)
    phase = torch.rand(n, 1, n_obs) * 6.28
    freq = torch.rand(n, 1, n_obs) + 0.5
    return torch.sin(freq * t[None, :, None] + phase) * 5.0


def train(args):
    torch.manual_seed(args.seed)
    data = make_trajectories()
    model = KoopmanAutoencoder()
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    for epoch in range(args.epochs):
        total = 0.0
        for batch in data.split(64):
            pred = model(batch[:, 0], steps=batch.size(1) - 1)
            loss = nn.functional.mse_loss(pred, batch[:, 1:])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        rho = model.spectral_radius()
        print(f"epoch {epoch:3d}  loss {total / 8:.4f}  rho(K) {rho:.4f}", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--epochs", type=int, default=20)
    p.add_argument("--seed", type=int, default=0)
    train(p.parse_args())
