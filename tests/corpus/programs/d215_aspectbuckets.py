"""Latent denoiser fine-tuning on images of many shapes, batched by aspect ratio."""
import argparse
import logging
import random
import time
from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

logger = logging.getLogger("train")
SIZES = [(1024, 1024), (1365, 1024), (1024, 1365), (2048, 2048), (2730, 2048), (1536, 1536), (2048, 2730), (1820, 1024)]


def prepare(image, resolution):
    """Scales so that the shorter edge has `resolution` pixels, and crops both edges to a multiple of 8."""
    height, width = image.shape[-2:]
    if min(height, width) > resolution:
        scale = resolution / min(height, width)
        image = F.interpolate(image[None], size=(round(height * scale), round(width * scale)), mode="area")[0]
    height, width = image.shape[-2:]
    return image[:, : height // 8 * 8, : width // 8 * 8]


class PhotoFolder(Dataset):
    def __init__(self, count, resolution, shrink, seed):
        rng = random.Random(seed)
        self.resolution, self.seed = resolution, seed
        self.sizes = []
        for _ in range(count):
            width, height = rng.choice(SIZES)
            if rng.random() < 0.04:
                width, height = width * 3 // 4, height * 3 // 4
            self.sizes.append((width // shrink, height // shrink))

    def __len__(self):
        return len(self.sizes)

    def aspect(self, index):
        width, height = self.sizes[index]
        return round(width / height, 2)

    def __getitem__(self, index):
        width, height = self.sizes[index]
        generator = torch.Generator().manual_seed(self.seed * 100003 + index)
        coarse = torch.rand(3, 8, 8, generator=generator)
        image = F.interpolate(coarse[None], size=(height, width), mode="bilinear", align_corners=False)[0]
        return {"pixels": prepare(image, self.resolution), "caption": torch.randint(0, 500, (12,), generator=generator)}


class AspectBuckets(Sampler):
    """Batches whose images all come from the same aspect ratio bucket."""

    def __init__(self, data, batch_size, seed):
        self.batch_size, self.random = batch_size, random.Random(seed)
        self.buckets = defaultdict(list)
        for index in range(len(data)):
            self.buckets[data.aspect(index)].append(index)
        for aspect, members in sorted(self.buckets.items()):
            logger.info("bucket %.2f: %d images", aspect, len(members))

    def __iter__(self):
        batches = []
        for members in self.buckets.values():
            order = self.random.sample(members, len(members))
            batches += [order[i:i + self.batch_size] for i in range(0, len(order) - self.batch_size + 1, self.batch_size)]
        self.random.shuffle(batches)
        return iter(batches)

    def __len__(self):
        return sum(len(m) // self.batch_size for m in self.buckets.values())


def collate_fn(examples):
    return {"pixels": torch.stack([e["pixels"] for e in examples]), "caption": torch.stack([e["caption"] for e in examples])}


class Denoiser(nn.Module):
    def __init__(self, channels=4, width=48):
        super().__init__()
        self.encode = nn.Conv2d(3, channels, 8, stride=8)
        self.words = nn.Embedding(500, width)
        self.enter = nn.Conv2d(channels, width, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
        self.leave = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, pixels, caption, noise_level):
        with torch.no_grad():
            latents = self.encode(pixels * 2 - 1)
        noise = torch.randn_like(latents)
        level = noise_level.view(-1, 1, 1, 1)
        h = self.enter((1 - level) * latents + level * noise) + self.words(caption).mean(1)[:, :, None, None]
        for block in self.blocks:
            h = h + F.silu(block(h))
        return F.mse_loss(self.leave(h), noise)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resolution", type=int, default=1024)
    parser.add_argument("--shrink", type=int, default=4)
    parser.add_argument("--images", type=int, default=280)
    parser.add_argument("--train-batch-size", type=int, default=4)
    parser.add_argument("--num-epochs", type=int, default=1)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = PhotoFolder(args.images, args.resolution // args.shrink, args.shrink, seed=11)
    train_dataloader = DataLoader(data, batch_sampler=AspectBuckets(data, args.train_batch_size, seed=5),
                                  collate_fn=lambda examples: collate_fn(examples))
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    logger.info("%d images, %d steps an epoch", len(data), len(train_dataloader))
    for epoch in range(args.num_epochs):
        start = time.time()
        for step, batch in enumerate(train_dataloader):
            loss = model(batch["pixels"], batch["caption"], torch.rand(len(batch["pixels"])))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 5 == 0:
                logger.info("epoch %d step %d loss %.4f (%.1fs)", epoch, step, loss.item(), time.time() - start)
    logger.info("finished")


if __name__ == "__main__":
    main()
