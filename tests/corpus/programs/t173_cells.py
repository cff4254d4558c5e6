"""Train a small variational autoencoder on single-cell counts."""
import argparse
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Subset, TensorDataset


def simulate_counts(n_cells, n_genes, n_types, seed):
    rng = np.random.default_rng(seed)
    profiles = rng.gamma(0.6, 2.0, size=(n_types, n_genes))
    kinds = rng.integers(0, n_types, size=n_cells)
    depth = rng.lognormal(0.0, 0.3, size=(n_cells, 1))
    return rng.poisson(profiles[kinds] * depth).astype(np.float32), kinds


def filter_cells(counts, kinds, min_genes, min_counts):
    keep = ((counts > 0).sum(1) >= min_genes) & (counts.sum(1) >= min_counts)
    return counts[keep], kinds[keep]


def fc_block(n_in, n_out, dropout):
    return nn.Sequential(nn.Linear(n_in, n_out), nn.BatchNorm1d(n_out, momentum=0.01, eps=0.001),
                         nn.ReLU(), nn.Dropout(dropout))


class Encoder(nn.Module):
    def __init__(self, n_genes, n_hidden, n_latent):
        super().__init__()
        self.layers = fc_block(n_genes, n_hidden, 0.1)
        self.mean = nn.Linear(n_hidden, n_latent)
        self.logvar = nn.Linear(n_hidden, n_latent)

    def forward(self, x):
        h = self.layers(torch.log1p(x))
        return self.mean(h), self.logvar(h).clamp(-8, 8)


class CellVAE(nn.Module):
    def __init__(self, n_genes, n_hidden=128, n_latent=10):
        super().__init__()
        self.encoder = Encoder(n_genes, n_hidden, n_latent)
        self.decoder = fc_block(n_latent, n_hidden, 0.0)
        self.rate = nn.Linear(n_hidden, n_genes)

    def forward(self, x):
        mean, logvar = self.encoder(x)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        log_rate = self.rate(self.decoder(z)).log_softmax(-1) + x.sum(1, keepdim=True).log()
        recon = F.poisson_nll_loss(log_rate, x, log_input=True, reduction="none").sum(1)
        kl = 0.5 * (mean.pow(2) + logvar.exp() - 1 - logvar).sum(1)
        return recon, kl


class TrainingPlan:
    def __init__(self, model, lr, warmup):
        self.model, self.warmup = model, warmup
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr, eps=0.01, weight_decay=1e-6)

    def training_step(self, batch, epoch):
        recon, kl = self.model(batch)
        loss = (recon + min(1.0, (epoch + 1) / self.warmup) * kl).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item() * batch.size(0)

    @torch.no_grad()
    def validate(self, loader):
        self.model.eval()
        total, n = 0.0, 0
        for (batch,) in loader:
            recon, kl = self.model(batch)
            total += (recon + kl).sum().item()
            n += batch.size(0)
        self.model.train()
        return total / n


def split(n_cells, train_size, seed):
    order = np.random.RandomState(seed).permutation(n_cells)
    n_train = math.ceil(train_size * n_cells)
    return order[:n_train].tolist(), order[n_train:].tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--train-size", type=float, default=0.9)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    pilot, _ = filter_cells(*simulate_counts(600, 400, 5, seed=21), min_genes=60, min_counts=150)
    counts, kinds = filter_cells(*simulate_counts(1281, 400, 5, seed=4), min_genes=60, min_counts=150)
    model = CellVAE(counts.shape[1])
    plan = TrainingPlan(model, lr=1e-3, warmup=5)
    for name, matrix in (("pilot", pilot), ("donor A", counts)):
        dataset = TensorDataset(torch.from_numpy(matrix))
        train_idx, val_idx = split(len(dataset), args.train_size, seed=0)
        train_loader = DataLoader(Subset(dataset, train_idx), batch_size=args.batch_size, shuffle=True)
        val_loader = DataLoader(Subset(dataset, val_idx), batch_size=args.batch_size)
        print(f"{name}: {len(dataset)} cells, {len(train_idx)} for training", flush=True)
        start = time.time()
        for epoch in range(args.max_epochs):
            total = 0.0
            for (batch,) in train_loader:
                total += plan.training_step(batch, epoch)
            print(f"  epoch {epoch + 1}/{args.max_epochs} elbo_train {total / len(train_idx):.2f} "
                  f"elbo_val {plan.validate(val_loader):.2f} {time.time() - start:.1f}s", flush=True)
    with torch.no_grad():
        model.eval()
        latent = model.encoder(torch.from_numpy(counts))[0]
    print("latent", tuple(latent.shape), "cell types", int(kinds.max()) + 1)


if __name__ == "__main__":
    main()
