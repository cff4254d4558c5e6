import json
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASS_NAMES = ("cow", "calf", "gate")
CONFIG = {"name": "farm", "class_names": CLASS_NAMES, "label_map": {1: 1, 2: 2, 3: 3}}


def write_annotations(path):
    categories = [{"id": i, "name": name} for i, name in enumerate(CLASS_NAMES)]
    images = [{"id": i, "width": 64, "height": 64} for i in range(32)]
    annotations = [{"image_id": i, "category_id": (i + 1) % 3, "bbox": [4 + i % 8, 6, 20, 24]} for i in range(32)]
    with open(path, "w") as stream:
        json.dump({"images": images, "annotations": annotations, "categories": categories}, stream)


class AnnotationTransform:
    def __init__(self):
        self.label_map = CONFIG["label_map"]

    def __call__(self, target, width, height):
        result = []
        for obj in target:
            x, y, w, h = obj["bbox"]
            label_idx = self.label_map[obj["category_id"]] - 1
            result.append([x / width, y / height, (x + w) / width, (y + h) / height, label_idx])
        return result


class CocoDetection(Dataset):
    def __init__(self, info_file, target_transform):
        with open(info_file) as stream:
            self.coco = json.load(stream)
        self.target_transform = target_transform

    def __len__(self):
        return len(self.coco["images"])

    def __getitem__(self, index):
        image = self.coco["images"][index]
        target = [a for a in self.coco["annotations"] if a["image_id"] == image["id"]]
        target = self.target_transform(target, image["width"], image["height"])
        return torch.rand(3, image["height"], image["width"]), torch.tensor(target[0])


def train():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        info_file = os.path.join(folder, "train.json")
        write_annotations(info_file)
        loader = DataLoader(CocoDetection(info_file, AnnotationTransform()), batch_size=4, shuffle=True, num_workers=2)
        model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, len(CLASS_NAMES)))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for iteration, (images, targets) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(images), targets[:, 4].long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"[{iteration}] C: {loss.item():.3f}")


if __name__ == "__main__":
    train()
