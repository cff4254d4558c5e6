"""Train a small road segmentation network on fixed-size crops with mixed precision."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = torch.device("cuda")
CLASSES = 19
CROP = (128, 192)
SCENES = [(160, 240), (128, 192), (144, 224), (120, 192), (160, 200)]


def crop_scene(image: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cut or extend a scene to the crop size."""
    below = max(CROP[0] - mask.shape[-2], 0)
    right = max(CROP[1] - mask.shape[-1], 0)
    image = F.pad(image, (0, right, 0, below), value=0.0)
    mask = F.pad(mask, (0, right, 0, below), value=255)
    return image[..., : CROP[0], : CROP[1]], mask[..., : CROP[0], : CROP[1]]


def scenes() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches of images with their label masks."""
    generator = torch.Generator().manual_seed(7)
    batches = []
    for height, width in SCENES:
        image = torch.rand(4, 3, height, width, generator=generator)
        mask = torch.randint(0, CLASSES, (4, height, width), generator=generator)
        batches.append(crop_scene(image, mask))
    return batches


def main() -> None:
    """Run one epoch."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.Conv2d(32, CLASSES, 1)
    ).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda")
    criterion = nn.CrossEntropyLoss()
    for step, (images, masks) in enumerate(scenes()):
        images = images.to(DEVICE, non_blocking=True)
        masks = masks.to(DEVICE, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = criterion(model(images), masks)
        value = loss.item()
        if not math.isfinite(value):
            continue
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(f"step {step} loss {value:.4f}", flush=True)


if __name__ == "__main__":
    main()
