"""Multi-view depth training; every GPU packs sequences of a random number of frames into its batches."""
import argparse
import logging
import random

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger("trainer")


class SequenceDataset(Dataset):
    def __init__(self, num_sequences, frames, size, seed):
        g = torch.Generator().manual_seed(seed)
        self.scale = torch.rand(num_sequences, generator=g) + 0.5
        self.frames, self.size = frames, size

    def __len__(self):
        return len(self.scale)

    def __getitem__(self, item):
        index, num_images = item
        g = torch.Generator().manual_seed(index)
        images = torch.rand(num_images, 3, self.size, self.size, generator=g)
        return images, images.mean(dim=1, keepdim=True) * self.scale[index]


class DynamicBatchSampler(Sampler):
    def __init__(self, sampler, image_num_range, max_img_per_gpu, seed, rank):
        self.sampler = sampler
        self.image_num_range = image_num_range
        self.max_img_per_gpu = max_img_per_gpu
        self.seed, self.rank = seed, rank
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch
        self.sampler.set_epoch(epoch)

    def __iter__(self):
        rng = random.Random(self.seed + self.epoch * 1000 + self.rank)
        indices = iter(list(self.sampler))
        exhausted = False
        while not exhausted:
            num_images = rng.randint(*self.image_num_range)
            batch_size = max(1, self.max_img_per_gpu // num_images)
            batch = []
            for _ in range(batch_size):
                try:
                    batch.append((next(indices), num_images))
                except StopIteration:
                    exhausted = True
                    break
            if batch:
                yield batch


class DepthAggregator(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.GELU(),
                                  nn.Conv2d(width, width, 3, padding=1), nn.GELU())
        self.frame_mix = nn.Linear(width, width)
        self.depth_head = nn.Conv2d(width, 1, 1)

    def forward(self, images):
        b, s = images.shape[:2]
        x = self.stem(images.flatten(0, 1))
        context = x.mean(dim=(2, 3)).view(b, s, -1).mean(dim=1, keepdim=True).expand(b, s, -1)
        x = x + self.frame_mix(context).reshape(b * s, -1, 1, 1)
        return self.depth_head(x).view(b, s, 1, *x.shape[-2:])


class Trainer:
    def __init__(self, args, rank, world):
        self.args, self.rank = args, rank
        train_set = SequenceDataset(args.sequences, 24, 24, seed=1)
        sampler = DistributedSampler(train_set, world, rank, shuffle=True, seed=args.seed)
        self.batches = DynamicBatchSampler(sampler, args.image_num_range, args.max_img_per_gpu, args.seed, rank)
        self.loader = DataLoader(train_set, batch_sampler=self.batches)
        self.model = DDP(DepthAggregator(16))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def train_epoch(self, epoch):
        self.batches.set_epoch(epoch)
        self.model.train()
        seen = 0
        for step, (images, depth) in enumerate(self.loader):
            loss = F.l1_loss(self.model(images), depth)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            seen += images.size(0)
            if self.rank == 0 and step % 5 == 0:
                log.info("epoch %d step %d images %s loss %.4f", epoch, step, tuple(images.shape[:2]), loss.item())
        return seen

    def run(self):
        for epoch in range(self.args.max_epochs):
            seen = self.train_epoch(epoch)
            log.info("rank %d epoch %d finished, %d sequences", self.rank, epoch, seen)
            dist.barrier()
            if self.rank == 0:
                log.info("epoch %d checkpoint: %d tensors", epoch, len(self.model.module.state_dict()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_epochs", type=int, default=3)
    parser.add_argument("--sequences", type=int, default=120)
    parser.add_argument("--max_img_per_gpu", type=int, default=24)
    parser.add_argument("--image_num_range", type=int, nargs=2, default=(2, 24))
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    Trainer(args, dist.get_rank(), dist.get_world_size()).run()
    log.info("rank %d done", dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
