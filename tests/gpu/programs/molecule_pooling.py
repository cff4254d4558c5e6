"""Pool atom features into molecule features with a compiled function."""

from __future__ import annotations

import torch

WIDTH = 64


@torch.compile(dynamic=False)
def pool_molecules(atoms: torch.Tensor, owner: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
    """Return the largest activation of each molecule's atoms."""
    hidden = torch.relu(atoms * 1.5 - 0.1)
    index = owner.unsqueeze(1).expand_as(hidden)
    return pooled.scatter_reduce(0, index, hidden, reduce="amax", include_self=True)


def collate(sizes: list[int], width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the atoms of all molecules and the molecule of each atom."""
    generator = torch.Generator().manual_seed(1)
    owner = torch.repeat_interleave(torch.arange(1, len(sizes) + 1), torch.tensor(sizes))
    atoms = torch.randn(int(owner.numel()), width, generator=generator)
    return atoms, owner


def report(pooled: torch.Tensor, names: list[str]) -> str:
    """Name the molecule with the strongest response."""
    table = pooled.cpu()
    return names[int(table.amax(dim=1).argmax())]


@torch.no_grad()
def main() -> None:
    """Pool one batch of molecules."""
    sizes = [9 + (7 * number) % 23 for number in range(32)]
    names = [f"mol{number:03d}" for number in range(len(sizes))]
    atoms, owner = collate(sizes, WIDTH)
    empty = torch.zeros(len(sizes), WIDTH, device="cuda")
    pooled = pool_molecules(atoms.cuda(), owner.cuda(), empty)
    print(report(pooled, names))


if __name__ == "__main__":
    main()
