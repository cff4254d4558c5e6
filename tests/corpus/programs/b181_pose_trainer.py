import argparse
import datetime
import json
import logging
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger("pose")


class KeypointDataset(Dataset):
    def __init__(self, n=192, size=32, nodes=4, seed=0):
        rng = np.random.default_rng(seed)
        self.xy = rng.uniform(4, size - 4, (n, nodes, 2)).astype(np.float32)
        self.size = size

    def __len__(self):
        return len(self.xy)

    def __getitem__(self, i):
        grid = np.mgrid[0:self.size, 0:self.size].astype(np.float32)
        d = ((grid[None] - self.xy[i][:, :, None, None]) ** 2).sum(1)
        maps = np.exp(-d / 8.0)
        return torch.from_numpy(maps.sum(0)[None]), torch.from_numpy(maps)


class SmallUNet(nn.Module):
    def __init__(self, nodes=4):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.mid = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU())
        self.up = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(32, nodes, 3, padding=1))

    def forward(self, x):
        return self.up(self.mid(self.down(x)))


class Callback:
    def on_train_epoch_end(self, trainer):
        pass


class CSVLogger(Callback):
    def __init__(self, path):
        self.path = path

    def on_train_epoch_end(self, trainer):
        if trainer.is_global_zero:
            with open(self.path, "a") as f:
                f.write(f"{trainer.epoch},{trainer.train_loss:.6f}\n")


class ConfmapVisualizer(Callback):
    def __init__(self, dataset, folder, every=2):
        self.dataset, self.folder, self.every = dataset, folder, every

    def on_train_epoch_end(self, trainer):
        if not trainer.is_global_zero:
            return
        if (trainer.epoch + 1) % self.every:
            return
        image, _ = self.dataset[0]
        with torch.no_grad():
            maps = trainer.model.module(image[None])[0]
        np.save(os.path.join(self.folder, f"confmaps_{trainer.epoch:03d}.npy"), maps.numpy())
        trainer.barrier()


class Trainer:
    def __init__(self, model, loader, sampler, callbacks, epochs, lr):
        self.model, self.loader, self.sampler = DDP(model), loader, sampler
        self.callbacks, self.epochs = callbacks, epochs
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.is_global_zero = dist.get_rank() == 0
        self.epoch, self.train_loss = 0, 0.0

    def barrier(self):
        dist.barrier()

    def fit(self):
        for self.epoch in range(self.epochs):
            self.sampler.set_epoch(self.epoch)
            total = 0.0
            for image, maps in self.loader:
                self.optimizer.zero_grad()
                loss = nn.functional.mse_loss(self.model(image), maps)
                loss.backward()
                self.optimizer.step()
                total += loss.item()
            self.train_loss = total / len(self.loader)
            log.info("epoch %d train_loss %.5f", self.epoch, self.train_loss)
            for cb in self.callbacks:
                cb.on_train_epoch_end(self)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=30))
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{dist.get_rank()}] %(message)s")
    torch.manual_seed(0)
    data = KeypointDataset()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    with tempfile.TemporaryDirectory() as out:
        callbacks = [CSVLogger(os.path.join(out, "log.csv")), ConfmapVisualizer(data, out)]
        trainer = Trainer(SmallUNet(), loader, sampler, callbacks, args.epochs, args.lr)
        trainer.fit()
        if trainer.is_global_zero:
            with open(os.path.join(out, "final.json"), "w") as f:
                json.dump({"loss": trainer.train_loss}, f)
    log.info("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
