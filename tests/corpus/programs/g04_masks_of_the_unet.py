import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


def write_data(folder, count=8, size=48):
    rng = np.random.default_rng(0)
    for i in range(count):
        image = rng.integers(0, 256, (size, size, 3), dtype=np.uint8)
        mask = np.zeros((size, size, 3), dtype=np.uint8)
        mask[8:30, 8:30] = 1
        np.save(os.path.join(folder, f"img{i}.npy"), image)
        np.save(os.path.join(folder, f"img{i}_mask.npy"), mask)


class BasicDataset(Dataset):
    def __init__(self, folder):
        self.folder = folder
        self.ids = sorted(f[:-9] for f in os.listdir(folder) if f.endswith("_mask.npy"))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        image = np.load(os.path.join(self.folder, self.ids[i] + ".npy"))
        mask = np.load(os.path.join(self.folder, self.ids[i] + "_mask.npy"))
        return {
            "image": torch.as_tensor(image.transpose(2, 0, 1) / 255).float(),
            "mask": torch.as_tensor(mask).long(),
        }


class UNet(nn.Module):
    def __init__(self, n_channels=3, n_classes=2):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(n_channels, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.up = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
        self.outc = nn.Conv2d(16, n_classes, 1)

    def forward(self, x):
        return self.outc(self.up(self.down(x)))


def train_net(net, folder, epochs=5):
    loader = DataLoader(BasicDataset(folder), batch_size=2, shuffle=True)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-4, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        for batch in loader:
            masks_pred = net(batch["image"])
            loss = criterion(masks_pred, batch["mask"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"Epoch {epoch + 1}/{epochs} loss {loss.item():.4f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as data:
        write_data(data)
        train_net(UNet(), data)
