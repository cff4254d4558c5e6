"""Deep CCA autoencoder on two views (left / right half of the same image)."""
import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, random_split


class TwoViewImages(Dataset):
    def __init__(self, n=1200, dim=196, classes=10, seed=7):
        g = torch.Generator().manual_seed(seed)
        protos = 255 * torch.rand(classes, 2 * dim, generator=g)
        labels = torch.randint(0, classes, (n,), generator=g)
        views = (protos[labels] + 40 * torch.randn(n, 2 * dim, generator=g)).clamp(0, 255)
        self.view1, self.view2 = views[:, :dim].clone(), views[:, dim:].clone()

    def __len__(self):
        return len(self.view1)

    def __getitem__(self, i):
        return self.view1[i], self.view2[i]


def mlp(sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def cross_correlation(z1, z2, r):
    n, k = z1.shape
    z1, z2 = z1 - z1.mean(0), z2 - z2.mean(0)
    eye = r * torch.eye(k)
    s11, s22 = z1.T @ z1 / (n - 1) + eye, z2.T @ z2 / (n - 1) + eye
    s12 = z1.T @ z2 / (n - 1)
    return torch.linalg.solve(s11, s12) @ torch.linalg.solve(s22, s12.T)


class DCCAE(nn.Module):
    def __init__(self, in_dim, latent_dims, lam=0.5, r=1e-3):
        super().__init__()
        self.encoders = nn.ModuleList([mlp([in_dim, 128, latent_dims]) for _ in range(2)])
        self.decoders = nn.ModuleList([mlp([latent_dims, 128, in_dim]) for _ in range(2)])
        self.lam, self.r = lam, r

    def forward(self, views):
        latents = [enc(v) for enc, v in zip(self.encoders, views)]
        recons = [dec(z) for dec, z in zip(self.decoders, latents)]
        return latents, recons

    def loss(self, views):
        latents, recons = self(views)
        recon = sum(nn.functional.mse_loss(r, v) for r, v in zip(recons, views))
        corr = cross_correlation(*latents, self.r).trace()
        return self.lam * recon - (1 - self.lam) * corr

    @torch.no_grad()
    def score(self, views):
        latents, _ = self(views)
        rho2 = torch.linalg.eigvals(cross_correlation(*latents, self.r)).real
        return rho2.clamp(0, 1).sqrt().sort(descending=True).values


def train_epoch(model, loader, optimizer):
    total = 0.0
    for views in loader:
        optimizer.zero_grad()
        loss = model.loss(views)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--latent-dims", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(0)
    train_set, val_set = random_split(TwoViewImages(), [1000, 200])
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, args.batch_size)
    model = DCCAE(196, args.latent_dims)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    print(f"total parameters: {sum(p.numel() for p in model.parameters())}")
    for epoch in range(1, args.epochs + 1):
        train_loss = train_epoch(model, train_loader, optimizer)
        print(f"====> Epoch: {epoch} Average train loss: {train_loss:.4f}", flush=True)
        correlations = torch.stack([model.score(views) for views in val_loader]).mean(0)
        print(f"====> Epoch: {epoch} val correlations: {correlations[:5].tolist()}", flush=True)


if __name__ == "__main__":
    main()
