import argparse
import ctypes
import json
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
log = logging.getLogger("recipes")

F32 = np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS")
I64 = np.ctypeslib.ndpointer(np.int64, flags="C_CONTIGUOUS")


class IdIndex:
    def __init__(self, workdir, dim):
        target = Path(workdir) / "libflatindex.so"
        src = Path(__file__).with_suffix(".cpp")
        subprocess.run(["g++", "-O1", "-g", "-shared", "-fPIC", "-o", str(target), str(src)], check=True)
        self.lib = ctypes.CDLL(str(target))
        self.lib.index_new.restype = ctypes.c_void_p
        self.lib.index_add.argtypes = [ctypes.c_void_p, F32, I64, ctypes.c_int]
        self.lib.index_search.argtypes = [ctypes.c_void_p, F32, ctypes.c_int, ctypes.c_int, I64, F32]
        self.lib.index_id_at.argtypes = [ctypes.c_void_p, ctypes.c_int64]
        self.lib.index_id_at.restype = ctypes.c_int64
        self.lib.index_delete.argtypes = [ctypes.c_void_p]
        self.ptr = self.lib.index_new(dim)

    def add_with_ids(self, vectors, ids):
        self.lib.index_add(self.ptr, np.ascontiguousarray(vectors), np.ascontiguousarray(ids), len(ids))

    def search(self, queries, k):
        ids, scores = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
        self.lib.index_search(self.ptr, np.ascontiguousarray(queries), len(queries), k, ids, scores)
        return ids, scores

    def id_at(self, row):
        return self.lib.index_id_at(self.ptr, row)

    def close(self):
        self.lib.index_delete(self.ptr)


class RecipePairs(Dataset):
    def __init__(self, n, seed, first_id):
        rng = np.random.default_rng(seed)
        latent = rng.normal(0, 1, (n, 24))
        view = np.random.default_rng(99).normal(0, 0.3, (2, 24, 80))
        self.image = (latent @ view[0] + rng.normal(0, 0.3, (n, 80))).astype(np.float32)
        self.text = (latent @ view[1] + rng.normal(0, 0.3, (n, 80))).astype(np.float32)
        self.ids = np.arange(first_id, first_id + n)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.image[i], self.text[i], int(self.ids[i])


class TwoTower(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(80, 96), nn.ReLU(), nn.Linear(96, dim))
        self.text = nn.Sequential(nn.Linear(80, 96), nn.ReLU(), nn.Linear(96, dim))

    def forward(self, image, text):
        return F.normalize(self.image(image), dim=-1), F.normalize(self.text(text), dim=-1)


def make_loader(data, train, batch_size=64):
    return DataLoader(data, batch_size, shuffle=train, drop_last=True)


@torch.no_grad()
def evaluate(model, data, workdir, k=5):
    model.eval()
    index = IdIndex(workdir, 32)
    queries = []
    for image, text, ids in make_loader(data, train=False):
        a, b = model(image, text)
        index.add_with_ids(b.numpy(), ids.numpy())
        queries.append(a.numpy())
    queries = np.concatenate(queries)
    found, scores = index.search(queries, k)
    medians = np.median(scores, axis=0).round(3).tolist()
    log.info("searched %d queries, median scores %s", len(queries), medians)
    report = []
    for row in range(len(data)):
        truth = index.id_at(row)
        report.append({"recipe": truth, "hit": bool((found[row] == truth).any())})
    index.close()
    model.train()
    return report


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--lr", type=float, default=2e-3)
    args = ap.parse_args()
    torch.manual_seed(0)
    train, val = RecipePairs(1536, 0, 0), RecipePairs(300, 1, 50000)
    model = TwoTower()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    loader = make_loader(train, train=True)
    with tempfile.TemporaryDirectory(prefix="recipes_") as workdir:
        for epoch in range(args.epochs):
            total = 0.0
            for image, text, _ in loader:
                a, b = model(image, text)
                sims = 14 * a @ b.t()
                target = torch.arange(len(a))
                loss = (F.cross_entropy(sims, target) + F.cross_entropy(sims.t(), target)) / 2
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
            log.info("epoch %d loss %.4f", epoch, total / len(loader))
        report = evaluate(model, val, workdir)
        (Path(workdir) / "report.json").write_text(json.dumps(report))
        log.info("recall@5 on %d recipes: %.3f", len(report), np.mean([r["hit"] for r in report]))


if __name__ == "__main__":
    main()
