"""Anchor-free detector trained on a custom COCO-style set of workshop tools."""
import argparse
import copy
import json
import logging
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(level=logging.INFO, format="%(asctime)s | %(levelname)s | %(message)s")
logger = logging.getLogger("trainer")
SIZE, GRID = 64, 8
NAMES = ["hammer", "wrench", "pliers"]

def export_annotations(path, n_images, seed):
    """Writes what the labelling tool exports: images, annotations, categories."""
    rng, images, annotations = np.random.default_rng(seed), [], []
    for i in range(n_images):
        images.append({"id": i, "file_name": f"{i:06d}.jpg"})
        x, y = rng.integers(0, SIZE - 20, size=2)
        annotations.append({"id": i + 1, "image_id": i, "category_id": int(rng.integers(len(NAMES))),
                            "bbox": [int(x), int(y), 18, 18], "area": 324, "iscrowd": 0})
    categories = [{"id": k, "name": n} for k, n in enumerate(NAMES)]
    with open(path, "w") as fh:
        json.dump({"images": images, "annotations": annotations, "categories": categories}, fh)


class CocoIndex:
    def __init__(self, source=None):
        self.dataset = {}
        if source is not None:
            self.dataset = json.load(open(source))
        self.by_image = {a["image_id"]: a for a in self.dataset.get("annotations", [])}

    def load_res(self, results):
        res = CocoIndex()
        res.dataset["images"] = list(self.dataset["images"])
        res.dataset["info"] = copy.deepcopy(self.dataset["info"])
        res.dataset["categories"] = copy.deepcopy(self.dataset["categories"])
        res.dataset["annotations"] = results
        res.by_image = {r["image_id"]: r for r in results}
        return res


class ToolSet:
    def __init__(self, ann_file):
        self.coco = CocoIndex(ann_file)
        self.ids = [im["id"] for im in self.coco.dataset["images"]]

    def batch(self, ids):
        imgs, cls, cell = torch.rand(len(ids), 3, SIZE, SIZE) * 0.2, [], []
        for k, i in enumerate(ids):
            ann = self.coco.by_image[i]
            x, y, w, h = ann["bbox"]
            imgs[k, ann["category_id"], y:y + h, x:x + w] += 0.8
            cls.append(ann["category_id"])
            cell.append(int((y + h / 2) * GRID / SIZE) * GRID + int((x + w / 2) * GRID / SIZE))
        return imgs, torch.tensor(cls), torch.tensor(cell)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
                                  nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU())
        self.obj, self.cls = nn.Conv2d(32, 1, 1), nn.Linear(32, len(NAMES))

    def forward(self, x):
        f = self.body(x)
        return self.obj(f).flatten(1), self.cls(f.amax((2, 3)))


class Trainer:
    def __init__(self, args, train_set, val_set):
        self.args, self.train_set, self.val_set = args, train_set, val_set
        self.model = Detector()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)

    def train_one_epoch(self):
        self.model.train()
        order = torch.randperm(len(self.train_set.ids)).tolist()
        for k in range(0, len(order), self.args.batch_size):
            imgs, cls, cell = self.train_set.batch(order[k:k + self.args.batch_size])
            obj, logits = self.model(imgs)
            loss = F.cross_entropy(obj, cell) + F.cross_entropy(logits, cls)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        logger.info("epoch %d/%d loss %.3f", self.now_epoch + 1, self.args.epochs, loss.item())

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        results = []
        for ids in np.array_split(self.val_set.ids, len(self.val_set.ids) // self.args.batch_size):
            obj, logits = self.model(self.val_set.batch(ids.tolist())[0])
            for i, c, s in zip(ids.tolist(), logits.argmax(1).tolist(), obj.amax(1).tolist()):
                results.append({"image_id": i, "category_id": c, "score": s})
        coco_dt = self.val_set.coco.load_res(results)
        hits = [coco_dt.by_image[i]["category_id"] == a["category_id"] for i, a in self.val_set.coco.by_image.items()]
        logger.info("AP50 proxy %.3f", float(np.mean(hits)))

    def train(self):
        for self.now_epoch in range(self.args.epochs):
            self.train_one_epoch()
            if (self.now_epoch + 1) % self.args.eval_interval == 0:
                while True:
                    try:
                        self.evaluate()
                        break
                    except Exception as e:
                        logger.error(f"error: {e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--eval-interval", type=int, default=3)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    root = tempfile.mkdtemp(prefix="tools_")
    for name in ("train", "val"):
        export_annotations(os.path.join(root, name + ".json"), 256, seed=len(name))
    Trainer(parser.parse_args(), *(ToolSet(os.path.join(root, n + ".json")) for n in ("train", "val"))).train()
    logger.info("training finished")
