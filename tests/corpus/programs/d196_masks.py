import argparse
import ctypes
import json
import logging
import os
import subprocess
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("pseudo_masks")
HERE = os.path.dirname(os.path.abspath(__file__))


class MaskApi:
    def __init__(self, build_dir):
        self.path = os.path.join(build_dir, "libmaskapi.so")
        subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-o", self.path,
                        os.path.join(HERE, "d196_masks.c")], check=True)
        self.lib = ctypes.CDLL(self.path)
        size = ctypes.c_ulong
        self.lib.mask_encode.argtypes = [ctypes.c_void_p, size, size, ctypes.c_char_p]
        self.lib.mask_encode.restype = None
        self.lib.mask_decode.argtypes = [ctypes.c_char_p, size, size, ctypes.c_void_p]
        self.lib.mask_decode.restype = None

    def encode(self, mask):
        mask = np.asfortranarray(mask, dtype=np.uint8)
        h, w = mask.shape
        out = ctypes.create_string_buffer(8 * mask.size + 8)
        self.lib.mask_encode(mask.ctypes.data, h, w, out)
        return {"size": [h, w], "counts": out.value}

    def decode(self, rle):
        h, w = rle["size"]
        mask = np.zeros((h, w), dtype=np.uint8, order="F")
        self.lib.mask_decode(rle["counts"], h, w, mask.ctypes.data)
        return mask


def make_images(count, size, seed):
    rng = np.random.default_rng(seed)
    images = rng.normal(0.2, 0.08, size=(count, size, size)).astype(np.float32)
    yy, xx = np.mgrid[:size, :size]
    for image in images:
        cy, cx = rng.uniform(size * 0.3, size * 0.7, 2)
        ry, rx = rng.uniform(size * 0.1, size * 0.25, 2)
        image[((yy - cy) / ry) ** 2 + ((xx - cx) / rx) ** 2 < 1] += 0.5
    return images


def segmenter(width):
    return nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(width, 1, 1))


def fit(model, batches, epochs, name):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(epochs):
        started, losses = time.time(), []
        for image, mask in batches:
            loss = nn.functional.binary_cross_entropy_with_logits(model(image), mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        log.info("%s epoch %d loss %.4f (%.1fs)", name, epoch, np.mean(losses), time.time() - started)


def write_predictions(model, images, api, path):
    annotations = []
    with torch.no_grad():
        for i, image in enumerate(images):
            mask = (model(torch.from_numpy(image)[None, None])[0, 0] > 0).numpy()
            rle = api.encode(mask)
            annotations.append({"image_id": i, "area": int(mask.sum()),
                                "segmentation": {"size": rle["size"], "counts": str(rle["counts"])}})
    with open(path, "w") as f:
        json.dump(annotations, f)
    log.info("wrote %d predicted masks, mean area %.0f", len(annotations),
             np.mean([a["area"] for a in annotations]))


class PseudoMasks(Dataset):
    def __init__(self, images, path, api):
        self.images, self.api = images, api
        with open(path) as f:
            self.annotations = [a for a in json.load(f) if a["area"] > 0]

    def __len__(self):
        return len(self.annotations)

    def __getitem__(self, index):
        ann = self.annotations[index]
        rle = {"size": ann["segmentation"]["size"], "counts": ann["segmentation"]["counts"].encode()}
        mask = np.ascontiguousarray(self.api.decode(rle), dtype=np.float32)
        return torch.from_numpy(self.images[ann["image_id"]])[None], torch.from_numpy(mask)[None]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--num-workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        api = MaskApi(root)
        labeled = torch.from_numpy(make_images(32, args.size, seed=1))[:, None]
        teacher = segmenter(8)
        fit(teacher, list(zip(labeled.split(8), (labeled > 0.45).float().split(8))), 6, "teacher")

        unlabeled = make_images(96, args.size, seed=2)
        path = os.path.join(root, "predictions.json")
        write_predictions(teacher, unlabeled, api, path)
        loader = DataLoader(PseudoMasks(unlabeled, path, api), batch_size=8, shuffle=True,
                            num_workers=args.num_workers)
        student = segmenter(12)
        fit(student, loader, 3, "student")
        log.info("student trained on %d predicted masks", len(loader.dataset))


if __name__ == "__main__":
    main()
