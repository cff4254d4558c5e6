import argparse
import logging
import math
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
log = logging.getLogger("mixer")


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


class SceneTiles(Dataset):
    def __init__(self, n, size, num_classes, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, num_classes, n)
        yy, xx = np.mgrid[0:size, 0:size] / size
        self.images = np.empty((n, 3, size, size), dtype=np.float32)
        for i, c in enumerate(self.labels):
            angle = math.pi * c / num_classes
            wave = np.sin(2 * math.pi * (3 + c % 4) * (xx * math.cos(angle) + yy * math.sin(angle)))
            self.images[i] = wave + 0.6 * rng.standard_normal((3, size, size))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i]), int(self.labels[i])


class MlpBlock(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.fc0 = nn.Linear(dim, hidden)
        self.act = nn.GELU()
        self.fc1 = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc1(self.act(self.fc0(x)))


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.pre_norm = nn.LayerNorm(dim)
        self.token_mixing = MlpBlock(tokens, tokens * 2)
        self.post_norm = nn.LayerNorm(dim)
        self.channel_mixing = MlpBlock(dim, dim * 2)

    def forward(self, x):
        x = x + self.token_mixing(self.pre_norm(x).transpose(-1, -2)).transpose(-1, -2)
        return x + self.channel_mixing(self.post_norm(x))


class MlpMixer(nn.Module):
    def __init__(self, num_classes, size, patch, dim=64, depth=4):
        super().__init__()
        self.num_classes = num_classes
        self.stem = nn.Conv2d(3, dim, kernel_size=patch, stride=patch)
        self.blocks = nn.ModuleList(MixerBlock((size // patch) ** 2, dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, x, labels=None):
        x = self.stem(x).flatten(2).transpose(-1, -2)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x).mean(dim=1))
        if labels is not None:
            return nn.functional.cross_entropy(logits.view(-1, self.num_classes), labels.view(-1))
        return logits


def valid(args, model, loader, global_step):
    model.eval()
    losses, preds, truth = AverageMeter(), [], []
    loss_fct = nn.CrossEntropyLoss()
    log.info("running validation: %d tiles, batch size %d", len(loader.dataset), args.eval_batch_size)
    for x, y in loader:
        with torch.no_grad():
            logits = model(x)[0]
            losses.update(loss_fct(logits, y).item(), len(y))
            preds.append(logits.argmax(dim=-1))
        truth.append(y)
    acc = (torch.cat(preds) == torch.cat(truth)).float().mean().item()
    log.info("step %d valid loss %.4f accuracy %.4f", global_step, losses.avg, acc)
    return acc


def train(args):
    torch.manual_seed(args.seed)
    train_loader = DataLoader(SceneTiles(1024, 32, args.num_classes, 1), batch_size=args.train_batch_size, shuffle=True)
    test_loader = DataLoader(SceneTiles(512, 32, args.num_classes, 2), batch_size=args.eval_batch_size)
    model = MlpMixer(args.num_classes, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.num_steps)
    step, best, losses, t0 = 0, 0.0, AverageMeter(), time.time()
    while step < args.num_steps:
        model.train()
        for x, y in train_loader:
            loss = model(x, y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            losses.update(loss.item(), len(y))
            step += 1
            if step % 10 == 0:
                log.info("step %d/%d loss %.4f (%.1fs)", step, args.num_steps, losses.avg, time.time() - t0)
            if step % args.eval_every == 0:
                best = max(best, valid(args, model, test_loader, step))
                model.train()
            if step >= args.num_steps:
                break
    log.info("best accuracy %.4f", best)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_classes", type=int, default=10)
    parser.add_argument("--train_batch_size", type=int, default=64)
    parser.add_argument("--eval_batch_size", type=int, default=256)
    parser.add_argument("--eval_every", type=int, default=10)
    parser.add_argument("--num_steps", type=int, default=40)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=42)
    train(parser.parse_args())
