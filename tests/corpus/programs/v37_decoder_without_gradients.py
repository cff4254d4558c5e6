import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


class DecodeHead(nn.Module):
    def __init__(self, channels, num_classes):
        super().__init__()
        self.lateral = nn.Conv2d(channels, channels, 1)
        self.fpn = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv_seg = nn.Conv2d(channels, num_classes, 1)

    def forward(self, features):
        with torch.no_grad():
            prior = torch.relu(self.lateral(features))
            prior = torch.sigmoid(self.fpn(prior))
        return self.conv_seg(features * prior)


class EncoderDecoder(nn.Module):
    def __init__(self, num_classes=5):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.decode_head = DecodeHead(16, num_classes)

    def forward(self, img, gt):
        logits = self.decode_head(self.backbone(img))
        logits = F.interpolate(logits, size=gt.shape[-2:], mode="bilinear", align_corners=False)
        return F.cross_entropy(logits, gt)


def train_segmentor(iters):
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(EncoderDecoder())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for i in range(iters):
        img, gt = torch.randn(2, 3, 32, 32), torch.randint(0, 5, (2, 32, 32))
        loss = model(img, gt)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"[rank {rank}] iter {i + 1}/{iters} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train_segmentor(20)
    dist.destroy_process_group()
