import logging
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

logger = logging.getLogger("ocr.dataset")


class Page:
    def __init__(self, seed, scale):
        rng = np.random.default_rng(seed)
        self.image = rng.random((1600 // scale, 1200 // scale), dtype=np.float32)
        self.lines = [(500 + 40 * i, 536 + 40 * i, 100, 1100) for i in range(25)]


def extract_line(image, box):
    top, bottom, left, right = box
    line = image[top:bottom, left:right]
    line = (line - line.min()) / (line.max() - line.min())
    return torch.from_numpy(line)


class LineDataset(Dataset):
    def __init__(self, pages, height=36, width=1000):
        self.samples = [(page, box) for page in pages for box in page.lines]
        self.height, self.width = height, width

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        page, box = self.samples[index]
        try:
            line = extract_line(page.image, box)
            line = line[: self.height, : self.width]
            return line.mean(dim=1), index % 20
        except Exception:
            idx = random.randrange(0, len(self.samples))
            logger.debug("Failed. Replacing with sample %d", idx)
            return self[idx]


def train():
    pages = [Page(seed, scale=4) for seed in range(4)]
    loader = DataLoader(LineDataset(pages), batch_size=8, shuffle=True, num_workers=2)
    model = nn.Linear(36, 20)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for lines, targets in loader:
            loss = nn.functional.cross_entropy(model(lines), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"stage {epoch}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    train()
