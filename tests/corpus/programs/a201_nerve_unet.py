import argparse
import glob
import os
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


def export_scans(root, patients=12, frames=40, size=(108, 144)):
    out = os.path.join(root, "train")
    os.makedirs(out)
    rng = np.random.default_rng(16)
    yy, xx = np.mgrid[0:size[0], 0:size[1]]
    for p in range(1, patients + 1):
        for f in range(1, frames + 1):
            cy, cx = rng.integers(30, 80), rng.integers(30, 110)
            blob = ((yy - cy) ** 2 / 150.0 + (xx - cx) ** 2 / 320.0) < 1.0
            img = rng.integers(20, 120, size=size).astype(np.uint8)
            img[blob] += 90
            np.save(os.path.join(out, f"{p}_{f}.npy"), img)
            np.save(os.path.join(out, f"{p}_{f}_mask.npy"), blob.astype(np.uint8) * 255)


def make_dataset(root, train=True):
    dataset = []
    if train:
        folder = os.path.join(root, "train")
        for gt in sorted(glob.glob(os.path.join(folder, "*_mask.npy"))):
            name = os.path.basename(gt)
            dataset.append([os.path.join(folder, name[:-9] + ".npy"), gt])
    return dataset


class Kaggle2016Nerve(Dataset):
    def __init__(self, root, transform=None, train=True):
        self.train = train
        self.transform = transform
        self.n_row = 96
        self.n_col = 128
        if self.train:
            self.train_set_path = make_dataset(root, train)

    def __getitem__(self, idx):
        img_path, gt_path = self.train_set_path[idx]
        img = np.load(img_path)[: self.n_row, : self.n_col]
        img = img[None].astype(np.float32)
        img = (img - img.min()) / (img.max() - img.min())
        gt = np.load(gt_path)[None, : self.n_row, : self.n_col] / 255.0
        return torch.from_numpy(img), torch.from_numpy(gt).float()

    def __len__(self):
        if self.train:
            return 5635
        return 5508


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.d1 = block(1, width)
        self.d2 = block(width, width * 2)
        self.mid = block(width * 2, width * 4)
        self.up2 = nn.ConvTranspose2d(width * 4, width * 2, 2, stride=2)
        self.u2 = block(width * 4, width * 2)
        self.up1 = nn.ConvTranspose2d(width * 2, width, 2, stride=2)
        self.u1 = block(width * 2, width)
        self.out = nn.Conv2d(width, 1, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(self.pool(a))
        c = self.mid(self.pool(b))
        b = self.u2(torch.cat([self.up2(c), b], 1))
        a = self.u1(torch.cat([self.up1(b), a], 1))
        return self.out(a)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(0)

    root = tempfile.mkdtemp(prefix="nerve_")
    try:
        export_scans(root)
        train_set = Kaggle2016Nerve(root)
        loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, num_workers=args.workers)
        model = UNet()
        optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
        criterion = nn.BCEWithLogitsLoss()
        start = time.time()
        for epoch in range(args.epochs):
            for step, (x, y) in enumerate(loader):
                loss = criterion(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if step % 20 == 0:
                    print(f"epoch {epoch} iter {step}/{len(loader)} loss {loss.item():.4f} "
                          f"({time.time() - start:.1f}s)", flush=True)
        print("finished", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
