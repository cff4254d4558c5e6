import argparse
import ctypes
import logging
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("vertices")

HERE = Path(__file__).resolve().parent
COORDS, PF_FEATURES, SV_FEATURES = 2, 7, 5


def build_cluster(out_dir):
    lib_path = Path(out_dir) / "libcluster.so"
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-o", str(lib_path), str(HERE / "d185_vertices.c")], check=True)
    lib = ctypes.CDLL(str(lib_path))
    ptr, i64, i32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    lib.knn.argtypes = [ptr, ptr, ptr, ptr, i64, i32, i32, ptr, ptr]
    lib.knn.restype = i64
    return lib


def knn(lib, x, y, k, batch_x, batch_y):
    x, y = x.detach().float().contiguous(), y.detach().float().contiguous()
    batches = int(max(batch_x.max(), batch_y.max())) + 1
    ptr_x = F.pad(torch.bincount(batch_x, minlength=batches).cumsum(0), (1, 0))
    ptr_y = F.pad(torch.bincount(batch_y, minlength=batches).cumsum(0), (1, 0))
    rows = torch.empty(len(y) * k, dtype=torch.int64)
    cols = torch.empty(len(y) * k, dtype=torch.int64)
    n = lib.knn(x.data_ptr(), y.data_ptr(), ptr_x.data_ptr(), ptr_y.data_ptr(), batches, x.shape[1], k, rows.data_ptr(), cols.data_ptr())
    return rows[:n], cols[:n]


class Jets(Dataset):
    def __init__(self, n_jets, seed=11):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, 2, n_jets)
        self.n_pf = rng.integers(12, 40, n_jets)
        self.n_sv = rng.poisson(5.5 + self.labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        rng = np.random.default_rng(1000 + i)
        shift = 0.25 * self.labels[i]
        pf = rng.normal(shift, 1, (self.n_pf[i], COORDS + PF_FEATURES)).astype(np.float32)
        sv = rng.normal(shift, 1, (self.n_sv[i], COORDS + SV_FEATURES)).astype(np.float32)
        return torch.from_numpy(pf), torch.from_numpy(sv), int(self.labels[i])


def collate(jets):
    pf, sv, labels = zip(*jets)
    pf_batch = torch.repeat_interleave(torch.arange(len(pf)), torch.tensor([len(p) for p in pf]))
    sv_batch = torch.repeat_interleave(torch.arange(len(sv)), torch.tensor([len(s) for s in sv]))
    return torch.cat(pf), pf_batch, torch.cat(sv), sv_batch, torch.tensor(labels)


class BipartiteConv(nn.Module):
    def __init__(self, lib, width, k):
        super().__init__()
        self.lib, self.k = lib, k
        self.message = nn.Sequential(nn.Linear(2 * width + COORDS, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, pf, pf_pos, pf_batch, sv, sv_pos, sv_batch):
        row, col = knn(self.lib, sv_pos, pf_pos, self.k, sv_batch, pf_batch)
        edge = torch.cat([pf[row], sv[col], sv_pos[col] - pf_pos[row]], 1)
        message = self.message(edge)
        total = torch.zeros_like(pf).index_add(0, row, message)
        count = torch.zeros(len(pf)).index_add(0, row, torch.ones(len(row))).clamp(min=1)
        return F.relu(pf + total / count[:, None])


class JetTagger(nn.Module):
    def __init__(self, lib, width=32, k=3):
        super().__init__()
        self.pf_in = nn.Linear(PF_FEATURES, width)
        self.sv_in = nn.Linear(SV_FEATURES, width)
        self.convs = nn.ModuleList(BipartiteConv(lib, width, k) for _ in range(2))
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, pf, pf_batch, sv, sv_batch, n_jets):
        pf_pos, sv_pos = pf[:, :COORDS], sv[:, :COORDS]
        h, s = F.relu(self.pf_in(pf[:, COORDS:])), F.relu(self.sv_in(sv[:, COORDS:]))
        for conv in self.convs:
            h = conv(h, pf_pos, pf_batch, s, sv_pos, sv_batch)
        pooled = torch.zeros(n_jets, h.shape[1]).index_add(0, pf_batch, h)
        return self.head(pooled / torch.bincount(pf_batch, minlength=n_jets)[:, None])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jets", type=int, default=4000)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(21)
    with tempfile.TemporaryDirectory() as tmp:
        model = JetTagger(build_cluster(tmp))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        loader = DataLoader(Jets(args.jets), batch_size=args.batch_size, shuffle=True, collate_fn=collate)
        for epoch in range(args.epochs):
            right = seen = 0
            for step, (pf, pf_batch, sv, sv_batch, labels) in enumerate(loader):
                logits = model(pf, pf_batch, sv, sv_batch, len(labels))
                loss = F.cross_entropy(logits, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                right += (logits.argmax(1) == labels).sum().item()
                seen += len(labels)
                if step % 5 == 0:
                    log.info("epoch %d step %d loss %.4f accuracy %.3f", epoch, step, loss.item(), right / seen)
        log.info("finished")


if __name__ == "__main__":
    main()
