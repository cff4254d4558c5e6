import argparse
import os
import pickle
import random
import shutil
import sqlite3
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def export_orthophoto(folder, rows=12, cols=16, size=64):
    os.makedirs(folder)
    rng = np.random.default_rng(9)
    ground = rng.integers(0, 255, size=(rows * size // 8, cols * size // 8, 3), dtype=np.uint8)
    ground = ground.repeat(8, 0).repeat(8, 1)
    for r in range(rows):
        for c in range(cols):
            tile = ground[r * size:(r + 1) * size, c * size:(c + 1) * size]
            np.save(os.path.join(folder, f"tile_r{r:02d}_c{c:02d}.npy"), tile)


def resize_worker(path, sizes):
    hr = torch.from_numpy(np.load(path)).permute(2, 0, 1)[None].float()
    lr = F.interpolate(hr, size=sizes[0], mode="bicubic", antialias=True).clamp(0, 255)
    sr = F.interpolate(lr, size=sizes[1], mode="bicubic").clamp(0, 255)
    name = os.path.splitext(os.path.basename(path))[0]
    return name, [t[0].byte().numpy() for t in (lr, hr, sr)]


def prepare(img_path, out_path, sizes):
    files = sorted(os.path.join(img_path, f) for f in os.listdir(img_path))
    db = sqlite3.connect(out_path)
    db.execute("CREATE TABLE store (key TEXT PRIMARY KEY, value BLOB)")
    for path in files:
        name, (lr, hr, sr) = resize_worker(path, sizes)
        for key, arr in ((f"lr_{sizes[0]}", lr), (f"hr_{sizes[1]}", hr), (f"sr_{sizes[0]}_{sizes[1]}", sr)):
            db.execute("INSERT INTO store VALUES (?, ?)", (f"{key}_{name.zfill(5)}", pickle.dumps(arr)))
    db.execute("INSERT INTO store VALUES ('length', ?)", (pickle.dumps(len(files)),))
    db.commit()
    db.close()
    print(f"prepared {len(files)} images into {os.path.basename(out_path)}", flush=True)


class LRHRDataset(Dataset):
    def __init__(self, dataroot, l_resolution=16, r_resolution=64, data_len=-1):
        self.path = dataroot
        self.l_res = l_resolution
        self.r_res = r_resolution
        self.env = sqlite3.connect(dataroot)
        self.dataset_len = self.get("length")
        self.data_len = self.dataset_len if data_len <= 0 else min(data_len, self.dataset_len)

    def get(self, key):
        row = self.env.execute("SELECT value FROM store WHERE key = ?", (key,)).fetchone()
        return None if row is None else pickle.loads(row[0])

    def __len__(self):
        return self.data_len

    def __getitem__(self, index):
        img_hr = self.get("hr_{}_{}".format(self.r_res, str(index).zfill(5)))
        img_sr = self.get("sr_{}_{}_{}".format(self.l_res, self.r_res, str(index).zfill(5)))
        while img_hr is None or img_sr is None:
            new_index = random.randint(0, self.data_len - 1)
            img_hr = self.get("hr_{}_{}".format(self.r_res, str(new_index).zfill(5)))
            img_sr = self.get("sr_{}_{}_{}".format(self.l_res, self.r_res, str(new_index).zfill(5)))
        hr, sr = (torch.from_numpy(x).float() / 127.5 - 1.0 for x in (img_hr, img_sr))
        if random.random() < 0.5:
            hr, sr = hr.flip(-1), sr.flip(-1)
        return {"HR": hr, "SR": sr, "Index": index}


class Denoiser(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.inp = nn.Conv2d(6, dim, 3, padding=1)
        self.noise = nn.Linear(1, dim)
        self.body = nn.Sequential(nn.GroupNorm(4, dim), nn.SiLU(), nn.Conv2d(dim, dim, 3, padding=1))
        self.out = nn.Conv2d(dim, 3, 3, padding=1)

    def forward(self, cond, noisy, level):
        h = self.inp(torch.cat([cond, noisy], 1)) + self.noise(level)[:, :, None, None]
        return self.out(h + self.body(h))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)

    work = tempfile.mkdtemp(prefix="sr3_")
    try:
        export_orthophoto(os.path.join(work, "tiles"))
        store = os.path.join(work, "tiles_16_64.db")
        prepare(os.path.join(work, "tiles"), store, (16, 64))
        train_set = LRHRDataset(store)
        print(f"Dataset [LRHRDataset - tiles] is created, {len(train_set)} images", flush=True)
        loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
        model = Denoiser()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        start = time.time()
        for epoch in range(args.epochs):
            for it, data in enumerate(loader):
                level = torch.rand(len(data["HR"]), 1)
                noise = torch.randn_like(data["HR"])
                a = level[:, :, None, None]
                noisy = a.sqrt() * data["HR"] + (1 - a).sqrt() * noise
                loss = F.l1_loss(model(data["SR"], noisy, level), noise)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if it % 6 == 0:
                    print(f"<epoch:{epoch:3d}, iter:{it:5d}> l_pix: {loss.item():.4e} "
                          f"[{time.time() - start:.1f}s]", flush=True)
        print("End of training.", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
