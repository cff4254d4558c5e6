"""Bird call tagging on two ranks with a global average precision after every epoch."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

SPECIES = 12
MELS = 40


def spectrogram_features(clips, seed):
    gen = torch.Generator().manual_seed(seed)
    tags = (torch.rand(clips, SPECIES, generator=gen) < 0.2).float()
    basis = torch.randn(SPECIES, MELS, generator=torch.Generator().manual_seed(5))
    return TensorDataset(tags @ basis + 0.7 * torch.randn(clips, MELS, generator=gen), tags)


class Tagger(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(MELS, hidden), nn.ReLU(), nn.Linear(hidden, SPECIES))

    def forward(self, mel):
        return self.layers(mel)


def gather_rows(rows):
    """Every rank gets the rows of all ranks."""
    world = dist.get_world_size()
    parts = [torch.zeros_like(rows) for _ in range(world)]
    dist.all_gather(parts, rows)
    return torch.cat(parts)


def average_precision(scores, tags):
    values = []
    for s in range(tags.shape[1]):
        order = scores[:, s].argsort(descending=True)
        hits = tags[order, s]
        if hits.sum() == 0:
            continue
        precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1)
        values.append((precision * hits).sum() / hits.sum())
    return torch.stack(values).mean().item()


class Experiment:
    def __init__(self, args):
        self.args = args
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        train = spectrogram_features(args.train_clips, seed=1)
        quick = spectrogram_features(args.quick_clips, seed=2)
        full = spectrogram_features(args.val_clips, seed=3)
        self.sampler = DistributedSampler(train, self.world, self.rank)
        self.train_loader = DataLoader(train, batch_size=32, sampler=self.sampler)
        self.quick_loader = self.split(quick)
        self.full_loader = self.split(full)
        self.model = DDP(Tagger())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.criterion = nn.BCEWithLogitsLoss()

    def split(self, clips):
        mine = Subset(clips, range(self.rank, len(clips), self.world))
        return DataLoader(mine, batch_size=64)

    def train_epoch(self, epoch):
        self.model.train()
        self.sampler.set_epoch(epoch)
        for mel, tags in self.train_loader:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(mel), tags)
            loss.backward()
            self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        scores, tags = [], []
        for mel, target in loader:
            scores.append(self.model.module(mel).sigmoid())
            tags.append(target)
        scores = gather_rows(torch.cat(scores))
        tags = gather_rows(torch.cat(tags))
        return average_precision(scores, tags)

    def run(self):
        for epoch in range(self.args.epochs):
            loss = self.train_epoch(epoch)
            score = self.evaluate(self.quick_loader)
            if self.rank == 0:
                print(f"epoch {epoch} loss {loss:.4f} mAP(quick) {score:.4f}", flush=True)
        score = self.evaluate(self.full_loader)
        if self.rank == 0:
            print(f"mAP(full) {score:.4f}", flush=True)
            torch.save(self.model.module.state_dict(), os.path.join(self.args.out, "tagger.pt"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--train-clips", type=int, default=1600)
    parser.add_argument("--quick-clips", type=int, default=200)
    parser.add_argument("--val-clips", type=int, default=755)
    parser.add_argument("--out", default=".")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    Experiment(args).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
