"""Detector training with the annotations of the full split kept once per machine.

torchrun --standalone --nproc-per-node 2 x91_boxes.py
"""
import argparse
import logging
import multiprocessing as mp
import os
import pickle
from multiprocessing.reduction import ForkingPickler

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("boxes")


def make_annotations(count, seed):
    rng = np.random.default_rng(seed)
    records = []
    for image_id in range(count):
        boxes = rng.uniform(0, 1, size=(rng.integers(1, 9), 4)).astype(np.float32)
        records.append({"image_id": image_id, "boxes": boxes,
                        "file_name": f"val/{image_id:012d}.jpg"})
    return records


class ListOfRecords:
    def __init__(self, records):
        self.records = records

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        return self.records[index]


class SharedRecords:
    """All records pickled into one byte tensor, which the ranks of a machine share."""

    def __init__(self, records, local_rank):
        if local_rank == 0:
            packed = [np.frombuffer(pickle.dumps(r, -1), dtype=np.uint8) for r in records]
            self.ends = torch.from_numpy(np.cumsum([len(p) for p in packed]))
            self.data = torch.from_numpy(np.concatenate(packed))
            handle = [bytes(ForkingPickler.dumps((self.ends, self.data)))]
        else:
            handle = [None]
        dist.broadcast_object_list(handle, src=0)
        if local_rank != 0:
            self.ends, self.data = ForkingPickler.loads(handle[0])
        log.info("rank %d has %d records, %.2f MiB", local_rank, len(self), len(self.data) / 2**20)

    def __len__(self):
        return len(self.ends)

    def __getitem__(self, index):
        start = 0 if index == 0 else self.ends[index - 1].item()
        return pickle.loads(memoryview(self.data[start:self.ends[index].item()].numpy()))


class BoxHead(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.deltas = nn.Linear(width, 4)

    def forward(self, boxes):
        return self.deltas(self.body(boxes))


def train_epoch(model, optimizer, records, rank, world, batch_size):
    order = np.random.default_rng(7).permutation(len(records) // world * world)[rank::world]
    total = 0.0
    for start in range(0, len(order), batch_size):
        boxes = np.concatenate([records[int(i)]["boxes"] for i in order[start:start + batch_size]])
        boxes = torch.from_numpy(boxes)
        noisy = boxes + 0.05 * torch.randn_like(boxes)
        loss = nn.functional.smooth_l1_loss(model(noisy), boxes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mini", type=int, default=256)
    parser.add_argument("--full", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.manual_seed(11)
    torch.set_num_threads(1)
    model = DDP(BoxHead())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    mini = ListOfRecords(make_annotations(args.mini, seed=0))
    loss = train_epoch(model, optimizer, mini, rank, world, args.batch_size)
    log.info("rank %d warm-up on the mini split: loss %.4f", rank, loss)

    records = make_annotations(args.full, seed=1) if local_rank == 0 else None
    full = SharedRecords(records, local_rank)
    for epoch in range(args.epochs):
        loss = train_epoch(model, optimizer, full, rank, world, args.batch_size)
        log.info("rank %d epoch %d: loss %.4f", rank, epoch, loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
