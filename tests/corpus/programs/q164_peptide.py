"""Inverse folding: predict the amino-acid sequence of a backbone from its local geometry."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

N_AMINO, N_GEOMETRY = 20, 12


class Backbones(Dataset):
    def __init__(self, n, length, seed):
        g = torch.Generator().manual_seed(seed)
        centres = torch.randn(N_AMINO, N_GEOMETRY, generator=torch.Generator().manual_seed(99))
        self.sequence = torch.randint(0, N_AMINO, (n, length), generator=g)
        self.geometry = centres[self.sequence] + 0.5 * torch.randn(n, length, N_GEOMETRY, generator=g)

    def __len__(self):
        return len(self.sequence)

    def __getitem__(self, i):
        return self.geometry[i], self.sequence[i]


class FoldNet(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.encoder = nn.Conv1d(N_GEOMETRY, hidden, 5, padding=2)
        self.mixer = nn.Conv1d(hidden, hidden, 3, padding=1)
        self.decoder = nn.Linear(hidden, N_AMINO)

    def forward(self, geometry):
        h = F.relu(self.encoder(geometry.transpose(1, 2)))
        h = h + F.relu(self.mixer(h))
        return self.decoder(h.transpose(1, 2))


class Method:
    def __init__(self, args, steps_per_epoch):
        self.model = FoldNet(args.hidden)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=args.lr, steps_per_epoch=steps_per_epoch, epochs=args.epochs
        )

    def train_one_epoch(self, loader):
        self.model.train()
        total, weight = 0.0, 0
        for geometry, sequence in loader:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(geometry).flatten(0, 1), sequence.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            total += loss.item() * sequence.numel()
            weight += sequence.numel()
        return total / weight

    @torch.no_grad()
    def recovery(self, loader):
        self.model.eval()
        hits = [(self.model(g).argmax(-1) == s).float().mean() for g, s in loader]
        return torch.stack(hits).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--proteins", type=int, default=320)
    parser.add_argument("--length", type=int, default=40)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-2)
    args = parser.parse_args()
    torch.manual_seed(6)
    torch.set_num_threads(1)
    train_loader = DataLoader(Backbones(args.proteins, args.length, 1), args.batch_size, shuffle=True)
    valid_loader = DataLoader(Backbones(64, args.length, 2), 16)
    method = Method(args, steps_per_epoch=40)
    for epoch in range(args.epochs):
        loss = method.train_one_epoch(train_loader)
        lr = method.scheduler.get_last_lr()[0]
        print(f"epoch {epoch}: loss {loss:.4f} lr {lr:.2e} recovery {method.recovery(valid_loader):.3f}", flush=True)
        torch.save(method.model.state_dict(), "peptide.pt")


if __name__ == "__main__":
    main()
