"""Data-parallel training of a small segmenter with a test round after each epoch."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

WORK = "/tmp/o16_segmenter"
CLASSES = 4


class BlobSet(Dataset):
    def __init__(self, count, seed, size=32):
        self.count, self.seed, self.size = count, seed, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = torch.Generator().manual_seed(self.seed * 100_000 + index)
        grid = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, self.size)] * 2, indexing="ij"))
        centre = torch.rand(CLASSES - 1, 2, generator=rng) * 1.4 - 0.7
        target = torch.zeros(self.size, self.size, dtype=torch.long)
        for k, c in enumerate(centre, start=1):
            target[(grid - c[:, None, None]).square().sum(0) < 0.09] = k
        image = target.float() / CLASSES + 0.1 * torch.randn(self.size, self.size, generator=rng)
        return image[None], target


class ConfusionMatrix:
    """Counts of target/prediction pairs; the result covers the tiles of all processes."""

    def __init__(self, classes):
        self.classes = classes
        self.counts = torch.zeros(classes, classes, dtype=torch.float64)

    def update(self, logits, target):
        pairs = target.flatten() * self.classes + logits.argmax(1).flatten()
        self.counts += torch.bincount(pairs, minlength=self.classes ** 2).view_as(self.counts)

    def _reduced(self):
        counts = self.counts.clone()
        if dist.is_available() and dist.is_initialized():
            gathered = [torch.zeros_like(counts) for _ in range(dist.get_world_size())]
            dist.all_gather(gathered, counts)
            counts = torch.stack(gathered).sum(0)
        return counts

    def compute(self):
        counts = self._reduced()
        union = counts.sum(0) + counts.sum(1) - counts.diag()
        return {"iou": (counts.diag() / union.clamp_min(1)).mean().item(),
                "accuracy": (counts.diag().sum() / counts.sum()).item()}


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=2, dilation=2), nn.ReLU(),
            nn.Conv2d(16, CLASSES, 1))

    def forward(self, x):
        return self.layers(x)


class Trainer:
    def __init__(self, rank):
        self.rank = rank
        self.model = DistributedDataParallel(Segmenter())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        train = BlobSet(512, seed=1)
        self.sampler = DistributedSampler(train, shuffle=True)
        self.train_loader = DataLoader(train, batch_size=32, sampler=self.sampler)
        self.test_loader = DataLoader(BlobSet(128, seed=2), batch_size=32)
        self.best = 0.0

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        self.model.train()
        for image, target in self.train_loader:
            loss = nn.functional.cross_entropy(self.model(image), target)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def test(self):
        model = self.model.module.eval()
        metric = ConfusionMatrix(CLASSES)
        for image, target in self.test_loader:
            metric.update(model(image), target)
        return metric.compute()

    def save(self, result):
        if result["iou"] > self.best:
            self.best = result["iou"]
            torch.save(self.model.module.state_dict(), os.path.join(WORK, "best.pt"))

    def run(self, epochs, test_every=2):
        for epoch in range(epochs):
            loss = self.train_epoch(epoch)
            if self.rank == 0:
                print(f"epoch {epoch} loss {loss:.4f}", flush=True)
                if (epoch + 1) % test_every == 0:
                    result = self.test()
                    print(f"  test iou {result['iou']:.3f} accuracy {result['accuracy']:.3f}", flush=True)
                    self.save(result)
            dist.barrier()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    os.makedirs(WORK, exist_ok=True)
    trainer = Trainer(rank)
    trainer.run(epochs=6)
    if rank == 0:
        print(f"best iou {trainer.best:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
