import argparse
import ctypes
import logging
import os
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

HERE = os.path.dirname(os.path.abspath(__file__))
log = logging.getLogger("nodes")


class Sampler:
    def __init__(self):
        out = os.path.join(tempfile.mkdtemp(prefix="sampler_"), "sampler.so")
        subprocess.check_call(["g++", "-O1", "-g", "-shared", "-fPIC", os.path.join(HERE, "a186_sampler.cpp"), "-o", out])
        self.lib = ctypes.CDLL(out)
        arr = np.ctypeslib.ndpointer(np.int64, flags="C_CONTIGUOUS")
        self.lib.graph_open.restype = ctypes.c_void_p
        self.lib.graph_open.argtypes = [arr, ctypes.c_int64]
        self.lib.sample_in_edges.argtypes = [ctypes.c_void_p, arr, ctypes.c_int64, ctypes.c_int64, arr, arr]
        self.lib.sample_in_edges.restype = ctypes.c_int64

    def open(self, csr, n_nodes):
        self.csr = np.ascontiguousarray(csr)
        self.graph = self.lib.graph_open(self.csr, n_nodes)

    def sample(self, seeds, fanout):
        src = np.empty(len(seeds) * fanout, dtype=np.int64)
        dst = np.empty(len(seeds) * fanout, dtype=np.int64)
        n = self.lib.sample_in_edges(self.graph, np.ascontiguousarray(seeds), len(seeds), fanout, src, dst)
        return src[:n], dst[:n]


def citation_graph(n_nodes, classes, seed=2):
    rng = np.random.default_rng(seed)
    year = np.sort(rng.integers(1990, 2021, n_nodes))
    label = rng.integers(0, classes, n_nodes)
    x = np.eye(classes, dtype=np.float32)[label] + rng.normal(size=(n_nodes, classes)).astype(np.float32)
    src = rng.integers(0, n_nodes, n_nodes * 12)
    dst = rng.integers(0, n_nodes, n_nodes * 12)
    keep = (label[src] == label[dst]) | (rng.random(len(src)) < 0.2)
    return year, label, x, src[keep], dst[keep]


def induced_csr(nodes, src, dst, n_nodes):
    """In-edges of the graph on these nodes: the row pointers, then the neighbours."""
    new_id = np.full(n_nodes, -1, dtype=np.int64)
    new_id[nodes] = np.arange(len(nodes))
    s, d = new_id[src], new_id[dst]
    inside = (s >= 0) & (d >= 0)
    s, d = s[inside], d[inside]
    order = np.argsort(d, kind="stable")
    indptr = np.zeros(len(nodes) + 1, dtype=np.int64)
    np.cumsum(np.bincount(d, minlength=len(nodes)), out=indptr[1:])
    return np.concatenate([indptr, s[order]])


class SageNet(nn.Module):
    def __init__(self, feats, hidden, classes):
        super().__init__()
        self.self_lin = nn.Linear(feats, hidden)
        self.nbr_lin = nn.Linear(feats, hidden)
        self.out = nn.Linear(hidden, classes)

    def forward(self, x, seeds, src, dst):
        where = torch.full((len(x),), -1, dtype=torch.long)
        where[seeds] = torch.arange(len(seeds))
        agg = torch.zeros(len(seeds), x.shape[1]).index_add_(0, where[dst], x[src])
        deg = torch.bincount(where[dst], minlength=len(seeds)).clamp(min=1).unsqueeze(1)
        return self.out(F.relu(self.self_lin(x[seeds]) + self.nbr_lin(agg / deg)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--papers", type=int, default=30000)
    ap.add_argument("--first-year", type=int, default=2000)
    ap.add_argument("--fanout", type=int, default=10)
    ap.add_argument("--epochs", type=int, default=4)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    year, label, x, src, dst = citation_graph(args.papers, 8)
    recent = np.flatnonzero(year >= args.first_year)
    sampler = Sampler()
    sampler.open(induced_csr(recent, src, dst, args.papers), len(recent))
    feats, target = torch.from_numpy(x[recent]), torch.from_numpy(label[recent])
    train_ids = np.flatnonzero((year >= args.first_year) & (year < 2018)) - recent[0]
    val_ids = np.flatnonzero(year >= 2018)
    log.info("graph of %d papers, %d for training, %d for validation", len(recent), len(train_ids), len(val_ids))
    model = SageNet(x.shape[1], 32, 8)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(args.epochs):
        for seeds in DataLoader(train_ids, batch_size=256, shuffle=True):
            s, d = sampler.sample(seeds.numpy(), args.fanout)
            out = model(feats, seeds, torch.from_numpy(s), torch.from_numpy(d))
            loss = F.cross_entropy(out, target[seeds])
            opt.zero_grad()
            loss.backward()
            opt.step()
        log.info("epoch %d loss %.4f", epoch, loss.item())
        correct = 0
        with torch.no_grad():
            for seeds in DataLoader(val_ids, batch_size=256):
                s, d = sampler.sample(seeds.numpy(), args.fanout)
                out = model(feats, seeds, torch.from_numpy(s), torch.from_numpy(d))
                correct += (out.argmax(1) == target[seeds]).sum().item()
        log.info("epoch %d validation accuracy %.3f", epoch, correct / len(val_ids))


if __name__ == "__main__":
    main()
