import os
import random
import tempfile

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class ImageDataset(Dataset):
    def __init__(self, path, labels):
        self.path = path
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def _next_image(self, index):
        next_index = random.randint(0, len(self) - 1)
        return self.get(next_index)

    def get(self, idx):
        image_key = f"image-{idx + 1:09d}"
        try:
            image = np.load(os.path.join(self.path, image_key + ".npy"))
            label = self.labels[idx]
            if len(label) > 25:
                return self._next_image(idx)
        except:
            return self._next_image(idx)
        return torch.from_numpy(image).permute(2, 0, 1).float() / 255, len(label)

    def __getitem__(self, idx):
        return self.get(idx)


def write_images(path, labels):
    for idx in range(len(labels)):
        image = np.random.default_rng(idx).integers(0, 256, (32, 128, 3), dtype=np.uint8)
        np.save(os.path.join(path, f"image-{idx:06d}.npy"), image)


def main(path):
    labels = ["word" * (1 + idx % 3) for idx in range(64)]
    write_images(path, labels)
    loader = DataLoader(ImageDataset(path, labels), batch_size=8, shuffle=True, num_workers=2)
    model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 25))
    for step, (images, lengths) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(images), lengths)
        loss.backward()
        print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
