import datetime
import logging
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("click_ranker")

FEATURES = 40
EPOCHS = 3


class ClickLog(Dataset):
    def __init__(self, rows, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(rows, FEATURES, generator=g)
        w = torch.linspace(-1, 1, FEATURES)
        p = torch.sigmoid(self.x @ w)
        self.y = (torch.rand(rows, generator=g) < p).float()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Ranker(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(FEATURES, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


def auc(score, label):
    order = score.argsort()
    label = label[order]
    positives = label.sum()
    negatives = len(label) - positives
    ranks = torch.arange(1, len(label) + 1, dtype=torch.float64)
    return ((ranks[label > 0].sum() - positives * (positives + 1) / 2) / (positives * negatives)).item()


class Trainer:
    def __init__(self):
        dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=20))
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()
        torch.manual_seed(7)
        self.train_set = ClickLog(2400, 1)
        self.test_set = ClickLog(600, 2)
        self.sampler = DistributedSampler(self.train_set)
        self.train_loader = DataLoader(self.train_set, batch_size=50, sampler=self.sampler)
        self.test_loader = DataLoader(
            self.test_set, batch_size=50, sampler=DistributedSampler(self.test_set, shuffle=False))
        self.model = DDP(Ranker())
        self.opt = torch.optim.Adam(self.model.parameters(), lr=3e-3)

    @property
    def is_global_zero(self):
        return self.rank == 0

    def all_gather(self, tensor):
        parts = [torch.empty_like(tensor) for _ in range(self.world)]
        dist.all_gather(parts, tensor)
        return torch.cat(parts)

    def training_epoch(self, epoch):
        self.model.train()
        self.sampler.set_epoch(epoch)
        total = 0.0
        for x, y in self.train_loader:
            loss = F.binary_cross_entropy_with_logits(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
        log.info("rank %d epoch %d train loss %.4f", self.rank, epoch, total / len(self.train_loader))

    @torch.no_grad()
    def test_step(self, batch):
        x, y = batch
        return self.model.module(x).sigmoid(), y

    def test_epoch_end(self, outputs):
        scores = torch.cat([s for s, _ in outputs])
        labels = torch.cat([t for _, t in outputs])
        if self.is_global_zero:
            scores = self.all_gather(scores)
            labels = self.all_gather(labels)
            log.info("test samples %d auc %.4f", len(scores), auc(scores, labels))
            if os.environ.get("RANKER_OUT"):
                torch.save(scores, os.path.join(os.environ["RANKER_OUT"], "scores.pt"))

    def test(self):
        self.model.eval()
        outputs = [self.test_step(batch) for batch in self.test_loader]
        self.test_epoch_end(outputs)

    def fit(self):
        for epoch in range(EPOCHS):
            self.training_epoch(epoch)
        self.test()
        dist.barrier()
        if self.is_global_zero:
            log.info("run complete")
        dist.destroy_process_group()


if __name__ == "__main__":
    Trainer().fit()
