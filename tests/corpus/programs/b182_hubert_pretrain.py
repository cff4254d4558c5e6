import datetime
import logging
import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger("hubert")


class UtteranceDataset(Dataset):
    def __init__(self, n=320, frames=40, feats=24, clusters=20):
        g = torch.Generator().manual_seed(3)
        self.wave = torch.randn(n, frames, feats, generator=g)
        self.labels = torch.randint(0, clusters, (n, frames), generator=g)
        self.wave[101] = 0.0

    def __len__(self):
        return len(self.wave)

    def __getitem__(self, i):
        x = self.wave[i]
        x = (x - x.mean()) / x.std()
        return x, self.labels[i]


class MaskedEncoder(nn.Module):
    def __init__(self, feats=24, dim=48, clusters=20):
        super().__init__()
        self.proj = nn.Linear(feats, dim)
        self.mask_emb = nn.Parameter(torch.randn(dim))
        layer = nn.TransformerEncoderLayer(dim, 4, 96, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(dim, clusters)

    def forward(self, x, mask):
        h = self.proj(x)
        h = torch.where(mask[..., None], self.mask_emb.expand_as(h), h)
        return self.head(self.encoder(h))


class PretrainModule:
    def __init__(self, lr=5e-4, mask_prob=0.4):
        self.net = DDP(MaskedEncoder())
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=lr)
        self.mask_prob = mask_prob
        self.gen = torch.Generator().manual_seed(dist.get_rank())

    def _step(self, batch):
        x, y = batch
        mask = torch.rand(y.shape, generator=self.gen) < self.mask_prob
        logits = self.net(x, mask)
        loss = nn.functional.cross_entropy(logits[mask], y[mask], reduction="sum")
        return loss, int(mask.sum())

    def training_step(self, batch, batch_idx):
        loss, num_frame = self._step(batch)
        if torch.isinf(loss) or torch.isnan(loss):
            self.opt.zero_grad()
            return None
        counts = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(counts, torch.tensor([float(num_frame)]))
        total = torch.cat(counts).sum()
        loss = loss * dist.get_world_size() / total
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 10.0)
        self.opt.step()
        return loss.item()


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=30))
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    torch.manual_seed(0)
    data = UtteranceDataset()
    sampler = DistributedSampler(data, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    module = PretrainModule()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        history = []
        for idx, batch in enumerate(loader):
            loss = module.training_step(batch, idx)
            if loss is not None:
                history.append(loss)
            if loss is not None and idx % 5 == 0:
                log.info("epoch %d step %d loss %.4f (ppl %.1f)", epoch, idx, loss, math.exp(min(loss, 20)))
        summary = torch.tensor([sum(history), float(len(history))])
        dist.all_reduce(summary)
        log.info("epoch %d finished, mean loss %.4f", epoch, summary[0] / summary[1])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
