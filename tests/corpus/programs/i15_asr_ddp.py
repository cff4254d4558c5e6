"""CTC acoustic model, one process per worker; cuts are partitioned over the processes."""
import math
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset, DataLoader

WORLD_SIZE = 2


def setup_dist(rank, world_size, master_port=29641):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = str(master_port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def cleanup_dist():
    dist.destroy_process_group()


class CutSet(Dataset):
    def __init__(self, n_cuts):
        self.lengths = [60 + 7 * (i % 9) for i in range(n_cuts)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, idx):
        g = torch.Generator().manual_seed(idx)
        feats = torch.randn(self.lengths[idx], 40, generator=g)
        text = torch.randint(1, 30, (8,), generator=g)
        return feats, text


class SingleCutSampler:
    def __init__(self, data_source, rank, world_size):
        total = len(data_source)
        per_partition = int(math.ceil(total / float(world_size)))
        start = rank * per_partition
        self.indices = list(range(start, min(start + per_partition, total)))

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return len(self.indices)


class Tdnn(nn.Module):
    def __init__(self, n_feats=40, n_classes=30):
        super().__init__()
        self.tdnn = nn.Sequential(nn.Conv1d(n_feats, 64, 3, padding=1), nn.ReLU(),
                                  nn.Conv1d(64, 64, 3, padding=1), nn.ReLU())
        self.output = nn.Linear(64, n_classes)

    def forward(self, x):
        return self.output(self.tdnn(x.transpose(1, 2)).transpose(1, 2)).log_softmax(-1)


def train_one_epoch(epoch, rank, model, loader, optimizer):
    ctc = nn.CTCLoss()
    for batch_idx, (feats, text) in enumerate(loader):
        log_probs = model(feats).transpose(0, 1)
        loss = ctc(log_probs, text, torch.tensor([feats.shape[1]]), torch.tensor([text.shape[1]]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if batch_idx % 10 == 0:
            print(f"[{rank}] epoch {epoch}, batch {batch_idx}/{len(loader)}, loss {loss.item():.3f}", flush=True)


def run(rank, world_size):
    setup_dist(rank, world_size)
    torch.manual_seed(42)
    torch.set_num_threads(1)
    cuts = CutSet(n_cuts=61)
    loader = DataLoader(cuts, batch_size=1, sampler=SingleCutSampler(cuts, rank, world_size))
    model = DDP(Tdnn())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(1):
        train_one_epoch(epoch, rank, model, loader, optimizer)
    cleanup_dist()
    print(f"[{rank}] done", flush=True)


if __name__ == "__main__":
    mp.spawn(run, args=(WORLD_SIZE,), nprocs=WORLD_SIZE, join=True)
