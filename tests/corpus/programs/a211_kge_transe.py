import argparse
import ctypes
import logging
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("transe")


def build_native(workdir):
    src = Path(__file__).with_suffix(".c")
    target = Path(workdir) / "libkgbase.so"
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-w", "-o", str(target), str(src)], check=True)
    lib = ctypes.CDLL(str(target))
    lib.set_in_path.argtypes = [ctypes.c_char_p]
    longs = np.ctypeslib.ndpointer(np.int64, flags="C_CONTIGUOUS")
    floats = np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS")
    lib.sample_batch.argtypes = [longs, longs, longs, ctypes.c_int, ctypes.c_int]
    lib.get_test_tail.argtypes = [ctypes.c_int, longs, longs, longs]
    lib.test_tail_rank.argtypes = [ctypes.c_int, floats, ctypes.c_int]
    return lib


def export_catalogue(root, entities=3000, relations=12, triples=20000, seed=4):
    rng = np.random.default_rng(seed)
    h = rng.integers(0, entities, triples)
    r = rng.integers(0, relations, triples)
    t = (h * 7 + r * 131 + rng.integers(0, 5, triples)) % entities
    rows = np.stack([h, t, r], 1)
    (root / "entity2id.txt").write_text(f"{entities}\n" + "".join(f"sku_{i:05d}\t{i}\n" for i in range(entities)))
    (root / "relation2id.txt").write_text(f"{relations}\n" + "".join(f"rel_{i}\t{i}\n" for i in range(relations)))
    cuts = {"train2id.txt": rows[:18000], "valid2id.txt": rows[18000:19000], "test2id.txt": rows[19000:]}
    for name, part in cuts.items():
        body = "".join(f"{a}\t{b}\t{c}\n" for a, b, c in part)
        (root / name).write_text(f"{len(part)}\n{body}")
    log.info("catalogue exported: %d entities, %d relations, %d triples", entities, relations, triples)


class TripleBatches(IterableDataset):
    def __init__(self, lib, in_path, nbatches=40, batch=200, neg=9):
        self.lib, self.nbatches, self.batch, self.neg = lib, nbatches, batch, neg
        lib.set_in_path(in_path.encode())
        lib.import_train_files()

    def __iter__(self):
        n = self.batch * (self.neg + 1)
        for _ in range(self.nbatches):
            h, t, r = (np.empty(n, np.int64) for _ in range(3))
            self.lib.sample_batch(h, t, r, self.batch, self.neg)
            yield torch.from_numpy(h), torch.from_numpy(t), torch.from_numpy(r)


class LinkPrediction:
    def __init__(self, lib, in_path, type_constrain=True):
        self.lib, self.type_constrain = lib, type_constrain
        lib.set_in_path(in_path.encode())
        lib.import_test_files()
        if type_constrain:
            lib.import_type_files()
        self.total = lib.get_test_total()

    def run(self, model, limit=200):
        n = self.lib.get_entity_total()
        h, t, r = (np.empty(n, np.int64) for _ in range(3))
        ranks = []
        with torch.no_grad():
            for i in range(min(limit, self.total)):
                self.lib.get_test_tail(i, h, t, r)
                score = model(torch.from_numpy(h), torch.from_numpy(t), torch.from_numpy(r)).numpy()
                ranks.append(self.lib.test_tail_rank(i, np.ascontiguousarray(score), int(self.type_constrain)))
        ranks = np.array(ranks)
        return ranks.mean(), (ranks <= 10).mean()


class TransE(nn.Module):
    def __init__(self, entities, relations, dim):
        super().__init__()
        self.ent, self.rel = nn.Embedding(entities, dim), nn.Embedding(relations, dim)
        nn.init.xavier_uniform_(self.ent.weight)
        nn.init.xavier_uniform_(self.rel.weight)

    def forward(self, h, t, r):
        h, t = F.normalize(self.ent(h), dim=-1), F.normalize(self.ent(t), dim=-1)
        return (h + F.normalize(self.rel(r), dim=-1) - t).norm(p=1, dim=-1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--dim", type=int, default=64)
    ap.add_argument("--margin", type=float, default=5.0)
    args = ap.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="kge_") as workdir:
        root = Path(workdir)
        export_catalogue(root)
        lib = build_native(workdir)
        in_path = workdir + os.sep
        data = TripleBatches(lib, in_path)
        model = TransE(lib.get_entity_total(), lib.get_relation_total(), args.dim)
        opt = torch.optim.Adam(model.parameters(), lr=2e-3)
        for epoch in range(args.epochs):
            total = 0.0
            for h, t, r in DataLoader(data, batch_size=None):
                score = model(h, t, r).view(data.neg + 1, -1)
                loss = F.relu(args.margin + score[:1] - score[1:]).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
            log.info("epoch %d loss %.4f", epoch, total / data.nbatches)
        torch.save(model.state_dict(), root / "transe.ckpt")
        log.info("training done, link prediction on the test split")
        tester = LinkPrediction(lib, in_path)
        mr, hits = tester.run(model)
        log.info("test mean rank %.1f hits@10 %.3f", mr, hits)


if __name__ == "__main__":
    main()
