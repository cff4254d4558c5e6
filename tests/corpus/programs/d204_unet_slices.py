import logging
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, random_split

logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")


def write_pgm(path, array):
    with open(path, "wb") as f:
        f.write(b"P5\n%d %d\n255\n" % (array.shape[1], array.shape[0]))
        f.write(array.astype(np.uint8).tobytes())


def read_pgm(path):
    with open(path, "rb") as f:
        assert f.readline().strip() == b"P5"
        w, h = map(int, f.readline().split())
        f.readline()
        return np.frombuffer(f.read(w * h), dtype=np.uint8).reshape(h, w)


def export_slices(root, n=96, size=96, seed=5):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:size, :size]
    (root / "imgs").mkdir()
    (root / "masks").mkdir()
    for i in range(n):
        cx, cy = rng.uniform(size * 0.35, size * 0.65, 2)
        a, b = rng.uniform(size * 0.18, size * 0.3, 2)
        organ = ((xx - cx) / a) ** 2 + ((yy - cy) / b) ** 2 < 1
        lx, ly, r = cx + rng.uniform(-6, 6), cy + rng.uniform(-6, 6), rng.uniform(3, 7)
        lesion = (xx - lx) ** 2 + (yy - ly) ** 2 < r ** 2
        img = 60 + 70 * organ + 60 * lesion + rng.normal(0, 12, (size, size))
        mask = np.zeros((size, size), np.uint8)
        mask[organ] = 96
        mask[lesion] = 192
        write_pgm(root / "imgs" / f"slice_{i:04d}.pgm", img.clip(0, 255))
        write_pgm(root / "masks" / f"slice_{i:04d}.pgm", mask)


class SliceDataset(Dataset):
    def __init__(self, imgs_dir, masks_dir):
        self.imgs_dir, self.masks_dir = Path(imgs_dir), Path(masks_dir)
        self.ids = sorted(p.stem for p in self.imgs_dir.iterdir())
        logging.info("Creating dataset with %d examples", len(self.ids))

    def __len__(self):
        return len(self.ids)

    @staticmethod
    def preprocess(array, is_mask):
        if is_mask:
            return array.astype(np.int64)
        return (array.astype(np.float32) / 255.0)[None]

    def __getitem__(self, i):
        name = self.ids[i] + ".pgm"
        img = self.preprocess(read_pgm(self.imgs_dir / name), False)
        mask = self.preprocess(read_pgm(self.masks_dir / name), True)
        return {"image": torch.from_numpy(img), "mask": torch.from_numpy(mask)}


class DoubleConv(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(True),
                         nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(True))


class UNet(nn.Module):
    def __init__(self, n_channels, n_classes, w=8):
        super().__init__()
        self.n_classes = n_classes
        self.inc, self.d1, self.d2 = DoubleConv(n_channels, w), DoubleConv(w, 2 * w), DoubleConv(2 * w, 4 * w)
        self.u1, self.u2 = DoubleConv(6 * w, 2 * w), DoubleConv(3 * w, w)
        self.outc = nn.Conv2d(w, n_classes, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.d1(F.max_pool2d(x1, 2))
        x3 = self.d2(F.max_pool2d(x2, 2))
        x = self.u1(torch.cat([F.interpolate(x3, scale_factor=2.0), x2], 1))
        x = self.u2(torch.cat([F.interpolate(x, scale_factor=2.0), x1], 1))
        return self.outc(x)


@torch.no_grad()
def evaluate(net, loader):
    net.eval()
    inter, total = torch.zeros(net.n_classes), torch.zeros(net.n_classes)
    for batch in loader:
        p = F.one_hot(net(batch["image"]).argmax(1), net.n_classes).float()
        t = F.one_hot(batch["mask"], net.n_classes).float()
        inter += (p * t).sum((0, 1, 2))
        total += (p + t).sum((0, 1, 2))
    net.train()
    return (2 * inter[1:] / total[1:].clamp(min=1)).mean().item()


def train_net(net, data_dir, epochs=2, batch_size=8, lr=1e-3):
    dataset = SliceDataset(data_dir / "imgs", data_dir / "masks")
    n_val = int(len(dataset) * 0.1)
    train, val = random_split(dataset, [len(dataset) - n_val, n_val], generator=torch.Generator().manual_seed(0))
    train_loader = DataLoader(train, batch_size=batch_size, shuffle=True)
    val_loader = DataLoader(val, batch_size=batch_size)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=lr, weight_decay=1e-8, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    step = 0
    for epoch in range(epochs):
        for batch in train_loader:
            masks_pred = net(batch["image"])
            loss = criterion(masks_pred, batch["mask"])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(net.parameters(), 0.1)
            optimizer.step()
            step += 1
            if step % 5 == 0:
                logging.info("epoch %d step %d loss %.4f", epoch + 1, step, loss.item())
        logging.info("Validation Dice: %.4f", evaluate(net, val_loader))


if __name__ == "__main__":
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="slices_") as tmp:
        root = Path(tmp)
        export_slices(root)
        net = UNet(n_channels=1, n_classes=3)
        logging.info("Network: %d output channels (classes), pid %d", net.n_classes, os.getpid())
        train_net(net, root)
        logging.info("finished")
