import argparse
import logging
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("style")


class Photos(Dataset):
    """Small landscapes: sky, hills and a sun, in [-1, 1]."""

    def __init__(self, count, size=64, seed=0):
        self.count, self.size, self.seed = count, size, seed

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng(self.seed * 100003 + i)
        yy, xx = np.mgrid[0:self.size, 0:self.size] / self.size
        img = np.stack([0.3 + 0.3 * yy, 0.5 + 0.2 * yy, 0.9 - 0.2 * yy])
        hill = 0.55 + 0.1 * np.sin(rng.uniform(4, 12) * xx + rng.uniform(0, 6))
        img = np.where(yy > hill, rng.uniform(0.1, 0.6, 3)[:, None, None], img)
        cy, cx, kind = rng.uniform(0.1, 0.4), rng.uniform(0.1, 0.9), int(rng.integers(0, 4))
        img[kind % 3] += np.exp(-((yy - cy) ** 2 + (xx - cx) ** 2) / 0.01)
        return torch.from_numpy(np.clip(img, 0, 1).astype(np.float32) * 2 - 1), kind


def imagenet_normalize(batch):
    """[-1, 1] to what the feature network was trained with."""
    mean = batch.new_tensor([0.485, 0.456, 0.406]).view(-1, 1, 1)
    std = batch.new_tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)
    batch.add_(1.0).div_(2.0)
    batch.sub_(mean).div_(std)
    return batch


def gram_matrix(f):
    b, c, h, w = f.shape
    f = f.reshape(b, c, h * w)
    return f @ f.transpose(1, 2) / (c * h * w)


class FeatureNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.slices = nn.ModuleList([
            nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()),
            nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()),
            nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(32, 48, 3, padding=1), nn.ReLU())])
        self.head = nn.Linear(48, classes)

    def forward(self, x):
        feats = []
        for s in self.slices:
            x = s(x)
            feats.append(x)
        return feats

    def classify(self, x):
        return self.head(self.forward(x)[-1].mean((2, 3)))


class TransformerNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(3, 16, 9, padding=4), nn.InstanceNorm2d(16, affine=True), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.InstanceNorm2d(32, affine=True), nn.ReLU())
        self.res = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.InstanceNorm2d(32, affine=True), nn.ReLU())
        self.up = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(32, 3, 9, padding=4), nn.Tanh())

    def forward(self, x):
        x = self.down(x)
        return self.up(x + self.res(x))


def train_features(net, steps):
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    loader = DataLoader(Photos(steps * 8, seed=1), batch_size=8)
    for i, (x, kind) in enumerate(loader):
        loss = F.cross_entropy(net.classify(imagenet_normalize(x)), kind)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (i + 1) % 20 == 0:
            log.info("feature network step %d loss %.3f", i + 1, loss.item())
    return net.requires_grad_(False).eval()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--images", type=int, default=240)
    ap.add_argument("--content-weight", type=float, default=1.0)
    ap.add_argument("--style-weight", type=float, default=50.0)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(42)
    vgg = train_features(FeatureNet(), 60)
    style = Photos(1, seed=9)[0][0].unsqueeze(0)
    style_grams = [gram_matrix(f) for f in vgg(imagenet_normalize(style))]
    transformer = TransformerNet()
    opt = torch.optim.Adam(transformer.parameters(), lr=1e-3)
    loader = DataLoader(Photos(args.images), batch_size=4, shuffle=True)
    log.info("training the transformer on %d images", args.images)
    for step, (x, _) in enumerate(loader):
        y = transformer(x)
        feats_y = vgg(imagenet_normalize(y))
        feats_x = vgg(imagenet_normalize(x.clone()))
        content = args.content_weight * F.mse_loss(feats_y[1], feats_x[1])
        style_loss = sum(F.mse_loss(gram_matrix(f), g.expand(len(x), -1, -1)) for f, g in zip(feats_y, style_grams))
        loss = content + args.style_weight * style_loss
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % 10 == 0:
            log.info("%s step %d content %.4f style %.4f", time.ctime(), step + 1, content.item(), style_loss.item())
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "style.pth")
        torch.save(transformer.state_dict(), path)
        log.info("saved %d bytes", os.path.getsize(path))


if __name__ == "__main__":
    main()
