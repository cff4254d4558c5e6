import argparse
import logging
import resource
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("match")


class AverageMeter:
    """Computes and stores the average and current value."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0.0
        self.count = 0.0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


class PointPairs(Dataset):
    """Source and target clouds that differ by a rigid motion, with the correspondence."""

    def __init__(self, n_pairs, n_points, seed=4):
        self.n_pairs = n_pairs
        self.n_points = n_points
        self.seed = seed

    def __len__(self):
        return self.n_pairs

    def __getitem__(self, i):
        rng = np.random.default_rng(self.seed * 100003 + i)
        src = rng.normal(size=(self.n_points, 3)).astype(np.float32)
        q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        perm = rng.permutation(self.n_points)
        tgt = (src @ q.T.astype(np.float32) + rng.normal(scale=0.1, size=3).astype(np.float32))[perm]
        match = np.empty(self.n_points, dtype=np.int64)
        match[perm] = np.arange(self.n_points)
        return torch.from_numpy(src), torch.from_numpy(tgt), torch.from_numpy(match)


class Matcher(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(3, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.fuse = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, dim))

    def encode(self, x):
        f = self.point(x)
        context = f.amax(1, keepdim=True).expand_as(f)
        return self.fuse(torch.cat([f, context], -1))

    def forward(self, src, tgt):
        fs, ft = self.encode(src), self.encode(tgt)
        return fs @ ft.transpose(1, 2) / fs.shape[-1] ** 0.5


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pairs", type=int, default=2000)
    ap.add_argument("--points", type=int, default=384)
    ap.add_argument("--batch-size", type=int, default=4)
    ap.add_argument("--max-epoch", type=int, default=1)
    ap.add_argument("--log-every", type=int, default=20)
    ap.add_argument("--mem-gb", type=float, default=1.6, help="address space of this job on the shared node")
    args = ap.parse_args()
    limit = int(args.mem_gb * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    torch.manual_seed(0)
    torch.set_num_threads(1)

    loader = DataLoader(PointPairs(args.pairs, args.points), batch_size=args.batch_size, shuffle=True, num_workers=1)
    model = Matcher()
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(args.max_epoch):
        meters = {"loss": AverageMeter(), "recall": AverageMeter(), "entropy": AverageMeter()}
        start = time.time()
        for it, (src, tgt, match) in enumerate(loader):
            logits = model(src, tgt)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), match.flatten())
            recall = (logits.argmax(-1) == match).float().mean()
            conf = logits.softmax(-1)
            entropy = -(conf * (conf + 1e-9).log()).sum(-1).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            stats = {"loss": loss, "recall": recall, "entropy": entropy}
            for key, meter in meters.items():
                meter.update(stats[key], src.shape[0])
            if (it + 1) % args.log_every == 0:
                text = " ".join(f"{k}: {m.avg:.3f}" for k, m in meters.items())
                log.info("epoch %d [%d/%d] %s (%.1f s)", epoch, it + 1, len(loader), text, time.time() - start)
    log.info("training finished")


if __name__ == "__main__":
    main()
