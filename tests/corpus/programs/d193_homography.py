import argparse
import logging
import os
import struct
import tempfile
import time
import zlib

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("deep_homography")

HEADER = struct.Struct("<4sHHI")
MAGIC = b"HPR1"
VERSION = 1


def write_records(path, count, size, seed):
    rng = np.random.default_rng(seed)
    offsets = []
    with open(path, "wb") as f:
        for _ in range(count):
            shift = rng.uniform(-8, 8, size=8).astype("<f4")
            offsets.append(f.tell())
            f.write(shift.tobytes())
            for _ in range(2):
                image = rng.integers(90, 122, size=(size, size), dtype=np.uint8)
                data = zlib.compress(image.tobytes(), 1)
                f.write(HEADER.pack(MAGIC, VERSION, size, len(data)))
                f.write(data)
    np.save(path + ".index.npy", np.array(offsets, dtype=np.int64))


class RecordFile:
    def __init__(self, path):
        self.handle = open(path, "rb")
        self.offsets = np.load(path + ".index.npy")

    def __len__(self):
        return len(self.offsets)

    def read_image(self, index):
        magic, version, size, length = HEADER.unpack(self.handle.read(HEADER.size))
        if magic != MAGIC:
            raise KeyError(f"unable to open record {index} (bad record signature {magic!r})")
        if version != VERSION:
            raise KeyError(f"unable to open record {index} (bad record version number {version})")
        pixels = zlib.decompress(self.handle.read(length))
        return np.frombuffer(pixels, dtype=np.uint8).reshape(size, size)

    def read(self, index):
        self.handle.seek(int(self.offsets[index]))
        target = np.frombuffer(self.handle.read(32), dtype="<f4")
        pair = np.stack([self.read_image(index), self.read_image(index)])
        return pair, target


class HomographyPairs(Dataset):
    def __init__(self, path):
        self.db = RecordFile(path)

    def __len__(self):
        return len(self.db)

    def __getitem__(self, index):
        pair, target = self.db.read(index)
        image = torch.from_numpy(pair).float().div_(255.0)
        return image, torch.from_numpy(target.copy()) / 8.0


class HomographyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(2, 16, 5, 4, 2), nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.head = nn.Linear(32 * 16, 8)

    def forward(self, x):
        return self.head(self.features(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--num-workers", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=640)
    parser.add_argument("--size", type=int, default=128)
    args = parser.parse_args()

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as root:
        path = os.path.join(root, "pairs_train.rec")
        write_records(path, args.pairs, args.size, seed=3)
        log.info("wrote %d pairs, %.1f MiB", args.pairs, os.path.getsize(path) / 2**20)

        train_set = HomographyPairs(path)
        image, target = train_set[0]
        log.info("image %s, target %s", tuple(image.shape), tuple(target.shape))
        loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True,
                            num_workers=args.num_workers, drop_last=True)

        model = HomographyNet()
        optimizer = torch.optim.SGD(model.parameters(), lr=5e-3, momentum=0.9)
        for epoch in range(args.epochs):
            started = time.time()
            running = 0.0
            for step, (images, targets) in enumerate(loader):
                loss = nn.functional.mse_loss(model(images), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                running += loss.item()
                if step % 20 == 0:
                    log.info("epoch %d step %d/%d loss %.4f", epoch, step, len(loader), loss.item())
            log.info("epoch %d loss %.4f time %.1fs", epoch, running / len(loader), time.time() - started)
        log.info("done")


if __name__ == "__main__":
    main()
