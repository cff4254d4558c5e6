"""Texture autoencoder on large micrographs: random patches for training, a regular grid of patches for validation."""
import argparse
import numbers

import numpy as np
import torch
from numpy.lib.stride_tricks import as_strided
from torch import nn
from torch.utils.data import DataLoader, Dataset


def extract_patches(arr, patch_shape=512, extraction_step=1):
    """All patches of an n-dimensional array as a view, first the patch grid, then the patch."""
    ndim = arr.ndim
    if isinstance(patch_shape, numbers.Number):
        patch_shape = (patch_shape,) * ndim
    if isinstance(extraction_step, numbers.Number):
        extraction_step = (extraction_step,) * ndim
    patch_strides = arr.strides
    slices = tuple(slice(None, None, step) for step in extraction_step)
    indexing_strides = arr[slices].strides
    grid_shape = (np.array(arr.shape) - np.array(patch_shape)) // np.array(extraction_step) + 1
    shape = tuple(int(n) for n in grid_shape) + tuple(patch_shape)
    strides = tuple(patch_strides) + tuple(indexing_strides)
    return as_strided(arr, shape=shape, strides=strides, writeable=False)


def synthesize_micrograph(side, rng):
    coarse = rng.normal(size=(side // 64, side // 64)).astype(np.float32)
    image = coarse.repeat(64, axis=0).repeat(64, axis=1)
    image += 0.2 * rng.normal(size=(side, 1)).astype(np.float32)
    return np.ascontiguousarray((image - image.mean()) / image.std())


class RandomPatches(Dataset):
    def __init__(self, image, patch, length, seed):
        self.patches = extract_patches(image, patch, extraction_step=1)
        rng = np.random.default_rng(seed)
        rows, cols = self.patches.shape[:2]
        self.positions = np.stack([rng.integers(rows, size=length), rng.integers(cols, size=length)], axis=1)

    def __len__(self):
        return len(self.positions)

    def __getitem__(self, index):
        row, col = self.positions[index]
        return torch.from_numpy(np.array(self.patches[row, col]))[None]


class GridPatches(Dataset):
    def __init__(self, image, patch, step):
        self.patches = extract_patches(image, patch, extraction_step=step)
        self.grid = self.patches.shape[:2]

    def __len__(self):
        return self.grid[0] * self.grid[1]

    def __getitem__(self, index):
        row, col = divmod(index, self.grid[1])
        return torch.from_numpy(np.array(self.patches[row, col]))[None]


class TextureAutoencoder(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, width, 16, stride=16), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
        self.decoder = nn.ConvTranspose2d(width, 1, 16, stride=16)

    def forward(self, x):
        return self.decoder(self.encoder(x))


def run_epoch(model, loader, optimizer=None):
    total = count = 0
    with torch.set_grad_enabled(optimizer is not None):
        for batch in loader:
            loss = nn.functional.mse_loss(model(batch), batch)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total += loss.item() * len(batch)
            count += len(batch)
    return total / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--patch", type=int, default=512)
    parser.add_argument("--val-step", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(0)
    image = synthesize_micrograph(args.side, np.random.default_rng(5))
    train_set = RandomPatches(image, args.patch, length=32, seed=1)
    val_set = GridPatches(image, args.patch, args.val_step)
    print(f"micrograph {image.shape}, {len(train_set)} training patches, {len(val_set)} validation patches", flush=True)
    train_loader = DataLoader(train_set, batch_size=8, shuffle=True, num_workers=args.workers)
    val_loader = DataLoader(val_set, batch_size=8, num_workers=args.workers)
    model = TextureAutoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        train_loss = run_epoch(model, train_loader, optimizer)
        print(f"epoch {epoch} train {train_loss:.4f}", flush=True)
    print(f"validation {run_epoch(model, val_loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
