"""Fine-tune a review classifier on several processes and test the best checkpoint.

torchrun --standalone --nproc-per-node 2 h106_reviews.py --output-dir out
"""
import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

VOCAB, LABELS = 60_000, 5


def make_reviews(num_reviews, seed, length=48):
    gen = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, LABELS, (num_reviews,), generator=gen)
    tokens = torch.randint(LABELS, VOCAB, (num_reviews, length), generator=gen)
    tokens[:, :6] = labels[:, None]
    return TensorDataset(tokens, labels)


class ReviewClassifier(nn.Module):
    def __init__(self, dim=128):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.encoder = nn.GRU(dim, dim, batch_first=True)
        self.classify = nn.Linear(dim, LABELS)

    def forward(self, tokens):
        states, _ = self.encoder(self.embed(tokens))
        return self.classify(states.mean(1))


class Trainer:
    def __init__(self, args, rank, world_size):
        self.args, self.rank = args, rank
        train, self.test = make_reviews(640, seed=1), make_reviews(512, seed=3)
        self.sampler = DistributedSampler(train, world_size, rank, seed=7)
        self.train_loader = DataLoader(train, batch_size=32, sampler=self.sampler)
        valid = make_reviews(512, seed=2)
        self.valid_loader = DataLoader(valid, batch_size=64,
                                       sampler=DistributedSampler(valid, world_size, rank, shuffle=False))
        self.model = DDP(ReviewClassifier())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.best_loss, self.best_checkpoint, self.step = float("inf"), None, 0

    def train_epoch(self, epoch):
        self.model.train()
        self.sampler.set_epoch(epoch)
        for tokens, labels in self.train_loader:
            loss = nn.functional.cross_entropy(self.model(tokens), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step += 1

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        total = torch.zeros(2)
        for tokens, labels in self.valid_loader:
            loss = nn.functional.cross_entropy(self.model.module(tokens), labels, reduction="sum")
            total += torch.tensor([loss.item(), len(labels)])
        dist.all_reduce(total)
        return (total[0] / total[1]).item()

    def save_checkpoint(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        state = {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "step": self.step}
        partial = path.with_suffix(".tmp")
        with open(partial, "wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())
        os.replace(partial, path)

    def fit(self):
        for epoch in range(self.args.epochs):
            self.train_epoch(epoch)
            loss = self.evaluate()
            if self.rank == 0:
                print(f"epoch {epoch} step {self.step}: validation loss {loss:.4f}", flush=True)
            if loss < self.best_loss:
                self.best_loss = loss
                self.best_checkpoint = Path(self.args.output_dir, f"checkpoint-{self.step}", "state.pt")
                if self.rank == 0:
                    self.save_checkpoint(self.best_checkpoint)
        state = torch.load(self.best_checkpoint, map_location="cpu")
        self.model.module.load_state_dict(state["model"])
        return state["step"]

    @torch.no_grad()
    def predict(self):
        self.model.eval()
        hits = sum((self.model.module(t).argmax(1) == y).sum().item() for t, y in DataLoader(self.test, 64))
        return hits / len(self.test)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output-dir", default="out")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    trainer = Trainer(args, dist.get_rank(), dist.get_world_size())
    best_step = trainer.fit()
    print(f"[rank {trainer.rank}] best step {best_step}: test accuracy {trainer.predict():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
