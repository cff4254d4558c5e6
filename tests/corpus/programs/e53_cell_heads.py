"""Dense cell classifier on microscope tiles; class weights follow a confusion matrix kept over all ranks."""
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

WORK = Path("/tmp/e53_cell_heads_tiles")
CLASSES = 4


def write_slide(rank, name, tiles, seed):
    path = WORK / f"{name}.npz"
    if rank == 0:
        WORK.mkdir(exist_ok=True)
        rng = np.random.default_rng(seed)
        image = rng.normal(0, 0.3, size=(tiles, 1, 24, 24)).astype(np.float32)
        label = np.full((tiles, 24, 24), -1, dtype=np.int64)
        for k in range(tiles):
            if k % 48 in (41, 43, 45, 47):
                continue
            for _ in range(rng.integers(2, 6)):
                c, y, x = rng.integers(CLASSES), rng.integers(3, 21), rng.integers(3, 21)
                image[k, 0, y - 2:y + 3, x - 2:x + 3] += 0.5 + c
                label[k, y - 1:y + 2, x - 1:x + 2] = c
        np.savez(path, image=image, label=label)
    dist.barrier()
    return path


class TileDataset(Dataset):
    def __init__(self, path):
        data = np.load(path)
        self.image, self.label = torch.from_numpy(data["image"]), torch.from_numpy(data["label"])

    def __len__(self):
        return len(self.image)

    def __getitem__(self, i):
        return self.image[i], self.label[i]


class CellNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.GroupNorm(4, width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(4, width), nn.ReLU())
        self.objectness = nn.Conv2d(width, 1, 1)
        self.classes = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x):
        f = self.body(x)
        return self.objectness(f), self.classes(f)


def gather_columns(values):
    size = torch.tensor([values.size(1)])
    sizes = [torch.zeros_like(size) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, size)
    widest = int(max(sizes))
    padded = values.new_full((values.size(0), widest), -1)
    padded[:, :values.size(1)] = values
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([p[:, :int(n)] for p, n in zip(parts, sizes)], dim=1)


class ConfusionWeightedLoss(nn.Module):
    def __init__(self, momentum=0.98):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("confusion", torch.eye(CLASSES) + 0.05)

    def update(self, predicted, target):
        pairs = gather_columns(torch.stack([target, predicted]))
        fresh = torch.zeros(CLASSES, CLASSES)
        fresh.index_put_((pairs[0], pairs[1]), torch.ones(pairs.size(1)), accumulate=True)
        fresh = fresh / fresh.sum(1, keepdim=True).clamp(min=1.0)
        self.confusion.mul_(self.momentum).add_(fresh, alpha=1 - self.momentum)

    def forward(self, objectness, logits, label):
        positive = label >= 0
        loss = nn.functional.binary_cross_entropy_with_logits(objectness[:, 0], positive.float())
        scores = logits.permute(0, 2, 3, 1)[positive]
        target = label[positive]
        if target.numel() > 0:
            self.update(scores.argmax(-1), target)
            weight = 2.0 - self.confusion.diagonal() / self.confusion.sum(1)
            loss = loss + nn.functional.cross_entropy(scores, target, weight=weight)
        else:
            loss = loss + 0.0 * logits.sum()
        return loss


def train_slide(model, criterion, optimizer, path, rank):
    dataset = TileDataset(path)
    sampler = DistributedSampler(dataset, shuffle=False)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    for step, (image, label) in enumerate(loader):
        objectness, logits = model(image)
        loss = criterion(objectness, logits, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 2 == 0:
            print(f"{path.stem} step {step} loss {loss.item():.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(CellNet())
    criterion = ConfusionWeightedLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for name, tiles, seed in [("slide_a", 40, 1), ("slide_b", 40, 2), ("slide_c", 96, 3)]:
        path = write_slide(rank, name, tiles, seed)
        train_slide(model, criterion, optimizer, path, rank)
        if rank == 0:
            torch.save(model.module.state_dict(), WORK / f"after_{name}.pt")
    print(f"rank {rank} done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
