import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Molecules(Dataset):
    def __init__(self, count=256, dim=16):
        generator = torch.Generator().manual_seed(0)
        self.atoms = [torch.randint(0, 20, (5 + i % 7,), generator=generator) for i in range(count)]
        self.energies = torch.randn(count, generator=generator)
        self.types = nn.Embedding(20, dim)

    def __len__(self):
        return len(self.atoms)

    def __getitem__(self, index):
        return {"x": self.types(self.atoms[index]), "y": self.energies[index]}


def to_batch(samples):
    sizes = torch.tensor([len(s["x"]) for s in samples])
    return {
        "x": torch.cat([s["x"] for s in samples]),
        "batch": torch.repeat_interleave(torch.arange(len(samples)), sizes),
        "y": torch.stack([s["y"] for s in samples]),
    }


class Regressor(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, data):
        atoms = self.layers(data["x"]).squeeze(1)
        return torch.zeros(len(data["y"])).index_add(0, data["batch"], atoms)


def main():
    loader = DataLoader(Molecules(), batch_size=32, shuffle=True, num_workers=2, collate_fn=to_batch)
    model = Regressor()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(5):
        total = 0.0
        for data in loader:
            loss = nn.functional.mse_loss(model(data), data["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
