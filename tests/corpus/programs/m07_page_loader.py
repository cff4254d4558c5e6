import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def write_pages(folder, n=64):
    rng = np.random.default_rng(0)
    paths = []
    for i in range(n):
        path = os.path.join(folder, f"page_{i:03d}.raw")
        kind = b"P5" if i != 37 else b"P6"
        body = rng.integers(0, 255, 32 * 32, dtype=np.uint8).tobytes()
        with open(path, "wb") as f:
            f.write(kind + b"\n" + body)
        paths.append(path)
    return paths


class Page:
    def __init__(self, path):
        self.path = path
        self.fp = open(path, "rb")
        self.mode = self.fp.readline().strip().decode()
        self._pixels = None

    def load(self):
        if self._pixels is None:
            self._pixels = np.frombuffer(self.fp.read(), dtype=np.uint8).reshape(32, 32)
            self.fp.close()
            self.fp = None
        return self._pixels


class PageDataset(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        page = Page(self.paths[i])
        if page.mode == "P5":
            page.load()
        return {"page": page, "label": i % 4}


def collate(rows):
    pages = [r["page"] for r in rows]
    return pages, torch.tensor([r["label"] for r in rows])


def to_tensor(pages):
    return torch.stack([torch.from_numpy(p.load().copy()).float() / 255 for p in pages]).flatten(1)


def main():
    torch.manual_seed(0)
    folder = tempfile.mkdtemp()
    loader = DataLoader(PageDataset(write_pages(folder)), batch_size=8, num_workers=2, collate_fn=collate)
    net = nn.Linear(32 * 32, 4)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for epoch in range(2):
        for step, (pages, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(net(to_tensor(pages)), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
