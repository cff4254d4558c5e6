import ctypes
import json
import logging
import os
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

HERE = os.path.dirname(os.path.abspath(__file__))
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
log = logging.getLogger("cellseg")


def build_mask_api(workdir):
    src = os.path.join(HERE, "a191_rle_eval.c")
    lib = os.path.join(workdir, "libmaskapi.so")
    subprocess.check_call(["gcc", "-O1", "-g", "-shared", "-fPIC", src, "-o", lib])
    api = ctypes.CDLL(lib)
    api.rle_to_string.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_char_p]
    api.mask_decode.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    api.mask_decode.restype = None
    return api


class MaskApi:
    def __init__(self, workdir):
        self.api = build_mask_api(workdir)

    def encode(self, mask):
        h, w = mask.shape
        flat = np.asfortranarray(mask, dtype=np.uint8).ravel(order="F").copy()
        buf = ctypes.create_string_buffer(flat.size * 2 + 16)
        self.api.rle_to_string(flat.ctypes.data, h, w, buf)
        return {"size": [h, w], "counts": buf.value}

    def decode(self, rle):
        h, w = rle["size"]
        counts = rle["counts"]
        if isinstance(counts, str):
            counts = counts.encode()
        out = np.zeros(h * w, dtype=np.uint8)
        self.api.mask_decode(counts, out.ctypes.data)
        return out.reshape(h, w, order="F")


class CellDataset(Dataset):
    def __init__(self, n, height=180, width=320, seed=0):
        self.n, self.h, self.w, self.seed = n, height, width, seed
        self.yy, self.xx = np.mgrid[:height, :width]

    def __len__(self):
        return self.n

    def __getitem__(self, idx):
        rng = np.random.default_rng(self.seed * 100003 + idx)
        mask = np.zeros((self.h, self.w), dtype=np.float32)
        for _ in range(rng.integers(2, 6)):
            cy, cx = rng.uniform(0, self.h), rng.uniform(0, self.w)
            ry, rx = rng.uniform(8, 40), rng.uniform(8, 60)
            mask[((self.yy - cy) / ry) ** 2 + ((self.xx - cx) / rx) ** 2 < 1] = 1
        img = mask * 0.6 + rng.normal(0, 0.25, mask.shape)
        return torch.from_numpy(img.astype(np.float32))[None], torch.from_numpy(mask)[None], idx


class SegNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, c, 5, stride=2, padding=2), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1), nn.ReLU())
        self.head = nn.Conv2d(c, 1, 3, padding=1)

    def forward(self, x):
        y = self.head(self.enc(x))
        return F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)


@torch.no_grad()
def predict(model, loader, masks, path):
    model.eval()
    results = []
    for img, _, ids in loader:
        prob = torch.sigmoid(model(img))[:, 0]
        for i, p in zip(ids.tolist(), prob):
            rle = masks.encode((p > 0.5).numpy())
            results.append({"image_id": i, "mask": {"size": rle["size"], "counts": str(rle["counts"])}})
    with open(path, "w") as f:
        json.dump(results, f)
    log.info("wrote %d predictions to %s", len(results), os.path.basename(path))


def evaluate(path, dataset, masks):
    ious = []
    for rec in json.load(open(path)):
        pred = masks.decode(rec["mask"])
        gt = dataset[rec["image_id"]][1][0].numpy() > 0.5
        inter = np.logical_and(pred, gt).sum()
        union = np.logical_or(pred, gt).sum()
        ious.append(inter / max(union, 1))
    return float(np.mean(ious))


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="cellseg_") as work:
        masks = MaskApi(work)
        train, val = CellDataset(96, seed=1), CellDataset(32, seed=2)
        train_loader = DataLoader(train, batch_size=8, shuffle=True)
        val_loader = DataLoader(val, batch_size=8)
        model = SegNet()
        opt = torch.optim.Adam(model.parameters(), lr=5e-3)
        for epoch in range(3):
            model.train()
            total = 0.0
            for img, gt, _ in train_loader:
                loss = F.binary_cross_entropy_with_logits(model(img), gt)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
            log.info("epoch %d train loss %.4f", epoch, total / len(train_loader))
            path = os.path.join(work, f"pred_epoch{epoch}.json")
            predict(model, val_loader, masks, path)
            log.info("epoch %d val IoU %.4f", epoch, evaluate(path, val, masks))


if __name__ == "__main__":
    main()
