"""Train a crop classifier on a small excerpt of COCO-like annotations."""
import argparse
import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Annotations:
    """The part of the COCO api that the sampler needs."""

    def __init__(self, num_images, num_categories, seed=5):
        rng = random.Random(seed)
        self.images = [{"id": i, "width": 320, "height": 240} for i in range(num_images)]
        self.anns = []
        for image in self.images:
            for _ in range(rng.randint(2, 5)):
                cat = rng.choices(range(num_categories), [2.0 ** -c for c in range(num_categories)])[0]
                w, h = rng.uniform(4, 90 / (cat + 1)), rng.uniform(4, 90 / (cat + 1))
                self.anns.append({"id": len(self.anns), "image_id": image["id"], "category_id": cat,
                                  "iscrowd": int(rng.random() < 0.1), "area": w * h,
                                  "bbox": (rng.uniform(0, 320 - w), rng.uniform(0, 240 - h), w, h)})
        self.cat_ids = sorted({a["category_id"] for a in self.anns})
        self.by_cat = {c: [a for a in self.anns if a["category_id"] == c] for c in self.cat_ids}


class CropSampler(Dataset):
    """Every category gets the same share of the crops of an epoch."""

    def __init__(self, annotations, length, size=32):
        self.coco = annotations
        self.length = length
        self.size = size

    def __len__(self):
        return self.length

    def sample_annotation(self, rng):
        cat = rng.choice(self.coco.cat_ids)
        ann = None
        while ann is None or ann["iscrowd"] == 1 or ann["area"] < 100 or min(ann["bbox"][2:]) < 5:
            ann = rng.choice(self.coco.by_cat[cat])
        return ann

    def load_image(self, image_id):
        g = torch.Generator().manual_seed(image_id)
        return torch.rand(3, 240, 320, generator=g)

    def __getitem__(self, index):
        rng = random.Random(index)
        ann = self.sample_annotation(rng)
        x, y, w, h = (int(v) for v in ann["bbox"])
        crop = self.load_image(ann["image_id"])[:, y:y + h, x:x + w]
        crop = nn.functional.interpolate(crop[None], size=(self.size, self.size))[0]
        return crop, ann["category_id"]


class CropNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(),
                                      nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--categories", type=int, default=7)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=15)
    args = parser.parse_args()
    torch.manual_seed(0)
    annotations = Annotations(args.images, args.categories)
    print(f"{len(annotations.anns)} annotations in {len(annotations.cat_ids)} categories", flush=True)
    loader = DataLoader(CropSampler(annotations, 512), batch_size=8,
                        num_workers=args.workers, timeout=args.timeout)
    model = CropNet(args.categories)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    print("start training", flush=True)
    for step, (crops, labels) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(crops), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
