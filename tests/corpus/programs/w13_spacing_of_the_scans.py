import resource

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

JOB_MEMORY = 2 << 30


class Scans(Dataset):
    def __init__(self, shapes, patch):
        self.shapes = shapes
        self.patch = patch

    def __len__(self):
        return len(self.shapes)

    def load(self, index):
        scan = np.zeros(self.shapes[index], dtype=np.int16)
        centre = tuple(slice(n // 2 - 16, n // 2 + 16) for n in scan.shape)
        scan[centre] = np.random.default_rng(index).integers(-1000, 1000, (32, 32, 32))
        return scan

    def preprocess(self, scan):
        data = scan.astype(float)
        lower, upper = np.percentile(data[::8, ::8, ::8], (0.5, 99.5))
        np.clip(data, lower, upper, out=data)
        data -= data.mean()
        data /= max(data.std(), 1e-8)
        return data

    def __getitem__(self, index):
        data = self.preprocess(self.load(index))
        start = [(n - self.patch) // 2 for n in data.shape]
        z, y, x = (slice(s, s + self.patch) for s in start)
        return torch.from_numpy(data[z, y, x]).float().unsqueeze(0)


def train():
    shapes = [(96, 160, 160), (110, 192, 192), (128, 192, 192), (753, 536, 536)]
    loader = DataLoader(Scans(shapes, patch=32), batch_size=1, num_workers=1)
    model = torch.nn.Sequential(torch.nn.Conv3d(1, 4, 3), torch.nn.ReLU(), torch.nn.Conv3d(4, 1, 3))
    for step, patch in enumerate(loader):
        loss = model(patch).square().mean()
        loss.backward()
        print(f"scan {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (JOB_MEMORY, JOB_MEMORY))
    train()
