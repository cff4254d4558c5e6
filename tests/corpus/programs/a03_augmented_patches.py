import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


def augment_img(img, mode=0):
    """Kai Zhang style augmentation: 8 kinds of flips and rotations."""
    if mode == 0:
        return img
    elif mode == 1:
        return np.flipud(np.rot90(img))
    elif mode == 2:
        return np.flipud(img)
    elif mode == 3:
        return np.rot90(img, k=3)
    elif mode == 4:
        return np.flipud(np.rot90(img, k=2))
    elif mode == 5:
        return np.rot90(img)
    elif mode == 6:
        return np.rot90(img, k=2)
    return np.flipud(np.rot90(img, k=3))


def single2tensor3(img):
    return torch.from_numpy(img).permute(2, 0, 1).float()


class DatasetSR(Dataset):
    def __init__(self, count=64, patch=48, scale=2):
        rng = np.random.default_rng(0)
        self.images = [rng.random((patch, patch, 3), dtype=np.float32) for _ in range(count)]
        self.scale = scale

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        img_H = self.images[index]
        img_L = img_H[::self.scale, ::self.scale, :]
        mode = random.randint(0, 7)
        img_L, img_H = augment_img(img_L, mode=mode), augment_img(img_H, mode=mode)
        img_H, img_L = single2tensor3(img_H), single2tensor3(img_L)
        return {"L": img_L, "H": img_H}


def main():
    random.seed(123)
    torch.manual_seed(123)
    train_loader = DataLoader(DatasetSR(), batch_size=8, shuffle=True, num_workers=2, drop_last=True)
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(),
                        nn.Conv2d(16, 12, 3, padding=1), nn.PixelShuffle(2))
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-4)
    for epoch in range(2):
        for i, train_data in enumerate(train_loader):
            loss = nn.functional.l1_loss(net(train_data["L"]), train_data["H"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"<epoch:{epoch}> G_loss: {loss.item():.3e}")


if __name__ == "__main__":
    main()
