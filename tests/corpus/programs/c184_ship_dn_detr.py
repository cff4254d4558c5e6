import argparse
import logging
import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

IMG = 48


class LevirShip(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.items = []
        for _ in range(count):
            image = rng.normal(0, 0.1, (1, IMG, IMG)).astype(np.float32)
            ships = int(rng.integers(1, 4)) if rng.random() > 0.49 else 0
            boxes = []
            for _ in range(ships):
                w, h = rng.integers(5, 14, 2)
                x, y = rng.integers(0, IMG - 14, 2)
                image[0, y:y + h, x:x + w] += 1
                boxes.append([(x + w / 2) / IMG, (y + h / 2) / IMG, w / IMG, h / IMG])
            boxes = torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4)
            self.items.append((torch.from_numpy(image), boxes))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    return torch.stack([image for image, _ in batch]), [boxes for _, boxes in batch]


def contrastive_denoising_group(targets, num_denoising, class_embed, noise=0.4):
    num_gts = [len(t) for t in targets]
    max_gt = max(num_gts)
    if max_gt == 0:
        return None, None, None
    groups = max(1, num_denoising // max_gt)
    boxes = torch.zeros(len(targets), max_gt, 4)
    valid = torch.zeros(len(targets), max_gt, dtype=torch.bool)
    for i, t in enumerate(targets):
        boxes[i, :len(t)] = t
        valid[i, :len(t)] = True
    boxes, valid = boxes.repeat(1, groups, 1), valid.repeat(1, groups)
    noisy = (boxes + (torch.rand_like(boxes) * 2 - 1) * noise * 0.1).clamp(0, 1)
    queries = class_embed(valid.long())
    return torch.cat([queries, noisy], -1), boxes, valid


class DetrShip(nn.Module):
    def __init__(self, dim=64, queries=20, num_denoising=40):
        super().__init__()
        self.num_denoising = num_denoising
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 32, 5, 4, 2), nn.ReLU(), nn.Conv2d(32, dim, 3, 2, 1), nn.ReLU())
        self.query = nn.Embedding(queries, dim)
        self.denoising_class_embed = nn.Embedding(2, dim - 4)
        self.decoder = nn.TransformerDecoderLayer(dim, 4, 128, dropout=0.0, batch_first=True)
        self.score = nn.Linear(dim, 1)
        self.bbox = nn.Linear(dim, 4)

    def forward(self, images, targets):
        memory = self.backbone(images).flatten(2).transpose(1, 2)
        query = self.query.weight[None].expand(len(images), -1, -1)
        dn_query, dn_boxes, dn_valid = contrastive_denoising_group(
            targets, self.num_denoising, self.denoising_class_embed)
        n = query.size(1)
        if dn_query is not None:
            query = torch.cat([query, dn_query], 1)
        hidden = self.decoder(query, memory)
        score, boxes = self.score(hidden)[..., 0], self.bbox(hidden).sigmoid()
        out = {"score": score[:, :n], "boxes": boxes[:, :n]}
        if dn_query is not None:
            out["dn"] = (boxes[:, n:], dn_boxes, dn_valid)
        return out


def criterion(out, targets):
    wanted = torch.zeros_like(out["score"])
    loss_box = out["boxes"].sum() * 0
    for i, gt in enumerate(targets):
        if len(gt):
            matched = torch.cdist(gt, out["boxes"][i].detach(), p=1).argmin(1)
            wanted[i, matched] = 1
            loss_box = loss_box + F.l1_loss(out["boxes"][i, matched], gt)
    losses = {"loss_vfl": F.binary_cross_entropy_with_logits(out["score"], wanted), "loss_bbox": loss_box}
    if "dn" in out:
        pred, boxes, valid = out["dn"]
        losses["loss_bbox_dn"] = F.l1_loss(pred[valid], boxes[valid])
    return losses


def reduce_dict(losses):
    names = sorted(losses)
    values = torch.stack([losses[k].detach() for k in names])
    dist.all_reduce(values)
    return dict(zip(names, (values / dist.get_world_size()).tolist()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--images", type=int, default=480)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(format=f"%(asctime)s [rank {rank}] %(message)s", datefmt="%H:%M:%S", level=logging.INFO)
    torch.manual_seed(0)
    dataset = LevirShip(args.images, 7)
    sampler = DistributedSampler(dataset, seed=3)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, collate_fn=collate, drop_last=True)
    model = DDP(DetrShip())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for step, (images, targets) in enumerate(loader):
            losses = criterion(model(images, targets), targets)
            optimizer.zero_grad()
            sum(losses.values()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            reduced = reduce_dict(losses)
            if rank == 0 and step % 5 == 0:
                logging.info("epoch %d step %d/%d %s", epoch, step, len(loader),
                             " ".join(f"{k} {v:.4f}" for k, v in reduced.items()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
