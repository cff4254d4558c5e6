import argparse
import ctypes
import logging
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("facereid")


class KnnGraph:
    def __init__(self, workdir):
        target = Path(workdir) / "libknngraph.so"
        src = Path(__file__).with_suffix(".c")
        subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-w", "-o", str(target), str(src), "-lm"], check=True)
        self.lib = ctypes.CDLL(str(target))
        floats = np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS")
        ints = np.ctypeslib.ndpointer(np.int32, flags="C_CONTIGUOUS")
        self.lib.graph_build.restype = ctypes.c_void_p
        self.lib.graph_build.argtypes = [floats, ctypes.c_int, ctypes.c_int, ctypes.c_int]
        self.lib.graph_search.argtypes = [ctypes.c_void_p, floats, ctypes.c_int, ctypes.c_int, ctypes.c_int, ints]
        self.lib.graph_free.argtypes = [ctypes.c_void_p]
        self.graph = None

    def build(self, gallery, degree=10):
        if self.graph:
            self.lib.graph_free(self.graph)
        self.gallery = np.ascontiguousarray(gallery, np.float32)
        self.graph = self.lib.graph_build(self.gallery, *self.gallery.shape, degree)

    def search(self, queries, k, candidates):
        queries = np.ascontiguousarray(queries, np.float32)
        found = np.empty((len(queries), k), np.int32)
        self.lib.graph_search(self.graph, queries, len(queries), k, candidates, found)
        return found


class FaceCrops(Dataset):
    def __init__(self, people, per_person, seed):
        rng = np.random.default_rng(seed)
        centres = rng.normal(0, 1.0, (people, 96))
        self.ids = np.repeat(np.arange(people), per_person)
        self.x = (centres[self.ids] + rng.normal(0, 0.8, (len(self.ids), 96))).astype(np.float32)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.x[i], int(self.ids[i])


class EmbeddingNet(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(96, 128), nn.ReLU(), nn.Linear(128, dim))

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


@torch.no_grad()
def embed(model, data):
    model.eval()
    out = [model(x).numpy() for x, _ in DataLoader(data, batch_size=256)]
    model.train()
    return np.concatenate(out)


def recall_at(model, gallery, probes, index, k, candidates):
    index.build(embed(model, gallery))
    found = index.search(embed(model, probes), k, candidates)
    hits = (gallery.ids[found] == probes.ids[:, None]).any(1)
    return hits.mean()


def train_epoch(model, centres, loader, opt):
    total = 0.0
    for x, y in loader:
        logits = 16 * model(x) @ F.normalize(centres, dim=-1).t()
        loss = F.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / len(loader)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--topk", type=int, default=10)
    ap.add_argument("--candidates", type=int, default=500)
    args = ap.parse_args()
    torch.manual_seed(2)
    train = FaceCrops(100, 12, seed=0)
    splits = {"seen": (FaceCrops(100, 12, seed=0), FaceCrops(100, 2, seed=0)),
              "dev": (FaceCrops(50, 10, seed=7), FaceCrops(50, 2, seed=7))}
    model = EmbeddingNet()
    centres = nn.Parameter(torch.randn(100, 32))
    opt = torch.optim.Adam([*model.parameters(), centres], lr=2e-3)
    loader = DataLoader(train, batch_size=64, shuffle=True)
    with tempfile.TemporaryDirectory(prefix="reid_") as workdir:
        index = KnnGraph(workdir)
        for epoch in range(args.epochs):
            log.info("epoch %d loss %.4f", epoch, train_epoch(model, centres, loader, opt))
        torch.save(model.state_dict(), Path(workdir) / "embed.pt")
        for name, (gallery, probes) in splits.items():
            log.info("evaluating split %s: %d gallery, %d probes", name, len(gallery), len(probes))
            recall = recall_at(model, gallery, probes, index, args.topk, args.candidates)
            log.info("split %s recall@%d %.3f", name, args.topk, recall)


if __name__ == "__main__":
    main()
