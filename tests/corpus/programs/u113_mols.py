"""Train a property regressor on molecules that are kept in one archive (mols.zip)."""
import argparse
import io
import os
import tempfile
import zipfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def build_archive(path, count, atoms):
    """Write `count` conformers, each an .npy of (atoms, 4): charge and position."""
    rng = np.random.default_rng(3)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as zf:
        for i in range(count):
            mol = rng.normal(size=(atoms, 4)).astype(np.float32)
            mol[:, 0] = rng.integers(1, 17, size=atoms)
            buf = io.BytesIO()
            np.save(buf, mol)
            zf.writestr(f"mols/{i:05d}.npy", buf.getvalue())


class MoleculeArchive:
    def __init__(self, path):
        self.path = path
        self.zf = zipfile.ZipFile(path)
        self.names = sorted(n for n in self.zf.namelist() if n.endswith(".npy"))

    def __len__(self):
        return len(self.names)

    def load(self, i):
        with self.zf.open(self.names[i]) as f:
            return np.load(io.BytesIO(f.read()))


class MoleculeDataset(Dataset):
    def __init__(self, archive, indices):
        self.archive = archive
        self.indices = indices

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, k):
        mol = self.archive.load(self.indices[k])
        charge, xyz = mol[:, 0], mol[:, 1:]
        centre = (charge[:, None] * xyz).sum(0) / charge.sum()
        radius = np.sqrt(((xyz - centre) ** 2).sum(1))
        target = np.float32((charge * radius).mean())
        return torch.from_numpy(mol), torch.tensor([target])


class PropertyNet(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.atom = nn.Sequential(nn.Linear(4, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU())
        self.head = nn.Linear(hidden, 1)

    def forward(self, mol):
        return self.head(self.atom(mol).mean(1))


def run_epoch(model, loader, opt=None):
    total, n = 0.0, 0
    for mol, target in loader:
        loss = nn.functional.mse_loss(model(mol), target)
        if opt is not None:
            opt.zero_grad()
            loss.backward()
            opt.step()
        total += loss.item() * len(mol)
        n += len(mol)
    return total / n


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--molecules", type=int, default=1200)
    p.add_argument("--atoms", type=int, default=600)
    p.add_argument("--epochs", type=int, default=12)
    p.add_argument("--num-workers", type=int, default=2)
    args = p.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "mols.zip")
        build_archive(path, args.molecules, args.atoms)
        archive = MoleculeArchive(path)
        split = int(0.9 * len(archive))
        val = DataLoader(MoleculeDataset(archive, range(split, len(archive))), batch_size=20)
        train = DataLoader(MoleculeDataset(archive, range(split)), batch_size=20, shuffle=True,
                           num_workers=args.num_workers)
        model = PropertyNet()
        opt = torch.optim.Adam(model.parameters(), lr=2e-3)
        print(f"{len(archive)} molecules, validation before training {run_epoch(model, val):.3f}", flush=True)
        for epoch in range(args.epochs):
            loss = run_epoch(model, train, opt)
            print(f"epoch {epoch} train {loss:.3f} val {run_epoch(model, val):.3f}", flush=True)


if __name__ == "__main__":
    main()
