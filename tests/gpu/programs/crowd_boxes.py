"""Remove duplicate detections of people in a set of street images."""

from __future__ import annotations

import torch

PER_IMAGE = 500


def detections(images: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return boxes (x0, y0, x1, y1) and scores of all images, one after another."""
    corner = 1000 * torch.rand(images * PER_IMAGE, 2)
    size = 10 + 90 * torch.rand(images * PER_IMAGE, 2)
    return torch.cat((corner, corner + size), dim=1), torch.rand(images * PER_IMAGE)


def overlaps(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return the intersection over union of all pairs of boxes."""
    area_a = (first[:, 2:] - first[:, :2]).prod(1)
    area_b = (second[:, 2:] - second[:, :2]).prod(1)
    start = torch.maximum(first[:, None, :2], second[None, :, :2])
    stop = torch.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = (stop - start).clamp(min=0).prod(2)
    return shared / (area_a[:, None] + area_b[None] - shared)


def keep(boxes: torch.Tensor, scores: torch.Tensor, limit: float = 0.6) -> torch.Tensor:
    """Return the indices of boxes without a better box in the same place."""
    order = scores.argsort(descending=True)
    overlap = overlaps(boxes[order], boxes[order]).triu(1)
    return order[overlap.amax(0) < limit]


def main() -> None:
    """Filter one image, then the whole set."""
    torch.manual_seed(12)
    boxes, scores = detections(images=480)
    boxes, scores = boxes.cuda(), scores.cuda()
    print(f"first image: {keep(boxes[:PER_IMAGE], scores[:PER_IMAGE]).numel()} boxes")
    kept = keep(boxes, scores)
    print(f"whole set: {kept.numel()} boxes")


if __name__ == "__main__":
    main()
