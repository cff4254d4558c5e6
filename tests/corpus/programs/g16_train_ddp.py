import argparse

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class RatingDataset(Dataset):
    def __init__(self, n=2400, users=60, items=800):
        g = torch.Generator().manual_seed(11)
        self.user = (torch.rand(n, generator=g) ** 2 * users).long()
        self.item = torch.randint(0, items, (n,), generator=g)
        self.rating = torch.rand(n, generator=g) * 4 + 1

    def subsample_users(self, keep):
        users = np.unique(self.user.numpy())
        kept = np.random.choice(users, int(keep * len(users)), replace=False)
        mask = torch.isin(self.user, torch.from_numpy(kept))
        self.user, self.item, self.rating = self.user[mask], self.item[mask], self.rating[mask]
        return self

    def __len__(self):
        return len(self.user)

    def __getitem__(self, i):
        return self.user[i], self.item[i], self.rating[i]


class NeuMF(nn.Module):
    def __init__(self, users=60, items=800, dim=32):
        super().__init__()
        self.user, self.item = nn.Embedding(users, dim), nn.Embedding(items, dim)
        self.mlp = nn.Sequential(nn.Linear(2 * dim, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, u, i):
        return self.mlp(torch.cat([self.user(u), self.item(i)], -1)).squeeze(-1)


class Trainer:
    def __init__(self, rank, args):
        self.rank, self.args = rank, args
        data = RatingDataset().subsample_users(args.keep)
        self.loader = DataLoader(data, batch_size=args.batch_size, sampler=DistributedSampler(data))
        self.model = DDP(NeuMF())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def fit(self):
        for epoch in range(self.args.epochs):
            self.loader.sampler.set_epoch(epoch)
            for step, (u, i, r) in enumerate(self.loader, 1):
                loss = nn.functional.mse_loss(self.model(u, i), r)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                if self.rank == 0 and step % 10 == 0:
                    print(f"epoch {epoch}: {step}/{len(self.loader)} loss {loss.item():.3f}", flush=True)
        dist.barrier()
        if self.rank == 0:
            torch.save(self.model.module.state_dict(), "/tmp/neumf.pt")
        dist.destroy_process_group()


def worker(rank, world_size, args):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=world_size)
    Trainer(rank, args).fit()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--keep", type=float, default=0.5)
    parser.add_argument("--port", type=int, default=29517)
    args = parser.parse_args()
    mp.spawn(worker, nprocs=2, args=(2, args))
