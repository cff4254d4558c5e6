"""Train a small classifier on the labels that a larger one predicts."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

FEATURES = 64
TEACHER_CLASSES = 120
STUDENT_CLASSES = 100
BATCH = 512


def build(classes: int, width: int) -> nn.Module:
    """Return a classifier with one hidden layer."""
    return nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, classes)).cuda()


@torch.no_grad()
def annotate(teacher: nn.Module, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the teacher's labels and how sure it is of them."""
    confidence, labels = teacher(batch).softmax(dim=1).max(dim=1)
    return labels, confidence


def train(student: nn.Module, teacher: nn.Module, steps: int) -> None:
    """Fit the student to the teacher's labels."""
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    for step in range(steps):
        batch = torch.randn(BATCH, FEATURES, device="cuda")
        labels, confidence = annotate(teacher, batch)
        losses = F.cross_entropy(student(batch), labels, reduction="none")
        if not torch.isfinite(losses).all():
            raise FloatingPointError(f"loss is not finite in step {step}")
        loss = (losses * confidence).sum() / confidence.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


def main() -> None:
    """Build both models and train the student."""
    torch.manual_seed(29)
    train(build(STUDENT_CLASSES, 128), build(TEACHER_CLASSES, 256).eval(), steps=20)


if __name__ == "__main__":
    main()
