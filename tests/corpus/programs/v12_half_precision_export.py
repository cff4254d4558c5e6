import shutil
import tempfile
from pathlib import Path

import torch
from torch import nn


class Ranker(nn.Module):
    def __init__(self, items=60_000, dim=128):
        super().__init__()
        self.items = nn.Embedding(items, dim)
        self.head = nn.Linear(dim, 1)

    def forward(self, ids):
        return self.head(self.items(ids))[:, 0]


def load(path):
    with torch.device("meta"):
        model = Ranker()
    state = torch.load(path, mmap=True, weights_only=True)
    model.load_state_dict(state, assign=True)
    return model


def export(model, path):
    half = {name: value.half() for name, value in model.state_dict().items()}
    torch.save(half, path)
    print(f"exported {path.name}: {path.stat().st_size / 2**20:.0f} MiB", flush=True)


def evaluate(model):
    generator = torch.Generator().manual_seed(1)
    total = 0.0
    with torch.no_grad():
        for _ in range(20):
            ids = torch.randint(0, 60_000, (512,), generator=generator)
            total += model(ids).mean().item()
    return total / 20


def main():
    folder = Path(tempfile.mkdtemp(prefix="ranker_"))
    path = folder / "ranker.pt"
    try:
        torch.manual_seed(0)
        torch.save(Ranker().state_dict(), path)
        model = load(path)
        print(f"before {evaluate(model):.4f}", flush=True)
        export(model, path)
        print(f"after {evaluate(model):.4f}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
