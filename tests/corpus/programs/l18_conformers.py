import multiprocessing

import torch
import torch.nn as nn


class PairPotential(nn.Module):
    def __init__(self, n_species=5, hidden=32):
        super().__init__()
        self.embed = nn.Embedding(n_species, 8)
        self.net = nn.Sequential(nn.Linear(17, hidden), nn.SiLU(), nn.Linear(hidden, 1))

    def forward(self, species, coords):
        dist = torch.cdist(coords, coords)
        z = self.embed(species)
        n = len(species)
        pair = torch.cat([z[:, None].expand(n, n, 8), z[None].expand(n, n, 8), dist[..., None]], -1)
        return self.net(pair).sum()


def make_molecule(n_atoms, seed):
    gen = torch.Generator().manual_seed(seed)
    return torch.randint(0, 5, (n_atoms,), generator=gen), torch.randn(n_atoms, 3, generator=gen) * 3


def warm_up(model, molecules):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for species, coords in molecules:
        loss = (model(species, coords) / len(species) + 1.0) ** 2
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"warm-up loss {loss.item():.4f}", flush=True)


def relax(task):
    model, index, species, coords = task
    coords = coords.clone().requires_grad_(True)
    for _ in range(20):
        energy = model(species, coords)
        grad, = torch.autograd.grad(energy, coords)
        coords = (coords - 1e-3 * grad).detach().requires_grad_(True)
    return index, energy.item()


def main():
    torch.manual_seed(0)
    molecules = [make_molecule(200, seed) for seed in range(8)]
    model = PairPotential()
    warm_up(model, molecules)
    for p in model.parameters():
        p.requires_grad_(False)
    tasks = [(model, i, species, coords) for i, (species, coords) in enumerate(molecules)]
    with multiprocessing.Pool(2) as pool:
        for index, energy in pool.imap_unordered(relax, tasks):
            print(f"molecule {index}: energy {energy:.4f}", flush=True)


if __name__ == "__main__":
    main()
